"""RIDE: reward actions that change the state, less so for states visited before in the episode.

The change is measured in features φ that an inverse and a forward model train: they represent what
the agent affects and can predict. Unlike a prediction error, the bonus does not vanish when the
environment becomes familiar.

Raileanu, Rocktäschel: RIDE: Rewarding Impact-Driven Exploration for Procedurally-Generated
Environments, ICLR 2020. "Authors" is their code, facebookresearch/impact-driven-exploration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Columns, Transitions, as_tensor, in_pieces, of_both
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.descent import Descent
from emi.intrinsic.episodes import Memory
from emi.intrinsic.gradients.elu_convolutions import PART_ROWS, Workspace, convolve
from emi.intrinsic.icm import UNITS, features, squared_error, surprisal
from emi.intrinsic.reading import Reading
from emi.intrinsic.visits import VisitCounts
from emi.nets import mlp
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class RIDEConfig:
    """Settings of `emi.RIDE`."""

    forward_weight: NotNegativeFloat = 10.0
    """weight of the forward loss (authors' arguments.py)"""
    inverse_weight: NotNegativeFloat = 0.1
    """weight of the inverse loss (authors' arguments.py)"""
    cell: PositiveFloat = 0.25
    """floats are the same state in a cell of so many standard deviations (ours: the original counts
    images and grids of integers)"""
    steps: PositiveInt = 5_000
    """steps of an episode whose states are remembered (ours: the original has no limit)"""
    hidden: tuple[PositiveInt, ...] = (64, 32)
    """all layers of φ for vectors, tanh (ours: as ICM's; the original has images only)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (authors' arguments.py, for RMSProp)"""
    epochs: PositiveInt = 3
    """passes over each batch (ours: as ICM's; the original passes once)"""
    minibatch: PositiveInt = 512
    """minibatch size; an incomplete last minibatch is dropped (ours: as ICM's)"""


class Losses(NamedTuple):
    """The terms of the loss on one minibatch, unweighted means."""

    inverse: Tensor
    forward: Tensor


def impact(phi: Tensor, phi_next: Tensor) -> Tensor:
    """‖φ(s') − φ(s)‖₂; [n, d] each to [n]."""
    return (phi_next - phi).norm(dim=1)


class RIDE(IntrinsicReward):
    """The features φ, the inverse model g, the forward model f, and episodic visit counts.

    Scalars of `learn`, means over its minibatches, each before its gradient step:
    `ride/loss_inverse` and `ride/loss_forward`, unweighted. On the batch, before training:
    `ride/impact` (mean of ‖φ(s') − φ(s)‖) and `ride/visits` (mean of N_ep(s')).
    """

    episodic = True

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: RIDEConfig = RIDEConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=normalize)
        # What is counted must not be normalised: VisitCounts has its own moments.
        self.counting = Reading(observation_space)
        self.phi, width = features(self.reading.space, config.hidden, rng)
        self.g = mlp([2 * width, UNITS, self.actions.size], "relu", rng)
        self.f = mlp([width + self.actions.size, UNITS, width], "relu", rng)
        self.descent = Descent(self.parameters(), config.learning_rate, rng)
        self.visits = VisitCounts(
            observation_space, self.counting.space, cell=config.cell, steps=config.steps
        )
        self._convolutions = [part for part in self.phi if isinstance(part, nn.Conv2d)]

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self._phi(self.reading.observations(obs))

    def _phi(self, obs: Batched) -> Tensor:
        """φ of observations as `reading` returns them."""
        return in_pieces(self._embed, self.device, obs)

    def _embed(self, obs: Tensor) -> Tensor:
        # Not `split`: a last part of one row would be computed by another kernel.
        parts = obs.tensor_split(max(1, -(-len(obs) // PART_ROWS)) if self._convolutions else 1)
        return torch.cat([self.phi(rows) for rows in parts])

    def reward(self, batch: Transitions) -> Tensor:
        return self._score(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Count the visits once: scoring and the memory both need them."""
        bonus, rows, change, counts = self._visited(batch, None)

        def finish() -> dict[str, float]:
            self.visits.learn(self.counting(batch), rows)
            losses = self._learn(batch)
            return {
                "ride/loss_inverse": losses.inverse.item(),
                "ride/loss_forward": losses.forward.item(),
                "ride/impact": change.mean().item(),
                "ride/visits": counts.float().mean().item(),
            }

        return bonus, finish

    def scorer(self) -> Scorer:
        return self.visits.memory.scorer(self._score)

    def forget(self, envs: Sequence[int]) -> None:
        self.visits.memory.forget(envs)

    def _score(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        return self._visited(batch, before)[:2]

    @torch.no_grad()
    def _visited(
        self, batch: Transitions, before: Memory | None
    ) -> tuple[Tensor, Memory, Tensor, Tensor]:
        """The bonuses, the memory after the batch, ‖φ(s') − φ(s)‖ and N_ep(s')."""
        counts, rows = self.visits.count(self.counting(batch), before)
        read = self.reading(batch)
        change = impact(*of_both(self._phi, read.obs, read.next_obs))
        return change / counts.to(change.dtype).sqrt(), rows, change, counts

    @torch.enable_grad()
    def _learn(self, batch: Transitions) -> Losses:
        """Train φ, f and g; the means of both losses."""
        batch = self.reading.learn(batch)
        config, history, space = self.config, [], Workspace()
        for rows in self.descent.minibatches(len(batch), config.minibatch, config.epochs):
            some = batch[rows]
            losses = self.losses(
                as_tensor(some.obs, self.device),
                self.actions(as_tensor(some.action, self.device)),
                as_tensor(some.next_obs, self.device),
                space,
            )
            self.descent.step(
                config.forward_weight * losses.forward + config.inverse_weight * losses.inverse
            )
            history.append(torch.stack(losses).detach())
        return Losses(*torch.stack(history).mean(0))

    def losses(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, space: Workspace | None = None
    ) -> Losses:
        """The terms of the loss on one minibatch; `action` is the output of `ActionVectors`.

        The inverse loss is ICM's, the forward loss ‖f(φ(s), a) − φ(s')‖₂, whose gradient also
        trains φ. With `space`, convolutions use its memory, and the gradient must be computed
        before the next call.
        """
        both = torch.cat([obs, next_obs])
        if self._convolutions and space is not None:
            both = self.phi[-1](convolve(self._convolutions, self.phi[0](both), space))
        else:
            both = self.phi(both)
        phi, phi_next = both.split(len(obs))
        guess = self.g(torch.cat([phi, phi_next], 1))
        groups = self.actions.groups
        if groups is None:
            inverse = squared_error(guess, action)
        else:
            inverse = surprisal(guess, action, groups)
        forward = impact(self.f(torch.cat([phi, action], 1)), phi_next)
        return Losses(inverse.mean(), forward.mean())
