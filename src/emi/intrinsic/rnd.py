"""RND: reward observations for which a predictor does not yet match a fixed random network.

The target network is drawn once and never trained. A predictor is trained to match its output on
the observations seen so far; its error is large where few similar ones were seen. The target is
deterministic in the observation, so that noise in the dynamics gives no lasting bonus.

Burda, Edwards, Storkey, Klimov: Exploration by Random Network Distillation, ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Transitions, as_tensor, in_pieces, pieces
from emi.intrinsic.bonus_scale import BonusScale
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.distillation import dense_layers, write_gradient
from emi.intrinsic.moments import Moments, RunningMoments
from emi.intrinsic.reading import Reading
from emi.nets import Conv, Flat, Pixels, convolutions, linear, mlp, newest_entries
from emi.settings import Fraction, PositiveFloat, PositiveInt
from emi.stored_state import EXTRA


@dataclass(frozen=True)
class RNDConfig:
    """Settings of `emi.RND`."""

    features: PositiveInt = 512
    """outputs of both networks, and units of the predictor's two extra layers (authors' code)"""
    hidden: tuple[PositiveInt, ...] = (128, 128)
    """hidden layers instead of convolutions, for vectors (ours: the original has images only)"""
    discount: Fraction = 0.99
    """discount of the running sum of bonuses; the bonus is divided by the standard deviation of
    this sum (paper; authors' run_atari.py)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (paper; authors' run_atari.py)"""
    epochs: PositiveInt = 4
    """passes over each batch (paper; authors' run_atari.py)"""
    minibatches: PositiveInt = 4
    """minibatches per pass, one gradient step each (paper; authors' run_atari.py)"""


# 3×3×64 features of a frame of 52×52, 7×7×64 of the original's 84×84.
CONVOLUTIONS = (Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1))
CLIP = 5.0  # standard deviations (paper, authors' code)
MIN_STD = 1e-6  # a constant entry is whitened to 0; its first change gives ± CLIP
# Networks read this many rows at a time: their outputs fit into the cache and into memory that was
# used before. Larger ones come from the system, which clears every page at its first use.
BLOCK_ROWS = 512


def whiten(x: Tensor, moments: Moments | RunningMoments) -> Tensor:
    """clip((x − μ) / σ, ±5) per entry; [n, *entries] to [n, *entries]."""
    sigma = moments.variance.sqrt().clamp(min=MIN_STD)
    return (x - moments.mean.to(x.dtype)).div_(sigma.to(x.dtype)).clamp_(-CLIP, CLIP)


def distillation_error(predicted: Tensor, target: Tensor) -> Tensor:
    """‖f̂(s') − f(s')‖² / k, the mean over the k features; [n, k] each to [n]."""
    return (predicted - target).square().mean(1)


def encoder(
    entries: Pixels | Flat, shape: Sequence[int], hidden: Sequence[int], generator: torch.Generator
) -> tuple[list[nn.Module], int]:
    """The layers from whitened entries [n, *shape] to features [n, width]; also the width."""
    if isinstance(entries, Pixels):
        net, width = convolutions(entries, CONVOLUTIONS, "leaky_relu", generator, init="orthogonal")
        return list(net)[1:], width  # whitening comes between the pixels and the convolutions
    sizes = [*shape, *hidden]
    net = mlp(sizes, "leaky_relu", generator, activate_last=True, init="orthogonal")
    return list(net), sizes[-1]


