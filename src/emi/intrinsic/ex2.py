"""EX2: pay for states that a classifier easily tells apart from all states seen before.

A discriminator D(x*, x) is asked whether x is the exemplar x* or a state from the past. Where the
past is dense, even the exemplar itself looks like the past and D(x*, x*) is low; its odds are the
density of the past, without a model that generates states. Noise in the codes that D compares,
paid for in information, decides how near two states must be to be taken for one.

Fu, Co-Reyes, Levine: EX2: Exploration with Exemplar Models for Deep Reinforcement Learning,
NIPS 2017 (the amortised model: one discriminator for all exemplars).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from emi.batch import Batched, Transitions, as_tensor, in_pieces, pieces
from emi.errors import UserError
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.pool import Pool
from emi.nets import Conv, Flat, Pixels, convolutions
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt
from emi.spaces import is_image, require_box

Bonus = Literal["neg_log_density", "inverse_sqrt_density"]


@dataclass(frozen=True)
class EX2Config:
    """Settings of `emi.EX2`."""

    bonus: Bonus = "neg_log_density"
    """what is paid: −log p (original code, MuJoCo), or 1/√p (original code, Atari)"""
    use_actions: bool = False
    """density of (s, a) instead of s, for vectors (original code: SparseHalfCheetah only)"""
    kl_weight: NotNegativeFloat = 0.1
    """weight of the codes' KL (original code: 0.1; SwimmerGather 10)"""
    hidden: PositiveInt = 32
    """h, units of every hidden layer (original code: 32; SwimmerGather 16, images 64)"""
    features: PositiveInt = 16
    """f, size of each code (original code: 16; SwimmerGather 8, images 32)"""
    updates: PositiveInt = 2_000
    """gradient steps per batch (original code: 2000 SparseHalfCheetah; 1000 elsewhere)"""
    first_updates: PositiveInt = 5_000
    """gradient steps on the first batch that is learnt (original code)"""
    minibatch: PositiveInt = 128
    """exemplars per gradient step, and as many states of the past (original code)"""
    replay_size: PositiveInt = 250_000
    """states of the past, the newest (original code: 250k; SwimmerGather 500k, images 60k)"""
    min_replay: PositiveInt = 10_000
    """of these needed to learn and to pay (original code: 10k; images 1k)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (original code)"""


CONVOLUTIONS = (Conv(16, 4, 2, padding=3), Conv(8, 4, 2, padding=3))  # "full" padding
STEPS = 64  # gradient steps whose rows and noise are drawn at once
MAX_LOGIT = math.log((1 - 1e-5) / 1e-5)  # D is held in [1e-5, 1 − 1e-5]
MINUS_ONE = torch.tensor(-1.0)


class NewestFrame(nn.Module):
    """uint8 images, with a stack of frames or without, to the newest frame [n, C, H, W], uint8."""

    def __init__(self, space: Sequence[int]) -> None:
        super().__init__()
        self.pixels = Pixels(space, newest_frame=True)
        self.shape = (self.pixels.channels, self.pixels.height, self.pixels.width)

    def forward(self, obs: Tensor) -> Tensor:
        return self.pixels.frames(obs).contiguous()


class Dense(NamedTuple):
    """k layers x W + b side by side, or their gradient."""

    W: Tensor  # [k, inputs, outputs]
    b: Tensor  # [k, 1, outputs]


class Discriminator(NamedTuple):
    """Views of one vector that holds all weights: Adam on one tensor is cheap.

    The exemplar and the other state have an encoder each, k = 2. It ends in a branch for the mean
    and one for log σ², hence k = 4: both means, then both log σ².
    """

    trunk: list[Dense]
    branch: Dense
    code: Dense
    hidden: Dense
    logit: Dense

    @classmethod
    def of(cls, vector: Tensor, shapes: Sequence[tuple[int, int, int]]) -> Discriminator:
        parts = iter(vector.split([n for k, i, o in shapes for n in (k * i * o, k * o)]))
        layers = [Dense(next(parts).view(k, i, o), next(parts).view(k, 1, o)) for k, i, o in shapes]
        return cls(layers[:-4], *layers[-4:])


