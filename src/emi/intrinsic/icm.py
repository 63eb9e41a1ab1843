"""ICM: reward transitions that are hard to predict, in features that actions influence.

An inverse model predicts the action from (φ(s), φ(s')), which trains φ to represent what the agent
can affect. A forward model predicts φ(s') from φ(s) and the action; its error is the bonus.

Pathak, Agrawal, Efros, Darrell: Curiosity-driven Exploration by Self-supervised Prediction, ICML
2017. Equation numbers are of that paper; "authors" is its code, pathak22/noreward-rl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from emi.batch import Batched, Columns, Rows, Transitions, as_tensor, in_pieces, piece_rows
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.elu_convolutions import PART_ROWS, Workspace, convolve
from emi.intrinsic.reading import Reading
from emi.nets import Conv, Pixels, convolutions, mlp, newest_entries, trunk
from emi.settings import FractionOrZero, PositiveFloat, PositiveInt
from emi.spaces import ActionGroups

CONVOLUTIONS = (Conv(32, 3, 2, padding=1),) * 4  # φ of images (paper, section 3; authors' code)
UNITS = 256  # hidden units of f and of g, ReLU (paper, section 3; authors' code)
WINDOW_ROWS = 4_096  # transitions whose observations are embedded once in `reward`


@dataclass(frozen=True)
class ICMConfig:
    """Settings of `emi.ICM`."""

    beta: FractionOrZero = 0.2
    """β, weight of the forward loss against 1 − β of the inverse loss (paper, section 3)"""
    stop_gradient: bool = False
    """if True, the forward loss does not train φ (authors: False; Burda et al., 2019, Large-Scale
    Study of Curiosity-Driven Learning: True)"""
    hidden: tuple[PositiveInt, ...] = (64, 32)
    """all layers of φ for vectors, tanh (ours: as EMI's; the paper has images only)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (authors' code and Large-Scale Study; the paper says 1e-3)"""
    epochs: PositiveInt = 3
    """passes over each batch (Large-Scale Study; the original trains online, once per step)"""
    minibatch: PositiveInt = 512
    """minibatch size; an incomplete last minibatch is dropped (ours: as EMI's)"""


class Losses(NamedTuple):
    """The terms of equation 7 on one minibatch, unweighted, and the accuracy of g."""

    inverse: Tensor  # L_I, mean over the batch
    forward: Tensor  # L_F, mean over the batch
    accuracy: Tensor  # share of entries of actions that g ranks first; 0 for continuous actions


def features(
    space: gymnasium.Space, hidden: Sequence[int], rng: torch.Generator
) -> tuple[nn.Sequential, int]:
    """φ: [n, *observation] to [n, width]; also returns the width."""
    entries, _ = newest_entries(space)
    if isinstance(entries, Pixels):
        return convolutions(entries, CONVOLUTIONS, "elu", rng)
    return trunk(space, hidden, "tanh", rng)


def part(column: Batched, rows: slice) -> Batched:
    """Some rows of a column, not yet gathered."""
    return Rows(column.pool, column.index[rows]) if isinstance(column, Rows) else column[rows]


def forward_error(predicted: Tensor, phi_next: Tensor) -> Tensor:
    """½‖f(φ(s), a) − φ(s')‖², equations 5 and 6 without η; [n, d] each to [n]."""
    return (predicted - phi_next).square().sum(1) / 2


def squared_error(guess: Tensor, action: Tensor) -> Tensor:
    """‖g(φ(s), φ(s')) − a‖², L_I of a continuous action; [n, size] each to [n]."""
    return (guess - action).square().sum(1)


def surprisal(logits: Tensor, action: Tensor, groups: ActionGroups) -> Tensor:
    """−log p(a | φ(s), φ(s')), L_I of a discrete action; [n, size] and one-hot [n, size] to [n].

    The groups of the action are independent under g: −log p is the sum over them.
    """
    terms = [
        cross_entropy(guess.flatten(0, 1), taken.flatten(0, 1), reduction="none")
        for guess, taken in zip(groups.split(logits), groups.split(action), strict=True)
    ]
    return torch.cat([term.view(len(logits), -1) for term in terms], 1).sum(1)


def predicted(logits: Tensor, action: Tensor, groups: ActionGroups) -> Tensor:
    """Whether g ranks the choice of each group first; [n, size] each to booleans [n, groups]."""
    parts = zip(groups.split(logits), groups.split(action), strict=True)
    return torch.cat([guess.argmax(2) == taken.argmax(2) for guess, taken in parts], 1)


class ICM(IntrinsicReward):
    """The features φ, the inverse model g and the forward model f.

    Scalars of `learn`, means over its minibatches, each before its gradient step:
    `icm/loss_inverse` and `icm/loss_forward` (the terms of equation 7, unweighted) and, for
    discrete actions, `icm/inverse_accuracy` (share of actions that g predicts, of each entry if
    they have several). On the last minibatch, after training: `icm/feature_norm`, the mean norm of
    φ(s).
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: ICMConfig = ICMConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=normalize)
        self.phi, width = features(self.reading.space, config.hidden, rng)
        self.g = mlp([2 * width, UNITS, self.actions.size], "relu", rng)
        self.f = mlp([width + self.actions.size, UNITS, width], "relu", rng)
        self.descent = Descent(self.parameters(), config.learning_rate, rng)
        self._convolutions = [part for part in self.phi if isinstance(part, nn.Conv2d)]

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self._phi(self.reading.observations(obs))

    def _phi(self, obs: Batched) -> Tensor:
        """φ of observations as `reading` returns them."""
        return in_pieces(self._embed, self.device, obs)

    def _embed(self, obs: Tensor) -> Tensor:
        if not self._convolutions:
            return self.phi(obs)
        # Not `split`: a last part of one row would be computed by another kernel.
        parts = obs.tensor_split(max(1, -(-len(obs) // PART_ROWS)))
        return torch.cat([self.phi(rows) for rows in parts])

    def _embed_both(self, obs: Batched, next_obs: Batched) -> tuple[Tensor, Tensor]:
        """φ(s) and φ(s'), [n, d] each. An image that is in both is embedded once."""
        if not (self._convolutions and isinstance(obs, Rows) and isinstance(next_obs, Rows)):
            return self._phi(obs), self._phi(next_obs)
        if obs.pool is not next_obs.pool:
            return self._phi(obs), self._phi(next_obs)
        both = np.concatenate([obs.index, next_obs.index])
        index, places = np.unique(both, return_inverse=True)
        phi = self._phi(Rows(obs.pool, index))[torch.from_numpy(places)]
        return phi[: len(obs)], phi[len(obs) :]

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        batch = self.reading(batch)
        rows = piece_rows(batch.obs, batch.action, batch.next_obs)
        window, bonuses = max(1, WINDOW_ROWS // rows) * rows, []
        for start in range(0, len(batch), window):
            some = slice(start, start + window)
            phi, phi_next = self._embed_both(part(batch.obs, some), part(batch.next_obs, some))
            action = self.actions(as_tensor(batch.action[some], self.device))
            columns = (column.split(rows) for column in (phi, action, phi_next))
            for s, a, s_next in zip(*columns, strict=True):
                bonuses.append(forward_error(self.f(torch.cat([s, a], 1)), s_next))
        return torch.cat(bonuses)

    @torch.enable_grad()
    def learn(self, batch: Transitions) -> dict[str, float]:
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
            self.descent.step(self.objective(losses))
            history.append(torch.stack(losses).detach())
        inverse, forward, accuracy = torch.stack(history).mean(0).tolist()
        scalars = {
            "icm/loss_inverse": inverse,
            "icm/loss_forward": forward,
            "icm/feature_norm": self._phi(some.obs).norm(dim=1).mean().item(),
        }
        return scalars | ({"icm/inverse_accuracy": accuracy} if self.actions.groups else {})

    def losses(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, space: Workspace | None = None
    ) -> Losses:
        """The terms of the loss on one minibatch; `action` is the output of `ActionVectors`.

        With `space`, convolutions use its memory, and the gradient must be computed before the
        next call.
        """
        both = torch.cat([obs, next_obs])
        if self._convolutions and space is not None:
            pixels, flat = self.phi[0], self.phi[-1]
            both = flat(convolve(self._convolutions, pixels(both), space))
        else:
            both = self.phi(both)
        phi, phi_next = both.split(len(obs))

        guess = self.g(torch.cat([phi, phi_next], 1))
        groups = self.actions.groups
        if groups is not None:
            inverse = surprisal(guess, action, groups)
            accuracy = predicted(guess, action, groups).float().mean()
        else:
            inverse = squared_error(guess, action)
            accuracy = guess.new_zeros(())

        if self.config.stop_gradient:
            phi, phi_next = phi.detach(), phi_next.detach()
        forward = forward_error(self.f(torch.cat([phi, action], 1)), phi_next)
        return Losses(inverse.mean(), forward.mean(), accuracy)

    def objective(self, losses: Losses) -> Tensor:
        """(1 − β) L_I + β L_F, equation 7 without the policy's term.

        The authors' factor of 10 on both terms is omitted: Adam's steps do not depend on it.
        """
        beta = self.config.beta
        return (1 - beta) * losses.inverse + beta * losses.forward
