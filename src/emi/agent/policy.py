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

from emi.agent.acting import BoxActions, DiscreteActions
from emi.agent.numpy_policy import in_numpy
from emi.agent.push_forward import push_forward
from emi.batch import Array
from emi.nets import Activation, linear, trunk
from emi.settings import PositiveFloat, PositiveInt
from emi.spaces import require_actions

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

    Actions are sampled in units in which the action space is [−1, 1], see `BoxActions`. The
    likelihood is that of the unclipped sample. Parameters are mean ⊕ log σ, [n, 2A].
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.spaces.Box,
        config: PolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actions = BoxActions(action_space)
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, self.actions.size, generator)
        self.log_std = nn.Parameter(torch.full((self.actions.size,), math.log(config.init_std)))

    def forward(self, obs: Tensor) -> Tensor:
        return self._with_std(self.head(self.trunk(obs)))

    def _with_std(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.clamp(min=MIN_LOG_STD).expand_as(mean)], dim=1)

    def push_forward(self, obs: Tensor, change: Mapping[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """`forward`, and J v for a `change` v of the weights; [n, 2A] each."""
        mean, tangent = push_forward([*self.trunk, self.head], obs, change)
        std_tangent = change[self.log_std] * (self.log_std >= MIN_LOG_STD)
        return self._with_std(mean), torch.cat([tangent, std_tangent.expand_as(tangent)], dim=1)

    def outputs(self) -> Callable[[Array], Array]:
        """obs [n, ...] to means [n, A], in NumPy; valid until the weights change."""
        return in_numpy(self.trunk, self.head)

    def noise(self, rng: np.random.Generator, *rows: int) -> Array:
        """What is added to the means to sample actions, [*rows, A]."""
        std = np.exp(np.maximum(self.log_std.detach().cpu().numpy(), MIN_LOG_STD))
        return std * rng.standard_normal((*rows, self.actions.size), dtype=np.float32)

    def mode(self, obs: Array) -> Array:
        """The most likely action, [n, *action]."""
        mean = self.outputs()(obs)
        return mean.reshape(-1, *self.actions.shape)

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
        self.actions = DiscreteActions(action_space)
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, self.actions.size, generator)

    def forward(self, obs: Tensor) -> Tensor:
        return self.head(self.trunk(obs))

    def push_forward(self, obs: Tensor, change: Mapping[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """`forward`, and J v for a `change` v of the weights; [n, A] each."""
        return push_forward([*self.trunk, self.head], obs, change)

    def outputs(self) -> Callable[[Array], Array]:
        """obs [n, ...] to logits [n, A], in NumPy; valid until the weights change."""
        return in_numpy(self.trunk, self.head)

    def noise(self, rng: np.random.Generator, *rows: int) -> Array:
        """What is added to the logits before the argmax to sample actions, [*rows, A].

        Gumbel-max: the argmax of logits plus Gumbel noise is a draw from their softmax.
        """
        return rng.gumbel(size=(*rows, self.actions.size))

    def mode(self, obs: Array) -> Array:
        """The most likely action, [n]."""
        return np.argmax(self.outputs()(obs), axis=1)

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


def actor(policy: AnyPolicy, rng: np.random.Generator) -> Callable[[Array], Array]:
    """obs [n, ...] to sampled actions [n, *action]; valid until the weights change."""
    outputs = policy.outputs()
    return lambda obs: policy.actions.chosen(outputs(obs), policy.noise(rng, len(obs)))


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