class RND(IntrinsicReward):
    """The random target f, the predictor f̂, and the moments of observations and bonuses.

    Actions are not used. Scalars of `learn`: `rnd/loss` (the predictor's error before each gradient
    step, mean over the steps), `rnd/bonus_scale` (the divisor of the bonus of this batch) and
    `rnd/clipped` (share of whitened entries at ± 5, with the new moments).
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: RNDConfig = RNDConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        rng, k = torch.Generator().manual_seed(seed), config.features
        self.reading = Reading(observation_space)
        self.entries, shape = newest_entries(self.reading.space)
        layers, width = encoder(self.entries, shape, config.hidden, rng)
        self.target = nn.Sequential(*layers, linear(width, k, rng, init="orthogonal"))
        self.target.requires_grad_(False)
        layers, width = encoder(self.entries, shape, config.hidden, rng)
        top = mlp([width, k, k, k], "relu", rng, init="orthogonal")
        self.predictor = nn.Sequential(*layers, *top)

        self.observed = RunningMoments(shape)
        self.sums = RunningMoments()
        self._scale = BonusScale(self.sums, config.discount)
        self.descent = Descent(self.predictor.parameters(), config.learning_rate, rng)
        self._dense = dense_layers(list(self.predictor))

    def error(self, obs: Batched) -> Tensor:
        """The bonus before the division by its scale; [n, *observation] to [n].

        Before the first training, observations are whitened by the moments of `obs` itself.
        """
        moments: Moments | RunningMoments = self.observed
        if self.observed.count == 0:
            parts = (Moments.of(self.entries(part)) for (part,) in pieces(obs, device=self.device))
            moments = reduce(Moments.merge, parts)

        def of(part: Tensor) -> Tensor:
            blocks = whiten(self.entries(part), moments).split(BLOCK_ROWS)
            errors = [distillation_error(self.predictor(x), self.target(x)) for x in blocks]
            return torch.cat(errors)

        return in_pieces(of, self.device, obs)

    def reward(self, batch: Transitions) -> Tensor:
        """The error divided by the standard deviation of its running sums, with this batch."""
        batch = self.reading(batch)
        return self._scale.divide(self.error(batch.next_obs), batch.env_index)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Compute the error once: scoring and learning both need it."""
        batch = self.reading(batch)
        bonus, store = self._scale.divided(self.error(batch.next_obs), batch.env_index)

        def finish() -> dict[str, float]:
            store()
            return self.distill(batch)

        return bonus, finish

    @torch.enable_grad()
    def distill(self, batch: Transitions) -> dict[str, float]:
        """Update the moments of observations and train the predictor; `batch` is as read.

        As in the original, the bonus uses the old moments of observations, and the predictor is
        trained with the new ones.
        """
        for (part,) in pieces(batch.next_obs, device=self.device):
            self.observed.update(self.entries(part))

        config, clipped, losses = self.config, 0, []
        targets: list[Tensor] = []
        kept: list[Tensor] = []  # vectors are whitened once; images would need too much memory
        for (part,) in pieces(batch.next_obs, device=self.device):
            x = whiten(self.entries(part), self.observed)
            targets += [self.target(block) for block in x.split(BLOCK_ROWS)]
            clipped += int((x.abs() >= CLIP).sum())
            kept += [x] if isinstance(self.entries, Flat) else []
        target, whitened = torch.cat(targets), torch.cat(kept) if kept else None

        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=self.descent.generator)
            for chosen in order.tensor_split(min(config.minibatches, len(order))):
                rows = chosen.to(self.device)
                if whitened is None:
                    obs = as_tensor(batch.next_obs[chosen.numpy()], self.device)
                    x = whiten(self.entries(obs), self.observed)
                else:
                    x = whitened.index_select(0, rows)
                losses.append(self._step(x, target.index_select(0, rows)))
        return {
            "rnd/loss": torch.stack(losses).mean().item(),
            "rnd/bonus_scale": self._scale.value,
            "rnd/clipped": clipped / (len(batch) * self.observed.mean.numel()),
        }

    def _step(self, x: Tensor, target: Tensor) -> Tensor:
        """One gradient step on whitened entries [m, *entries] and targets [m, k]; the loss."""
        if self._dense is not None:
            loss = write_gradient(self._dense, x, target)
            self.descent.update()
            return loss
        loss = distillation_error(self.predictor(x), target).mean()
        self.descent.step(loss)
        return loss.detach()

    def get_extra_state(self) -> dict[str, Any]:
        return self._scale.stored()

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        self._scale.check_stored(state[EXTRA], place)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._scale.restore(state)
