"""Inverse-dynamics features: φ such that (φ(s), φ(s')) predicts the action.

What the agent cannot affect does not help to predict its action and need not be represented. The
features are those of ICM, followed by one linear layer; episodic methods measure novelty in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Columns, Transitions, as_tensor, in_pieces
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.elu_convolutions import PART_ROWS, Workspace, convolve
from emi.intrinsic.icm import UNITS, features, predicted, squared_error, surprisal
from emi.intrinsic.reading import Reading
from emi.nets import linear, mlp


class InverseDynamics(nn.Module):
    """The features φ, the inverse model g, and their training.

    φ reads vectors through the layers `hidden` (tanh), images through the convolutions of ICM; the
    last layer is linear, with `width` outputs.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        rng: torch.Generator,
        *,
        width: int,
        hidden: Sequence[int],
        learning_rate: float,
        epochs: int,
        minibatch: int,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=normalize)
        self.body, inner = features(self.reading.space, hidden, rng)
        self.top = linear(inner, width, rng)
        self.g = mlp([2 * width, UNITS, self.actions.size], "relu", rng)
        self.descent = Descent(self.parameters(), learning_rate, rng)
        self.epochs, self.minibatch = epochs, minibatch
        self._convolutions = [part for part in self.body if isinstance(part, nn.Conv2d)]

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, width]."""
        return self.embed_read(self.reading.observations(obs))

    def embed_read(self, obs: Batched) -> Tensor:
        """φ of observations as `reading` returns them."""
        return in_pieces(self._embed, self.top.weight.device, obs)

    def _embed(self, obs: Tensor) -> Tensor:
        if not self._convolutions:
            return self.top(self.body(obs))
        # Not `split`: a last part of one row would be computed by another kernel.
        parts = obs.tensor_split(max(1, -(-len(obs) // PART_ROWS)))
        return self.top(torch.cat([self.body(rows) for rows in parts]))

    def loss(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, space: Workspace | None = None
    ) -> tuple[Tensor, Tensor]:
        """L_I of ICM, the mean over a minibatch, and the accuracy of g.

        `action` is the output of `ActionVectors`. The accuracy is the share of entries of actions
        that g ranks first; 0 for continuous actions. With `space`, convolutions use its memory, and
        the gradient must be computed before the next call.
        """
        both = torch.cat([obs, next_obs])
        if self._convolutions and space is not None:
            inner = self.body[-1](convolve(self._convolutions, self.body[0](both), space))
        else:
            inner = self.body(both)
        guess = self.g(torch.cat(self.top(inner).split(len(obs)), 1))
        groups = self.actions.groups
        if groups is None:
            return squared_error(guess, action).mean(), guess.new_zeros(())
        accuracy = predicted(guess, action, groups).float().mean()
        return surprisal(guess, action, groups).mean(), accuracy

    @torch.enable_grad()
    def learn(self, batch: Transitions) -> dict[str, float]:
        """Train φ and g on a batch.

        Returns means over the minibatches, each before its gradient step: `loss_inverse` and, for
        discrete actions, `inverse_accuracy`.
        """
        batch, device = self.reading.learn(batch), self.top.weight.device
        history, space = [], Workspace()
        for rows in self.descent.minibatches(len(batch), self.minibatch, self.epochs):
            some = batch[rows]
            obs, action, next_obs = (
                as_tensor(column, device) for column in (some.obs, some.action, some.next_obs)
            )
            loss, accuracy = self.loss(obs, self.actions(action), next_obs, space)
            self.descent.step(loss)
            history.append(torch.stack([loss, accuracy]).detach())
        inverse, accuracy = torch.stack(history).mean(0).tolist()
        scalars = {"loss_inverse": inverse}
        return scalars | ({"inverse_accuracy": accuracy} if self.actions.groups else {})
