"""Stochastic policies: a network gives the parameters of a distribution over actions.

A policy maps observations to one tensor of distribution parameters, `forward(obs) -> [n, P]`. The
other methods that TRPO needs are pure functions of such tensors. `fisher` returns the Fisher
information F of the distribution in these parameters, as a function that multiplies a tangent by
it. `linearise` returns the Jacobian J of the parameters in the weights. The Hessian of the KL is
JᵀFJ (Gauss–Newton).
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
from emi.agent.linearised import Linearised, LinearisedImages
from emi.agent.numpy_policy import in_numpy
from emi.batch import Array
from emi.bfloat16 import Arithmetic, Reader, reader
from emi.nets import Activation, linear, trunk
from emi.settings import PositiveFloat, PositiveInt
from emi.spaces import DiscreteSpace, require_actions

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
    arithmetic: Arithmetic = "float32"
    """of the convolutions while the policy is updated, on images (ours; see docs/deviations.md)"""


LinearisedOutputs = Linearised | LinearisedImages


def through(trunk: nn.Sequential, head: nn.Linear, reader: Reader, obs: Tensor) -> Tensor:
    """head(trunk(obs)) with the reader's arithmetic."""
    found: Tensor = head(reader.features(trunk[1:], reader.read(obs)))
    return found


def linearised(
    trunk: nn.Sequential,
    head: nn.Linear,
    reader: Reader,
    obs: Tensor,
    *,
    part_of_rows: bool = False,
) -> LinearisedOutputs:
    """`through` and its Jacobian in the weights."""
    if reader.arithmetic == "bfloat16":
        return LinearisedImages(trunk, head, reader.read(obs))
    return Linearised([*trunk, head], obs, part_of_rows=part_of_rows)


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
        self.reader = reader(self.trunk[0], config.arithmetic)
        self.log_std = nn.Parameter(torch.full((self.actions.size,), math.log(config.init_std)))

    def forward(self, obs: Tensor) -> Tensor:
        return self.with_std(through(self.trunk, self.head, self.reader, obs))

    def with_std(self, mean: Tensor) -> Tensor:
        """mean [n, A] to parameters [n, 2A]."""
        return torch.cat([mean, self.log_std.clamp(min=MIN_LOG_STD).expand_as(mean)], dim=1)

    def linearise(self, obs: Tensor) -> LinearisedGaussian:
        """`forward` and its Jacobian in the weights."""
        return LinearisedGaussian(self, obs)

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

    def fisher(self, parameters: Tensor) -> Callable[[Tensor], Tensor]:
        """F = diag(1/σ², 2) in (mean, log σ), a function of a tangent; [n, 2A] to [n, 2A]."""
        _, log_std = parameters.chunk(2, dim=1)
        diagonal = torch.cat([torch.exp(-2 * log_std), torch.full_like(log_std, 2.0)], dim=1)
        return diagonal.mul


class LinearisedGaussian:
    """As `Linearised`, with log σ, a column of the parameters that is the same in every row."""

    def __init__(self, policy: GaussianPolicy, obs: Tensor) -> None:
        self._mean = linearised(policy.trunk, policy.head, policy.reader, obs, part_of_rows=True)
        self._log_std = policy.log_std
        with torch.no_grad():
            self._free = policy.log_std >= MIN_LOG_STD
            self.out = policy.with_std(self._mean.out)

    @property
    def bytes(self) -> int:
        return self._mean.bytes + self.out.nbytes

    @torch.no_grad()
    def push_forward(self, change: Mapping[Tensor, Tensor]) -> Tensor:
        """J v, [n, 2A]."""
        tangent = self._mean.push_forward(change)
        std_tangent = change[self._log_std] * self._free
        return torch.cat([tangent, std_tangent.expand_as(tangent)], dim=1)

    @torch.no_grad()
    def pull_back(self, u: Tensor) -> list[Tensor]:
        """Jᵀ u for u [n, 2A]: a tensor per parameter, in the order of `parameters()`."""
        u_mean, u_std = u.chunk(2, dim=1)
        return [u_std.sum(0) * self._free, *self._mean.pull_back(u_mean)]


class CategoricalPolicy(nn.Module):
    """Discrete actions: an independent softmax over the choices of each group of the action.

    `ActionGroups` defines the groups. Parameters are their logits, concatenated, [n, A].
    """

    _first: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: DiscreteSpace,
        config: PolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actions = DiscreteActions(action_space)
        first = np.cumsum([0, *self.actions.groups.sizes[:-1]])
        # The column of the first choice of each group; not state, but it moves with the weights.
        self.register_buffer("_first", torch.from_numpy(first), persistent=False)
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, self.actions.size, generator)
        self.reader = reader(self.trunk[0], config.arithmetic)

    def forward(self, obs: Tensor) -> Tensor:
        return through(self.trunk, self.head, self.reader, obs)

    def linearise(self, obs: Tensor) -> LinearisedOutputs:
        """`forward` and its Jacobian in the weights."""
        return linearised(self.trunk, self.head, self.reader, obs)

    def outputs(self) -> Callable[[Array], Array]:
        """obs [n, ...] to logits [n, A], in NumPy; valid until the weights change."""
        return in_numpy(self.trunk, self.head)

    def noise(self, rng: np.random.Generator, *rows: int) -> Array:
        """What is added to the logits before the argmax to sample actions, [*rows, A].

        Gumbel-max: the argmax of logits plus Gumbel noise is a draw from their softmax.
        """
        return rng.gumbel(size=(*rows, self.actions.size))

    def mode(self, obs: Array) -> Array:
        """The most likely action, [n, *action]."""
        return self.actions.best(self.outputs()(obs))

    def _per_group(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A function of [n, groups, choices] for [n, A]; the result is [n, A] again."""
        parts = [function(part).flatten(1) for part in self.actions.groups.split(x)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _log_softmax(self, parameters: Tensor) -> Tensor:
        """The log-probability of every choice, [n, A] to [n, A]."""
        return self._per_group(lambda logits: logits.log_softmax(2), parameters)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """[n, A], [n, *action] to [n]: the sum over groups."""
        columns = action.reshape(len(action), -1) + self._first
        return self._log_softmax(parameters).gather(1, columns).sum(1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) per state, [n]: the sum over groups."""
        old_log, new_log = self._log_softmax(old), self._log_softmax(new)
        return (old_log.exp() * (old_log - new_log)).sum(1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy per state, [n]: the sum over groups."""
        log = self._log_softmax(parameters)
        return -(log.exp() * log).sum(1)

    def fisher(self, parameters: Tensor) -> Callable[[Tensor], Tensor]:
        """A function of a tangent, [n, A] to [n, A]: F in the logits.

        F is block-diagonal, with diag(p) − ppᵀ for each group.
        """
        p = self._per_group(lambda logits: logits.softmax(2), parameters)

        def multiply(tangent: Tensor) -> Tensor:
            weighted = p * tangent
            total = self._per_group(lambda w: w.sum(2, keepdim=True).expand_as(w), weighted)
            return weighted - p * total

        return multiply


AnyPolicy = GaussianPolicy | CategoricalPolicy
Jacobian = LinearisedGaussian | LinearisedOutputs


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
    if isinstance(actions, gymnasium.spaces.Box):
        return GaussianPolicy(observation_space, actions, config, generator)
    return CategoricalPolicy(observation_space, actions, config, generator)
