"""VIME: reward transitions from which a model of the dynamics would learn the most.

The model is a Bayesian network, with a Gaussian over every weight, that predicts s' from (s, a).
One gradient step on a transition would change the posterior from q to q'. The bonus is proportional
to KL(q' ‖ q), the information gain of the transition, up to an upper limit.

Houthooft, Chen, Duan, Schulman, De Turck, Abbeel: VIME: Variational Information Maximizing
Exploration, NIPS 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from emi.batch import Transitions, in_pieces
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.vime import Pass, loss_gradient, matrices, passes
from emi.intrinsic.moments import Moments
from emi.intrinsic.pool import Pool
from emi.intrinsic.reading import Reading
from emi.nets import Flat
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt
from emi.spaces import require_vectors
from emi.stored_state import EXTRA, expect


@dataclass(frozen=True)
class VIMEConfig:
    """Settings of `emi.VIME`."""

    hidden: tuple[PositiveInt, ...] = (32,)
    """hidden layers of the model, ReLU (authors' code, the same in both experiment scripts)"""
    prior_sd: PositiveFloat = 0.5
    """standard deviation of the prior, and of the posterior at the start (authors' bnn.py)"""
    likelihood_sd: PositiveFloat = 5.0
    """fixed standard deviation of s' around the prediction (authors' bnn.py)"""
    samples: PositiveInt = 10
    """networks sampled per gradient step (authors' code)"""
    kl_batches: PositiveInt = 5
    """the KL to the prior is divided by this in each gradient step (a constant in authors' code)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (authors' scripts)"""
    updates: PositiveInt = 500
    """gradient steps per batch (authors' HalfCheetah script; 5000 SwimmerGather)"""
    minibatch: PositiveInt = 10
    """replayed transitions per gradient step (authors' code)"""
    replay_size: PositiveInt = 100_000
    """transitions kept (authors' HalfCheetah script; 1e6 SwimmerGather)"""
    min_replay: PositiveInt = 500
    """transitions needed before the model is trained (authors' code)"""
    step_size: NotNegativeFloat = 0.01
    """λ, the size of the hypothetical gradient step on one transition (authors' code)"""
    max_gain: PositiveFloat = 1000.0
    """upper limit of an information gain, before the division by the median (authors' code)"""
    median_window: PositiveInt = 10
    """batches whose median gains are averaged, including the current one (authors' code)"""


MIN_DIVISOR = 1e-12  # far below any median observed; prevents a division by 0


def rho_of(sigma: float) -> float:
    """ρ with softplus(ρ) = σ."""
    return sigma + math.log(-math.expm1(-sigma))


def kl_to_prior(mu: Tensor, sigma: Tensor, prior_sd: float) -> Tensor:
    """KL(q ‖ N(0, p²)) = Σ (μ² + σ²) / 2p² − ½ + log p − log σ; [P], [P] to []."""
    squares = (mu.dot(mu) + sigma.dot(sigma)) / (2 * prior_sd**2)
    return squares - sigma.log().sum() + len(mu) * (math.log(prior_sd) - 0.5)


def information_gain(layers: list[Pass], variance: list[Tensor], step_size: float) -> Tensor:
    """λ² Σ g² H⁻¹ over all μ and ρ, [n]: twice KL(q(φ + Δφ) ‖ q(φ)) for Δφ = λ H⁻¹ g, small λ.

    g is the gradient of the loss L of a row. H, the Hessian of the KL, is diagonal: 1/σ² for μ and
    2 (sp'(ρ)/σ)² for ρ, where sp is softplus. `Pass` defines the inputs x of a layer, the variance
    v, and δ and κ. As ∂L/∂μ = x δ and ∂L/∂ρ = x² κ σ sp'(ρ), the sum over the matrix of a layer is
    Σⱼ δⱼ² vⱼ + ½ κⱼ² (x⁴ σ⁴)ⱼ: no gradient of a single weight is computed.
    """
    gains = []
    for (_, squares, v, delta, kappa), V in zip(layers, variance, strict=True):
        fourth = squares.square() @ V.square()
        gains.append((delta.square() * v + 0.5 * kappa.square() * fourth).sum(1))
    return step_size**2 * torch.stack(gains).sum(0)


def divisor(medians: list[float]) -> float:
    """The divisor of gains: the mean of the medians of the last batches, never 0."""
    return max(sum(medians) / len(medians), MIN_DIVISOR)


class VIME(IntrinsicReward):
    """The Bayesian network q(θ; φ), φ = (μ, ρ), σ = softplus(ρ), and its replay buffer.

    Scalars of `learn`: `vime/nll` is the negative log-likelihood of a minibatch, summed over rows
    and entries of s', mean over the gradient steps. `vime/kl_prior` is KL(q ‖ prior) after the
    training. `vime/loss` is `vime/nll` + `vime/kl_prior` / `kl_batches`. `vime/median` is the
    divisor of the gains of this batch, the mean of the last batches' medians. `vime/clipped` is the
    share of these gains at `max_gain`. `vime/replay` is the number of transitions stored. The first
    three are 0 until `min_replay` transitions are stored, the next two before the first training.
    """

    mean: Tensor
    scale: Tensor
    noise: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: VIMEConfig = VIMEConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.reading = Reading(observation_space)
        box = require_vectors(self.reading.space, "VIME")
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.flat, self.actions = Flat(), ActionVectors(action_space)
        width = math.prod(box.shape)
        self.sizes = [width + self.actions.size, *config.hidden, width]
        # One row of all μ and one of all ρ: a gradient step is a few operations on long vectors.
        weights = sum((i + 1) * o for i, o in pairwise(self.sizes))
        mu = torch.randn(weights, generator=rng, dtype=torch.float32)
        rho = torch.full((weights,), rho_of(config.prior_sd), dtype=torch.float32)
        self.phi = nn.Parameter(torch.stack([mu, rho]))
        self.descent = Descent([self.phi], config.learning_rate, rng)
        self.replay = Pool(config.replay_size, [self.sizes[0] + width])
        # Updated by each training: mean and scale normalise (s, a); noise is the ε of scoring, one
        # for all rows, so that a bonus does not depend on the position of its row.
        self.register_buffer("mean", torch.zeros(self.sizes[0], dtype=torch.float32))
        self.register_buffer("scale", torch.ones(self.sizes[0], dtype=torch.float32))
        self.register_buffer("noise", self._draw(1)[0])
        self.trained = False
        self.medians: list[float] = []  # of the last batches, the newest last

    def reward(self, batch: Transitions) -> Tensor:
        bonus, _ = self.score(batch)
        return bonus

    def learn(self, batch: Transitions) -> dict[str, float]:
        _, finish = self.score(batch)
        return finish()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Compute the gains once: scoring and learning both need them."""
        rows = self._rows(self.reading(batch))
        if not self.trained:
            none = torch.zeros(len(batch), dtype=torch.float32, device=self.device)
            return none, lambda: self._learn(rows, None)
        gain = self._gain(rows)
        return gain / divisor(self._recent(gain)), lambda: self._learn(rows, gain)

    def _learn(self, rows: Tensor, gain: Tensor | None) -> dict[str, float]:
        """Train on [n, in + out] rows; `gain` [n] is None before the first training."""
        median = clipped = loss = nll = kl = 0.0
        if gain is not None:
            clipped = (gain >= self.config.max_gain).float().mean().item()
            self.medians = self._recent(gain)
            median = divisor(self.medians)
        self.replay.add(rows)
        if len(self.replay) >= self.config.min_replay:
            self._normalise_by_replay()
            nll, kl = self._train()
            loss = nll + kl / self.config.kl_batches
            self.noise.copy_(self._draw(1)[0])
            self.trained = True
        return {
            "vime/loss": loss,
            "vime/nll": nll,
            "vime/kl_prior": kl,
            "vime/median": median,
            "vime/clipped": clipped,
            "vime/replay": float(len(self.replay)),
        }

    def _draw(self, n: int) -> Tensor:
        """ε for n networks: [n, all units of all layers]."""
        shape, rng = (n, sum(self.sizes[1:])), self.descent.generator
        return torch.randn(shape, generator=rng, dtype=torch.float32)

    def _rows(self, batch: Transitions) -> Tensor:
        """(s, a, s') in one row, so that no row of the replay crosses an episode end."""

        def join(obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
            return torch.cat([self.flat(obs), self.actions(action), self.flat(next_obs)], 1)

        return in_pieces(join, self.device, batch.obs, batch.action, batch.next_obs)

    def _normalise_by_replay(self) -> None:
        """Normalise (s, a) by its moments over the replay; constant entries are not scaled."""
        moments = Moments.of(self.replay.rows[:, : self.sizes[0]])
        std = moments.variance.sqrt()
        constant = std <= 1e-6 * moments.mean.abs()
        self.mean.copy_(moments.mean)
        self.scale.copy_(std.masked_fill(constant, 1.0))

    def _normalised(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised inputs (s, a, 1), [n, in + 1], and s' normalised like s, [n, out]."""
        width = self.sizes[-1]
        x, y = rows.split([self.sizes[0], width], 1)
        x = pad((x - self.mean) / self.scale, (0, 1), value=1.0)
        return x, (y - self.mean[:width]) / self.scale[:width]

    def _gain(self, rows: Tensor) -> Tensor:
        """The clipped information gains [n] of transitions [n, in + out]."""
        config = self.config
        phi = self.phi.detach().double()
        mu = matrices(phi[0], self.sizes)
        variance = matrices(softplus(phi[1]).square(), self.sizes)
        noise = self.noise.double()[None].split(self.sizes[1:], 1)

        def gain(rows: Tensor) -> Tensor:
            # In float64, x⁴ is finite for any float32 observation.
            x, y = self._normalised(rows.double())
            _, layers = passes(mu, variance, noise, x, y, config.likelihood_sd**-2)
            return information_gain(layers, variance, config.step_size).clamp(max=config.max_gain)

        return in_pieces(gain, self.device, rows).float()

    def _recent(self, gain: Tensor) -> list[float]:
        """Medians of the last batches, including a batch with these gains."""
        return [*self.medians, gain.quantile(0.5).item()][-self.config.median_window :]

    @torch.no_grad()
    def _train(self) -> tuple[float, float]:
        """Train on the replay; return the mean negative log-likelihood and the final KL."""
        config, device = self.config, self.device
        rows = self.replay.draw(config.updates * config.minibatch, self.descent.generator)
        noise = self._draw(config.updates * config.samples).to(device)
        x, y = self._normalised(rows.to(device))
        parts = x.split(config.minibatch), y.split(config.minibatch), noise.split(config.samples)
        squares = []
        for part in zip(*parts, strict=True):
            self.phi.grad, error = loss_gradient(
                self.phi.detach(),
                self.sizes,
                *part,
                likelihood_sd=config.likelihood_sd,
                prior_sd=config.prior_sd,
                kl_weight=1 / config.kl_batches,
            )
            self.descent.update()
            squares.append(error)
        sd, entries = config.likelihood_sd, config.minibatch * self.sizes[-1]
        nll = torch.stack(squares).mean().item() / (2 * sd**2 * config.samples)
        nll += entries * (math.log(sd) + 0.5 * math.log(2 * math.pi))
        mu, rho = self.phi
        return nll, kl_to_prior(mu, softplus(rho), config.prior_sd).item()

    def get_extra_state(self) -> dict[str, Any]:
        return {"trained": self.trained, "medians": self.medians}

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        trained, medians = state[EXTRA]["trained"], state[EXTRA]["medians"]
        expect(isinstance(trained, bool), trained, f"{place}.trained", "true or false")
        most = self.config.median_window
        numbers = isinstance(medians, list) and len(medians) <= most
        numbers = numbers and all(type(m) is float and not m < 0 for m in medians)
        expect(numbers, medians, f"{place}.medians", f"at most {most} numbers of 0 or more")

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_stored({EXTRA: state}, "vime")
        self.trained, self.medians = state["trained"], list(state["medians"])
