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

from emi.data import (
    Batched,
    NotNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Transitions,
    as_tensor,
)
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.descent import Descent
from emi.intrinsic.pieces import in_pieces, pieces
from emi.intrinsic.pool import Pool
from emi.nets import Conv, Flat, Pixels, convolutions, is_image

Bonus = Literal["neg_log_density", "inverse_sqrt_density"]


@dataclass(frozen=True)
class EX2Config:
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
# How many pairs a code is in: that of x as the exemplar, of x as the other, of the past.
PAIRS = torch.tensor([2.0, 1.0, 1.0]).view(3, 1, 1)


class NewestFrame(nn.Module):
    """uint8 images, with a stack of frames or without, to the newest frame [n, C, H, W], uint8."""

    def __init__(self, space: Sequence[int]) -> None:
        super().__init__()
        pixels = Pixels(space, newest_frame=True)
        self.axis = pixels.axis
        self.shape = (pixels.channels, pixels.height, pixels.width)

    def forward(self, obs: Tensor) -> Tensor:
        if self.axis is None:
            return obs.unsqueeze(1)
        channels_first = obs if self.axis == 1 else obs.permute(0, 3, 1, 2)
        return channels_first[:, -self.shape[0] :].contiguous()


class Dense(NamedTuple):
    """One layer x W + b, or the gradient of one."""

    W: Tensor  # [inputs, outputs]
    b: Tensor  # [outputs]


class Encoder(NamedTuple):
    """x to the Gaussian of its code; the last hidden layer is [for the mean | for log σ²]."""

    hidden: list[Dense]
    mean: Dense
    log_var: Dense


class Discriminator(NamedTuple):
    """Views of one vector that holds all weights: Adam on one tensor is cheap."""

    exemplar: Encoder
    other: Encoder
    hidden: Dense
    logit: Dense

    @classmethod
    def of(cls, vector: Tensor, shapes: Sequence[tuple[int, int]]) -> Discriminator:
        parts = iter(vector.split([n for i, o in shapes for n in (i * o, o)]))
        *layers, hidden, logit = (Dense(next(parts).view(i, o), next(parts)) for i, o in shapes)
        half = len(layers) // 2
        first, second = (
            Encoder(own[:-2], own[-2], own[-1]) for own in (layers[:half], layers[half:])
        )
        return cls(first, second, hidden, logit)


def layer_shapes(sizes: Sequence[int], features: int) -> list[tuple[int, int]]:
    """Of a `Discriminator` whose encoders have the hidden layers `sizes`, inputs first."""
    half = sizes[-1] // 2
    encoder = [*pairwise(sizes), (half, features), (half, features)]
    return [*encoder, *encoder, (2 * features, half), (half, 1)]


def tanh_layer(x: Tensor, layer: Dense) -> Tensor:
    """tanh(x W + b), as 2 σ(2u) − 1: on many CPUs `sigmoid` is several times as fast as `tanh`."""
    a = torch.addmm(layer.b, x, layer.W, beta=2, alpha=2).sigmoid_()
    return torch.add(MINUS_ONE, a, alpha=2, out=a)