def layer_shapes(sizes: Sequence[int], h: int, f: int) -> list[tuple[int, int, int]]:
    """(k, inputs, outputs) of all layers; `sizes` are those of the trunk, its inputs first."""
    trunk = [(2, *pair) for pair in pairwise(sizes)]
    return [*trunk, (4, sizes[-1], h), (4, h, f), (1, 2 * f, h), (1, h, 1)]


def tanh_layer(x: Tensor, layer: Dense) -> Tensor:
    """tanh(x W + b), as 2 σ(2u) − 1: on many CPUs `sigmoid` is several times as fast as `tanh`."""
    a = torch.baddbmm(layer.b, x, layer.W, beta=2, alpha=2).sigmoid_()
    return torch.add(MINUS_ONE, a, alpha=2, out=a)


class Encoded(NamedTuple):
    """All activations of the encoders, and what they make."""

    trunk: list[Tensor]  # [2, n, ·] each, the inputs first
    fork: Tensor  # [4, n, ·], the last of these, once for each branch
    branch: Tensor  # [4, n, h]
    code: Tensor  # [2, 2, n, f]: μ of both, then log σ² of both


def encode(D: Discriminator, x: Tensor) -> Encoded:
    """[2, n, inputs] to the Gaussians of both codes."""
    trunk = [x]
    for layer in D.trunk:
        trunk.append(tanh_layer(trunk[-1], layer))
    fork = torch.cat([trunk[-1], trunk[-1]])
    branch = tanh_layer(fork, D.branch)
    code = torch.baddbmm(D.code.b, branch, D.code.W)
    return Encoded(trunk, fork, branch, code.view(2, *x.shape[:2], -1))


