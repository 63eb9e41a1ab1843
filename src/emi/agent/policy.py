"""Stochastic policies: a network gives the parameters of a distribution over actions.

A policy maps observations to one tensor of distribution parameters, `forward(obs) -> [n, P]`. The
other methods that TRPO needs are pure functions of such tensors. `fisher` multiplies a tangent by
the Fisher information F of the distribution in these parameters. With the network's Jacobian J, the
Hessian of the KL is JᵀFJ (Gauss–Newton).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from emi.agent.numpy_policy import in_numpy
from emi.agent.push_forward import push_forward
from emi.batch import Array
from emi.nets import Activation, linear, trunk
from emi.settings import PositiveFloat, PositiveInt
from emi.spaces import UnitRange, require_actions

MIN_LOG_STD = math.log(1e-6)  # lower bound in the authors' Gaussian policy


@dataclass(frozen=True)
class PolicyConfig:
    """Settings of the policy."""

    hidden: tuple[PositiveInt, ...] = (64, 32)
    """hidden layers for vector observations (paper, supplementary table 1)"""
    activation: Activation = "tanh"
    """activation of the hidden layers for vector observations"""
    init_std: PositiveFloat = 1.0
    """initial standard deviation of continuous actions, in units of half the action range"""


class GaussianPolicy(nn.Module):
    """Independent normals with a state-dependent mean and a state-independent standard deviation.

    Actions are sampled in units in which the action space is [−1, 1], and may lie outside. The
    environment receives them rescaled and clipped; the likelihood is that of the unclipped sample.
    Parameters are mean ⊕ log σ, [n, 2A].
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.spaces.Box,
        config: PolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.action_shape = action_space.shape
        self.size = math.prod(action_space.shape)
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, self.size, generator)
        self.log_std = nn.Parameter(torch.full((self.size,), math.log(config.init_std)))
        self._unit = UnitRange.of(action_space)
        self._low, self._high = action_space.low, action_space.high

    def forward(self, obs: Tensor) -> Tensor:
        return self._with_std(self.head(self.trunk(obs)))

    def _with_std(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.clamp(min=MIN_LOG_STD).expand_as(mean)], dim=1)

    def push_forward(self, obs: Tensor, change: Mapping[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """`forward`, and J v for a `change` v of the weights; [n, 2A] each."""
        mean, tangent = push_forward([*self.trunk, self.head], obs, change)
        std_tangent = change[self.log_std] * (self.log_std >= MIN_LOG_STD)
        return self._with_std(mean), torch.cat([tangent, std_tangent.expand_as(tangent)], dim=1)

    def actor(self, rng: np.random.Generator) -> Callable[[Array], Array]:
        """obs [n, ...] to sampled actions [n, *action]; valid until the weights change."""
        mean_of = in_numpy(self.trunk, self.head)
        std = np.exp(np.maximum(self.log_std.detach().cpu().numpy(), MIN_LOG_STD))

        def act(obs: Array) -> Array:
            mean = mean_of(obs)
            action = mean + std * rng.standard_normal(mean.shape, dtype=np.float32)
            return action.reshape(-1, *self.action_shape)

        return act

    def mode(self, obs: Array) -> Array:
        """The most likely action, [n, *action]."""
        return in_numpy(self.trunk, self.head)(obs).reshape(-1, *self.action_shape)

    def rescale(self, action: Array) -> Array:
        """From units of [−1, 1] to those of the environment, possibly outside its bounds."""
        return self._unit.centre + self._unit.half * action

    def to_env(self, action: Array) -> Array:
        """From units of [−1, 1] to those of the environment, clipped to its bounds."""
        rescaled = self.rescale(action)
        # Clip after rescaling, whose rounding can leave the space; np.clip takes twice as long.
        return np.minimum(np.maximum(rescaled, self._low), self._high)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """[n, 2A], [n, *action] to [n]."""
        mean, log_std = parameters.chunk(2, dim=1)
        z = (action.reshape(len(action), -1) - mean) * torch.exp(-log_std)
        return -0.5 * (z.square() + 2 * log_std + math.log(2 * math.pi)).sum(1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) per state, [n]."""
        old_mean, old_log_std = old.chunk(2, dim=1)
        new_mean, new_log_std = new.chunk(2, dim=1)
        scaled = (old_mean - new_mean).square() + torch.exp(2 * old_log_std)
        ratio = 0.5 * scaled * torch.exp(-2 * new_log_std)
        return (ratio - 0.5 + new_log_std - old_log_std).sum(1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Differential entropy per state, [n]."""
        _, log_std = parameters.chunk(2, dim=1)
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(1)

    def fisher(self, parameters: Tensor, tangent: Tensor) -> Tensor:
        """F = diag(1/σ², 2) in (mean, log σ); [n, 2A] to [n, 2A]."""
        _, log_std = parameters.chunk(2, dim=1)
        mean_tangent, log_std_tangent = tangent.chunk(2, dim=1)
        return torch.cat([mean_tangent * torch.exp(-2 * log_std), 2 * log_std_tangent], dim=1)


class CategoricalPolicy(nn.Module):
    """A softmax over `Discrete` actions. Parameters are logits, [n, A]."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.spaces.Discrete,
        config: PolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.start = int(action_space.start)
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, int(action_space.n), generator)

    def forward(self, obs: Tensor) -> Tensor:
        return self.head(self.trunk(obs))

    def push_forward(self, obs: Tensor, change: Mapping[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """`forward`, and J v for a `change` v of the weights; [n, A] each."""
        return push_forward([*self.trunk, self.head], obs, change)

    def actor(self, rng: np.random.Generator) -> Callable[[Array], Array]:
        """obs [n, ...] to sampled actions [n]; valid until the weights change."""
        logits_of = in_numpy(self.trunk, self.head)

        def act(obs: Array) -> Array:
            logits = logits_of(obs)
            # Gumbel-max: the argmax of logits plus Gumbel noise is a draw from their softmax.
            return np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)

        return act

    def mode(self, obs: Array) -> Array:
        """The most likely action, [n]."""
        return np.argmax(in_numpy(self.trunk, self.head)(obs), axis=1)

    def rescale(self, action: Array) -> Array:
        """The same as `to_env`: there is nothing to clip."""
        return self.to_env(action)

    def to_env(self, action: Array) -> Array:
        """From 0, 1, … to the values of the action space."""
        return action + self.start

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """[n, A], [n] to [n]."""
        return parameters.log_softmax(1).gather(1, action[:, None])[:, 0]

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) per state, [n]."""
        old_log, new_log = old.log_softmax(1), new.log_softmax(1)
        return (old_log.exp() * (old_log - new_log)).sum(1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy per state, [n]."""
        log = parameters.log_softmax(1)
        return -(log.exp() * log).sum(1)

    def fisher(self, parameters: Tensor, tangent: Tensor) -> Tensor:
        """F = diag(p) − ppᵀ in the logits; [n, A] to [n, A]."""
        p = parameters.softmax(1)
        return p * tangent - p * (p * tangent).sum(1, keepdim=True)


AnyPolicy = GaussianPolicy | CategoricalPolicy


def make_policy(
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    config: PolicyConfig,
    generator: torch.Generator,
) -> AnyPolicy:
    """The policy for these spaces; UserError if the action space is not supported."""
    actions = require_actions(action_space)
    if isinstance(actions, gymnasium.spaces.Discrete):
        return CategoricalPolicy(observation_space, actions, config, generator)
    return GaussianPolicy(observation_space, actions, config, generator)