def encode(encoder: Encoder, x: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """[n, inputs] to all activations (x is the first), μ and log σ² [n, f]."""
    activations = [x]
    for layer in encoder.hidden:
        activations.append(tanh_layer(activations[-1], layer))
    for_mean, for_log_var = activations[-1].chunk(2, dim=1)
    return (
        activations,
        torch.addmm(encoder.mean.b, for_mean, encoder.mean.W),
        torch.addmm(encoder.log_var.b, for_log_var, encoder.log_var.W),
    )


def compare(D: Discriminator, z: Tensor) -> tuple[Tensor, Tensor]:
    """Two codes side by side, [n, 2f], to the hidden layer [n, h] and the logit of D [n]."""
    hidden = tanh_layer(z, D.hidden)
    return hidden, torch.addmm(D.logit.b, hidden, D.logit.W).flatten()


def exemplar_logit(D: Discriminator, x: Tensor, other: Tensor) -> Tensor:
    """Logit of D(x*, x) without noise, z = μ; [n, inputs] each, to [n]."""
    means = [encode(e, rows)[1] for e, rows in ((D.exemplar, x), (D.other, other))]
    return compare(D, torch.cat(means, dim=1))[1]


def novelty(logit: Tensor, bonus: Bonus) -> Tensor:
    """−log p or 1/√p, where p = (1 − D) / D is the density of the past at x; [n] to [n]."""
    minus_log_p = logit.clamp(-MAX_LOGIT, MAX_LOGIT)
    match bonus:
        case "neg_log_density":
            return minus_log_p
        case "inverse_sqrt_density":
            return (minus_log_p / 2).exp()


def backward_dense(grad: Dense, x: Tensor, d: Tensor) -> None:
    """Write the gradient of a layer with the inputs x, given that of its outputs, d."""
    torch.mm(x.T, d, out=grad.W)
    torch.sum(d, 0, out=grad.b)


def backward_tanh(d: Tensor, a: Tensor) -> Tensor:
    """d (1 − a²), in place."""
    return torch.ops.aten.tanh_backward.grad_input(d, a, grad_input=d)


def backward_encoder(
    encoder: Encoder, grad: Encoder, activations: list[Tensor], d_mean: Tensor, d_log_var: Tensor
) -> Tensor:
    """Write the gradient of `encode`; returns that of its first hidden layer before tanh."""
    d = torch.empty_like(activations[-1])
    heads = (encoder.mean, grad.mean, d_mean), (encoder.log_var, grad.log_var, d_log_var)
    halves = zip(activations[-1].chunk(2, dim=1), d.chunk(2, dim=1), strict=True)
    for (layer, out, d_out), (a, d_a) in zip(heads, halves, strict=True):
        backward_dense(out, a, d_out)
        torch.mm(d_out, layer.W.T, out=d_a)
    for k in reversed(range(len(encoder.hidden))):
        backward_tanh(d, activations[k + 1])
        backward_dense(grad.hidden[k], activations[k], d)
        if k > 0:
            d = d @ encoder.hidden[k].W.T
    return d


class Step(NamedTuple):
    """What one gradient step saw, and the way on into what feeds the encoders."""

    logit: Tensor  # [2, B], of the pairs (x, x) and (x, past)
    kl: Tensor  # [], mean over the 2B pairs of KL(q(z|x) ‖ N(0, I)), summed over both codes
    d_exemplar: Tensor  # [B, units], gradient of the first hidden layer before tanh
    d_other: Tensor  # [2B, units]


def backward(
    D: Discriminator,
    grad: Discriminator,
    exemplar: Tensor,
    other: Tensor,
    noise: Tensor,
    kl_weight: float,
) -> Step:
    """Write the gradient of BCE + kl_weight · KL; by hand, autograd takes three times as long.

    `exemplar` [B, inputs] is x; `other` [2B, inputs] is x, then the past; `noise` is
    [2 codes, 2 kinds of pairs, B, f]. An exemplar is encoded once for both of its pairs.
    """
    B, f = len(exemplar), noise.shape[-1]
    a, mean, log_var = encode(D.exemplar, exemplar)
    a_other, mean_other, log_var_other = encode(D.other, other)
    # Codes of x as an exemplar, of x and of the past as the other: [3, B, f].
    mean = torch.cat([mean, mean_other]).view(3, B, f)
    log_var = torch.cat([log_var, log_var_other]).view(3, B, f)
    std = torch.exp(log_var / 2)
    z = torch.empty(2, B, 2 * f, dtype=mean.dtype, device=mean.device)  # [pairs, B, two codes]
    torch.addcmul(mean[0], std[0], noise[0], out=z[..., :f])
    torch.addcmul(mean[1:], std[1:], noise[1], out=z[..., f:])
    z = z.view(2 * B, 2 * f)
    hidden, logit = compare(D, z)

    d_logit = logit.sigmoid()
    d_logit[:B] -= 1
    d_logit = d_logit.div_(2 * B).unsqueeze(1)
    backward_dense(grad.logit, hidden, d_logit)
    d_hidden = backward_tanh(d_logit * D.logit.W.T, hidden)
    backward_dense(grad.hidden, z, d_hidden)
    d_z = (d_hidden @ D.hidden.W.T).view(2, B, 2 * f)

    def to_codes(first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first.sum(0, keepdim=True), second])

    # z = μ + σ ε, hence ∂z/∂μ = 1 and ∂z/∂log σ² = ½ σ ε.
    first, second, weight = d_z[..., :f], d_z[..., f:], kl_weight / (2 * B)
    pairs, excess = PAIRS.to(mean), std.square().sub_(1)
    d_mean = to_codes(first, second).addcmul_(mean, pairs, value=weight)
    d_log_var = to_codes(first * noise[0], second * noise[1])
    d_log_var.mul_(std).addcmul_(excess, pairs, value=weight).mul_(0.5)
    # KL = ½ Σ (μ² + σ² − log σ² − 1), mean over the 2B pairs.
    kl = excess.sub_(log_var).addcmul_(mean, mean).sum((1, 2)) @ pairs.flatten() / (4 * B)

    d_mean, d_log_var = d_mean.view(3 * B, f), d_log_var.view(3 * B, f)
    return Step(
        logit.view(2, B),
        kl,
        backward_encoder(D.exemplar, grad.exemplar, a, d_mean[:B], d_log_var[:B]),
        backward_encoder(D.other, grad.other, a_other, d_mean[B:], d_log_var[B:]),
    )


