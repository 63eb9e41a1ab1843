"""EX2: reward states that a classifier distinguishes easily from past states.

A discriminator D(x*, x) estimates the probability that x is the exemplar x* and not a past state.
Where past states are dense, even the exemplar looks like one of them and D(x*, x*) is low. Its odds
give the density of past states at x*, without a generative model. D compares noisy codes of both
states; a KL penalty on the codes decides how close two states must be to count as the same.

Fu, Co-Reyes, Levine: EX2: Exploration with Exemplar Models for Deep Reinforcement Learning,
NIPS 2017 (the amortised model: one discriminator for all exemplars).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from emi.batch import Batched, Transitions, as_tensor, in_pieces, pieces
from emi.errors import UserError
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.ex2 import Discriminator, Step, backward, compare, encode, layer_shapes
from emi.intrinsic.moments import RunningMoments
from emi.intrinsic.pool import Pool
from emi.intrinsic.reading import Reading, normalized
from emi.nets import Conv, Pixels, convolutions, newest_entries
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt

Bonus = Literal["neg_log_density", "inverse_sqrt_density"]


@dataclass(frozen=True)
class EX2Config:
    """Settings of `emi.EX2`."""

    bonus: Bonus = "neg_log_density"
    """the bonus: −log p (original code, MuJoCo), or 1/√p (original code, Atari)"""
    use_actions: bool = False
    """density of (s, a) instead of s, for vectors (original code: SparseHalfCheetah only)"""
    sampled_actions: bool = False
    """these actions are as sampled, before they are clipped (original code: True)"""
    kl_weight: NotNegativeFloat = 0.1
    """weight of the KL from the codes to N(0, I) (original code: 0.1; SwimmerGather 10)"""
    hidden: PositiveInt = 32
    """h, units of every hidden layer (original code: 32; SwimmerGather 16, images 64)"""
    features: PositiveInt = 16
    """f, size of each code (original code: 16; SwimmerGather 8, images 32)"""
    updates: PositiveInt = 2_000
    """gradient steps per batch (original code: 2000 SparseHalfCheetah; 1000 elsewhere)"""
    first_updates: PositiveInt = 5_000
    """gradient steps on the first batch that the model is trained on (original code)"""
    minibatch: PositiveInt = 128
    """exemplars per gradient step, and as many past states (original code)"""
    replay_size: PositiveInt = 250_000
    """number of newest past states kept (original code: 250k; SwimmerGather 500k, images 60k)"""
    min_replay: PositiveInt = 10_000
    """stored states before training and bonuses start (original code: 10k; images 1k)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (original code)"""


CONVOLUTIONS = (Conv(16, 4, 2, padding=3), Conv(8, 4, 2, padding=3))  # "full" padding
STEPS = 64  # rows and noise are drawn for this many gradient steps at once
MAX_LOGIT = math.log((1 - 1e-5) / 1e-5)  # D is clipped to [1e-5, 1 − 1e-5]


def exemplar_logit(D: Discriminator, x: Tensor) -> Tensor:
    """Logit of D(x, x) without noise, z = μ; [2, n, inputs] to [n]."""
    return compare(D, encode(D, x).code[0])[2].flatten()


def novelty(logit: Tensor, bonus: Bonus) -> Tensor:
    """−log p or 1/√p, where p = (1 − D) / D is the density of past states at x; [n] to [n]."""
    minus_log_p = logit.clamp(-MAX_LOGIT, MAX_LOGIT)
    match bonus:
        case "neg_log_density":
            return minus_log_p
        case "inverse_sqrt_density":
            return (minus_log_p / 2).exp()


class EX2(IntrinsicReward):
    """The discriminator, and the past states that it is trained to distinguish from new ones.

    Scalars of `learn`, means over its gradient steps: `ex2/loss` (BCE + kl_weight · KL),
    `ex2/bce`, `ex2/kl` and `ex2/accuracy` (share of pairs classified correctly, with noise; one
    half is chance). They are 0 before the first training. `ex2/replay`: number of past
    states stored, including the batch.
    """

    learns_first = True  # a batch is scored by the discriminator that was just trained on it
    trained: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: EX2Config = EX2Config(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        if config.min_replay > config.replay_size:
            raise UserError(
                f"min_replay must be at most replay_size, {config.replay_size}, "
                f"got {config.min_replay}"
            )
        self.config = config
        rng, h = torch.Generator().manual_seed(seed), config.hidden
        self.wants_sampled_actions = config.use_actions and config.sampled_actions
        # Without `use_actions`, actions are not read, and any action space is accepted.
        self.actions: ActionVectors | None = None
        if config.use_actions:
            self.actions = ActionVectors(action_space, clip=not self.wants_sampled_actions)
        self.reading = Reading(observation_space)
        self.entries, shape = newest_entries(self.reading.space)
        nets: list[nn.Sequential] = []
        if isinstance(self.entries, Pixels):
            space = self.entries.frame_space
            if config.use_actions:
                raise UserError("use_actions needs vector observations, got images")
            both = [convolutions(Pixels(space), CONVOLUTIONS, "relu", rng) for _ in range(2)]
            nets, sizes = [net for net, _ in both], [both[0][1]]
            row = (shape, torch.uint8 if space.dtype == np.uint8 else torch.float32)
        else:
            sizes = [shape[0] + (self.actions.size if self.actions is not None else 0), h, h]
            row = ((sizes[0],), torch.float32)
        # Past states are stored as they are, and normalised when they are drawn.
        own = normalize and not nets
        self.observed = RunningMoments((sizes[0],)) if own else None
        self.convolutions = nn.ModuleList(nets)  # the first layers of the encoders, for images
        self.shapes = layer_shapes(sizes, h, config.features)
        count = sum(k * (i + 1) * o for k, i, o in self.shapes)
        self.weights = nn.Parameter(torch.zeros(count, dtype=torch.float32))
        with torch.no_grad():
            D = Discriminator.of(self.weights, self.shapes)
            for W in (W for layer in (*D.trunk, *D[1:]) for W in layer.W):
                nn.init.xavier_uniform_(W, generator=rng)
        self.pool = Pool(config.replay_size, *row)
        self.register_buffer("trained", torch.tensor(False))
        self.descent = Descent(self.parameters(), config.learning_rate, rng)

    def _read(self, obs: Batched, action: Batched) -> list[Batched]:
        """The columns that are read: observations and, with `use_actions`, actions."""
        return [obs] if self.actions is None else [obs, action]

    def rows(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """The inputs of D: floats [n, inputs], or the newest frames as uint8 [n, C, H, W]."""
        if isinstance(self.entries, Pixels):
            return self.entries.frames(obs).contiguous()
        rows = self.entries(obs)
        return rows if self.actions is None else torch.cat([rows, self.actions(action)], dim=1)

    def inputs(self, rows: Tensor) -> Tensor:
        """`rows` in units of their standard deviation, if they are normalised."""
        return rows if self.observed is None else normalized(rows, self.observed)

    def logit(self, obs: Batched, action: Batched) -> Tensor:
        """Logit of D(x, x), without noise, of what `reading` returns; to [n]."""
        D = Discriminator.of(self.weights, self.shapes)

        def score(*columns: Tensor) -> Tensor:
            rows = self.inputs(self.rows(*columns))
            x = [net(rows) for net in self.convolutions] or [rows, rows]
            return exemplar_logit(D, torch.stack(x))

        return in_pieces(score, self.device, *self._read(obs, action))

    def reward(self, batch: Transitions) -> Tensor:
        """Novelty minus its median over the batch; 0 until `min_replay` states are stored."""
        batch = self.reading(batch)
        if len(self.pool) < self.config.min_replay:
            return torch.zeros(len(batch), dtype=torch.float32, device=self.device)
        bonus = novelty(self.logit(batch.obs, batch.action), self.config.bonus)
        return bonus - bonus.quantile(0.5)

    def learn(self, batch: Transitions) -> dict[str, float]:
        batch = self.reading(batch)
        if self.observed is not None:
            for columns in pieces(*self._read(batch.obs, batch.action), device=self.device):
                self.observed.update(self.rows(*columns))
        bce = kl = accuracy = 0.0
        if len(self.pool) >= self.config.min_replay:
            bce, kl, accuracy = self._fit(batch)
            self.trained.fill_(True)
        # The batch is stored after training, which compares it with earlier states only.
        for columns in pieces(*self._read(batch.obs, batch.action), device=self.device):
            self.pool.add(self.rows(*columns))
        return {
            "ex2/loss": bce + self.config.kl_weight * kl,
            "ex2/bce": bce,
            "ex2/kl": kl,
            "ex2/accuracy": accuracy,
            "ex2/replay": float(len(self.pool)),
        }

    @torch.no_grad()
    def _fit(self, batch: Transitions) -> tuple[float, float, float]:
        """Train on one batch; return the means of BCE, KL and accuracy."""
        config, logits, kls = self.config, [], []
        self.weights.grad = torch.zeros_like(self.weights)
        D = Discriminator.of(self.weights.detach(), self.shapes)
        grad = Discriminator.of(self.weights.grad, self.shapes)
        for rows, noise in self._draws(batch):
            if self.convolutions:
                step = self._backward_images(D, grad, rows, noise)
            else:
                step = backward(D, grad, rows, noise, config.kl_weight)
            self.descent.update()
            logits.append(step.logit)
            kls.append(step.kl)
        same, past = torch.stack(logits).chunk(2, dim=1)
        bce = (softplus(-same).mean() + softplus(past).mean()) / 2
        accuracy = ((same > 0).float().mean() + (past <= 0).float().mean()) / 2
        return bce.item(), torch.stack(kls).mean().item(), accuracy.item()

    def _backward_images(
        self, D: Discriminator, grad: Discriminator, rows: Tensor, noise: Tensor
    ) -> Step:
        """`backward` including the convolutions.

        An exemplar is in two pairs; the first encoder's convolutions are computed once for it.
        """
        first, second = self.convolutions
        with torch.enable_grad():
            exemplars = first(rows[0, : self.config.minibatch])
            x = torch.stack([exemplars.repeat(2, 1), second(rows[1])])
        step = backward(D, grad, x, noise, self.config.kl_weight)
        self.convolutions.zero_grad()
        x.backward(step.d_x)
        return step

    def _draws(self, batch: Transitions) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows [2, 2B, ...] and the noise of each gradient step, for `backward`."""
        config, rng = self.config, self.descent.generator
        left, B = config.updates if self.trained else config.first_updates, config.minibatch
        while left > 0:
            steps = min(left, STEPS)
            left -= steps
            chosen = torch.randint(len(batch), (steps * B,), generator=rng).numpy()
            read = self._read(batch.obs, batch.action)
            columns = (as_tensor(column[chosen], self.device) for column in read)
            drawn = self.pool.draw(steps * B, rng).to(self.device)
            x, past = self.inputs(self.rows(*columns)), self.inputs(drawn)
            x, past = (part.view(steps, B, *part.shape[1:]) for part in (x, past))
            rows = torch.stack([x, x, x, past], dim=1).view(steps, 2, 2 * B, *x.shape[2:])
            shape = steps, 2, 2 * B, config.features
            noise = torch.randn(shape, generator=rng, dtype=torch.float32)
            yield from zip(rows, noise.to(self.device), strict=True)