def compare(D: Discriminator, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [2, n, f] to the same side by side, the hidden layer, and the logit of D; [1, n, ·]."""
    z = torch.cat([z[:1], z[1:]], dim=2)
    hidden = tanh_layer(z, D.hidden)
    return z, hidden, torch.baddbmm(D.logit.b, hidden, D.logit.W)


def exemplar_logit(D: Discriminator, x: Tensor) -> Tensor:
    """Logit of D(x, x) without noise, z = μ; [2, n, inputs] to [n]."""
    return compare(D, encode(D, x).code[0])[2].flatten()


def novelty(logit: Tensor, bonus: Bonus) -> Tensor:
    """−log p or 1/√p, where p = (1 − D) / D is the density of the past at x; [n] to [n]."""
    minus_log_p = logit.clamp(-MAX_LOGIT, MAX_LOGIT)
    match bonus:
        case "neg_log_density":
            return minus_log_p
        case "inverse_sqrt_density":
            return (minus_log_p / 2).exp()


def backward_dense(grad: Dense, x: Tensor, d: Tensor) -> None:
    """Write the gradient of layers with the inputs x, given that of their outputs, d."""
    torch.bmm(x.mT, d, out=grad.W)
    torch.sum(d, 1, keepdim=True, out=grad.b)


def backward_tanh(d: Tensor, a: Tensor) -> Tensor:
    """d (1 − a²), in place."""
    return torch.ops.aten.tanh_backward.grad_input(d, a, grad_input=d)


class Step(NamedTuple):
    """What one gradient step saw, and the way on into what feeds the encoders."""

    logit: Tensor  # [2B]
    kl: Tensor  # [], mean over the pairs of KL(q(z|x) ‖ N(0, I)), summed over both codes
    d_x: Tensor | None  # [2, 2B, inputs], if x requires a gradient


def backward(
    D: Discriminator, grad: Discriminator, x: Tensor, noise: Tensor, kl_weight: float
) -> Step:
    """Write the gradient of BCE + kl_weight · KL; by hand, autograd takes twice as long.

    `x` [2, 2B, inputs]: the exemplars, twice, and beside them the same again, then the past.
    `noise` [2, 2B, f].
    """
    n, weight = x.shape[1], kl_weight / x.shape[1]
    trunk, fork, branch, code = encode(D, x)
    mean, log_var = code.unbind()
    std = (log_var / 2).exp_()
    spread = std * noise
    z, hidden, logit = compare(D, mean + spread)

    d_logit = logit.sigmoid()
    d_logit[:, : n // 2].sub_(1)
    d_logit.div_(n)
    backward_dense(grad.logit, hidden, d_logit)
    d = backward_tanh(d_logit * D.logit.W.mT, hidden)
    backward_dense(grad.hidden, z, d)
    d_z = torch.bmm(d, D.hidden.W.mT).view(n, 2, -1).transpose(0, 1)

    # z = μ + σ ε, hence ∂z/∂μ = 1 and ∂z/∂log σ² = ½ σ ε.
    # KL = ½ Σ (μ² + σ² − log σ² − 1), hence ∂KL/∂μ = μ and ∂KL/∂log σ² = ½ (σ² − 1).
    excess = std.square_().sub_(1)
    d_code = torch.empty_like(code)
    torch.add(d_z, mean, alpha=weight, out=d_code[0])
    torch.addcmul(excess * (weight / 2), d_z, spread, value=0.5, out=d_code[1])
    kl = excess.sub_(log_var).addcmul_(mean, mean).sum() / (2 * n)

    d = d_code.view(4, n, -1)
    backward_dense(grad.code, branch, d)
    d = backward_tanh(torch.bmm(d, D.code.W.mT), branch)
    backward_dense(grad.branch, fork, d)
    d = torch.bmm(d, D.branch.W.mT).view(2, 2, n, -1).sum(0)
    for k in reversed(range(len(D.trunk))):
        backward_tanh(d, trunk[k + 1])
        backward_dense(grad.trunk[k], trunk[k], d)
        if k > 0 or x.requires_grad:
            d = torch.bmm(d, D.trunk[k].W.mT)
    return Step(logit.flatten(), kl, d if x.requires_grad else None)


class EX2(IntrinsicReward):
    """The discriminator, and the states of the past that it is taught to tell from new ones.

    Scalars of `learn`, means over its gradient steps: `ex2/loss` (BCE + kl_weight · KL),
    `ex2/bce`, `ex2/kl` and `ex2/accuracy` (share of pairs told right, with noise; one half is
    chance); all are 0 as long as nothing is learnt. `ex2/replay`: states of the past that are
    held, the batch included.
    """

    learns_first = True  # a batch is scored by the discriminator that was just trained on it
    trained: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: EX2Config = EX2Config(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        box = require_box(observation_space)
        if config.min_replay > config.replay_size:
            raise UserError(
                f"min_replay must be at most replay_size, {config.replay_size}, "
                f"got {config.min_replay}"
            )
        self.config = config
        rng, h = torch.Generator().manual_seed(seed), config.hidden
        self.actions = ActionVectors(action_space)
        self.inputs: Flat | NewestFrame
        if is_image(box):
            if config.use_actions:
                raise UserError("use_actions needs vector observations, got images")
            self.inputs = NewestFrame(box.shape)
            pixels = Pixels(self.inputs.shape)
            nets, (width, _) = zip(
                *(convolutions(pixels, CONVOLUTIONS, "relu", rng) for _ in range(2)), strict=True
            )
            sizes = [width]
        else:
            self.inputs, nets = Flat(), ()
            width = math.prod(box.shape)
            sizes = [width + (self.actions.size if config.use_actions else 0), h, h]
        self.convolutions = nn.ModuleList(nets)  # the encoders' first layers, for images
        self.shapes = layer_shapes(sizes, h, config.features)
        self.weights = nn.Parameter(torch.zeros(sum(k * (i + 1) * o for k, i, o in self.shapes)))
        with torch.no_grad():
            D = Discriminator.of(self.weights, self.shapes)
            for W in (W for layer in (*D.trunk, *D[1:]) for W in layer.W):
                nn.init.xavier_uniform_(W, generator=rng)
        self.pool = Pool(config.replay_size)
        self.register_buffer("trained", torch.tensor(False))
        self.descent = Descent(self.parameters(), config.learning_rate, rng)

    def rows(self, obs: Tensor, action: Tensor) -> Tensor:
        """What is compared and kept: [n, inputs] floats, or newest frames [n, C, H, W], uint8."""
        rows = self.inputs(obs)
        if self.config.use_actions:
            rows = torch.cat([rows, self.actions(action)], dim=1)
        return rows

    def logit(self, obs: Batched, action: Batched) -> Tensor:
        """Logit of D(x, x), without noise; [n, *observation], [n, *action] to [n]."""
        D = Discriminator.of(self.weights, self.shapes)

        def score(obs: Tensor, action: Tensor) -> Tensor:
            rows = self.rows(obs, action)
            x = [net(rows) for net in self.convolutions] or [rows, rows]
            return exemplar_logit(D, torch.stack(x))

        return in_pieces(score, self.device, obs, action)

    def reward(self, batch: Transitions) -> Tensor:
        """The novelty of s (and a) less its median over the batch; 0 until the past is known."""
        if len(self.pool) < self.config.min_replay:
            return torch.zeros(len(batch), device=self.device)
        bonus = novelty(self.logit(batch.obs, batch.action), self.config.bonus)
        return bonus - bonus.quantile(0.5)

    def learn(self, batch: Transitions) -> dict[str, float]:
        bce = kl = accuracy = 0.0
        if len(self.pool) >= self.config.min_replay:
            bce, kl, accuracy = self._fit(batch)
            self.trained.fill_(True)
        # Only now: what is called the past must be older than the batch.
        for obs, action in pieces(batch.obs, batch.action, device=self.device):
            self.pool.add(self.rows(obs, action))
        return {
            "ex2/loss": bce + self.config.kl_weight * kl,
            "ex2/bce": bce,
            "ex2/kl": kl,
            "ex2/accuracy": accuracy,
            "ex2/replay": float(len(self.pool)),
        }

    @torch.no_grad()
    def _fit(self, batch: Transitions) -> tuple[float, float, float]:
        """The gradient steps of one batch; returns the means of BCE, KL and accuracy."""
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
        """As `backward`, and on into the convolutions; an exemplar passes them once."""
        first, second = self.convolutions
        with torch.enable_grad():
            exemplars = first(rows[0, : self.config.minibatch])
            x = torch.stack([exemplars.repeat(2, 1), second(rows[1])])
        step = backward(D, grad, x, noise, self.config.kl_weight)
        self.convolutions.zero_grad()
        x.backward(step.d_x)
        return step

    def _draws(self, batch: Transitions) -> Iterator[tuple[Tensor, Tensor]]:
        """For each gradient step, rows as `backward` takes them, [2, 2B, ...], and the noise."""
        config, rng = self.config, self.descent.generator
        left, B = config.updates if self.trained else config.first_updates, config.minibatch
        while left > 0:
            steps = min(left, STEPS)
            left -= steps
            chosen = torch.randint(len(batch), (steps * B,), generator=rng).numpy()
            columns = (as_tensor(c[chosen], self.device) for c in (batch.obs, batch.action))
            x, past = self.rows(*columns), self.pool.draw(steps * B, rng).to(self.device)
            x, past = (part.view(steps, B, *part.shape[1:]) for part in (x, past))
            rows = torch.stack([x, x, x, past], dim=1).view(steps, 2, 2 * B, *x.shape[2:])
            noise = torch.randn(steps, 2, 2 * B, config.features, generator=rng)
            yield from zip(rows, noise.to(self.device), strict=True)