class EX2(nn.Module):
    """The discriminator, and the states of the past that it is taught to tell from new ones.

    Scalars of `learn`, means over its gradient steps: `ex2/loss` (BCE + kl_weight · KL),
    `ex2/bce`, `ex2/kl` and `ex2/accuracy` (share of pairs told right, with noise; one half is
    chance); all are 0 as long as nothing is learnt. `ex2/replay`: states of the past that are
    held, the batch included.
    """

    trained: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: EX2Config = EX2Config(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(observation_space, gymnasium.spaces.Box):
            raise ValueError(
                f"observations must be a Box (vectors, or uint8 images), got {observation_space}"
            )
        if config.min_replay > config.replay_size:
            raise ValueError(
                f"min_replay must be at most replay_size, {config.replay_size}, "
                f"got {config.min_replay}"
            )
        self.config = config
        rng, h = torch.Generator().manual_seed(seed), config.hidden
        self.actions = ActionVectors(action_space)
        self.inputs: Flat | NewestFrame
        if is_image(observation_space):
            if config.use_actions:
                raise ValueError("use_actions needs vector observations, got images")
            self.inputs = NewestFrame(observation_space.shape)
            pixels = Pixels(self.inputs.shape)
            nets, widths = zip(
                *(convolutions(pixels, CONVOLUTIONS, "relu", rng) for _ in range(2)), strict=True
            )
            self.features = nn.ModuleList(nets)
            sizes = [widths[0], 2 * h]
        else:
            self.inputs = Flat()
            self.features = nn.ModuleList([nn.Identity(), nn.Identity()])
            width = math.prod(observation_space.shape)
            sizes = [width + (self.actions.size if config.use_actions else 0), h, h, 2 * h]
        self.shapes = layer_shapes(sizes, config.features)
        self.weights = nn.Parameter(torch.zeros(sum(i * o + o for i, o in self.shapes)))
        with torch.no_grad():
            self._initialise(Discriminator.of(self.weights, self.shapes), rng)
        self.pool = Pool(config.replay_size)
        self.register_buffer("trained", torch.tensor(False))
        self.descent = Descent(self.parameters(), config.learning_rate, rng)

    def _initialise(self, D: Discriminator, rng: torch.Generator) -> None:
        """Glorot for each layer on its own, also for the two that are side by side; biases 0."""
        matrices = [D.hidden.W, D.logit.W]
        for encoder in (D.exemplar, D.other):
            matrices += [encoder.mean.W, encoder.log_var.W]
            for layer in encoder.hidden:
                matrices += layer.W.split(self.config.hidden, dim=1)
        for W in matrices:
            nn.init.xavier_uniform_(W, generator=rng)

    @property
    def learns_first(self) -> bool:
        """A batch is scored by the discriminator that has just been trained on it."""
        return True

    @property
    def _device(self) -> torch.device:
        return self.weights.device

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
            return exemplar_logit(D, *(net(rows) for net in self.features))

        return in_pieces(score, self._device, obs, action)

    def reward(self, batch: Transitions) -> Tensor:
        """The novelty of s (and a) less its median over the batch; 0 until the past is known."""
        if len(self.pool) < self.config.min_replay:
            return torch.zeros(len(batch), device=self._device)
        bonus = novelty(self.logit(batch.obs, batch.action), self.config.bonus)
        return bonus - bonus.quantile(0.5)

    def learn(self, batch: Transitions) -> dict[str, float]:
        bce = kl = accuracy = 0.0
        if len(self.pool) >= self.config.min_replay:
            bce, kl, accuracy = self._fit(batch)
            self.trained.fill_(True)
        # Only now: what is called the past must be older than the batch.
        for obs, action in pieces(batch.obs, batch.action, device=self._device):
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
        for pairs, noise in self._draws(batch):
            with torch.enable_grad():
                x, other = self.features[0](pairs[: config.minibatch]), self.features[1](pairs)
            step = backward(D, grad, x.detach(), other.detach(), noise, config.kl_weight)
            if x.requires_grad:
                self.features.zero_grad()
                first, second = (e.hidden[0].W.T for e in (D.exemplar, D.other))
                torch.autograd.backward(
                    [x, other], [step.d_exemplar @ first, step.d_other @ second]
                )
            self.descent.optimizer.step()
            logits.append(step.logit)
            kls.append(step.kl)
        same, past = torch.stack(logits, dim=1)
        bce = (softplus(-same).mean() + softplus(past).mean()) / 2
        accuracy = ((same > 0).float().mean() + (past <= 0).float().mean()) / 2
        return bce.item(), torch.stack(kls).mean().item(), accuracy.item()

    def _draws(self, batch: Transitions) -> Iterator[tuple[Tensor, Tensor]]:
        """For each gradient step, the 2B rows x and past, and the noise of the codes."""
        config, rng = self.config, self.descent.generator
        left, B = config.updates if self.trained else config.first_updates, config.minibatch
        while left > 0:
            steps = min(left, STEPS)
            left -= steps
            chosen = torch.randint(len(batch), (steps * B,), generator=rng).numpy()
            columns = (as_tensor(c[chosen], self._device) for c in (batch.obs, batch.action))
            x, past = self.rows(*columns), self.pool.draw(steps * B, rng).to(self._device)
            shape = (steps, B, *x.shape[1:])
            pairs = torch.cat([x.view(shape), past.view(shape)], dim=1)
            noise = torch.randn(steps, 2, 2, B, config.features, generator=rng).to(self._device)
            yield from zip(pairs, noise, strict=True)
