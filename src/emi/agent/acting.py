"""Acting in NumPy: a small network, and how its output becomes an action.

For ten environments, PyTorch's dispatcher costs more than the arithmetic of a small network.
Nothing here imports PyTorch, so that the worker processes of `emi.agent.workers` start fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import gymnasium
import numpy as np

from emi.batch import Array
from emi.spaces import UnitRange


class Layer(NamedTuple):
    """One layer: "linear" with the next weight and bias, or an activation with its parameter."""

    kind: str
    parameter: float = 0.0  # α of "elu", the negative slope of "leaky_relu"


class Network(NamedTuple):
    """A fully connected network; called with obs [n, ...], it returns its outputs [n, outputs]."""

    layers: Sequence[Layer]
    weights: Sequence[Array]  # [out, in] and [out] of every linear layer, in order

    def __call__(self, obs: Array) -> Array:
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        weights = iter(self.weights)
        for kind, parameter in self.layers:
            match kind:
                case "linear":
                    x = x @ next(weights).T
                    x += next(weights)
                case "tanh":
                    np.tanh(x, out=x)
                case "relu":
                    np.maximum(0, x, out=x)
                case "elu":
                    x = np.where(x > 0, x, parameter * np.expm1(np.minimum(x, 0)))
                case "leaky_relu":
                    x = np.where(x > 0, x, parameter * x)
                case _:
                    raise ValueError(f"unknown layer {kind!r}")
        return x


class BoxActions:
    """Actions of a `Box`, in units in which it is [−1, 1]; they may lie outside.

    The environment receives them rescaled and clipped.
    """

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self._unit = UnitRange.of(space)
        self._low, self._high = space.low, space.high

    def chosen(self, mean: Array, noise: Array) -> Array:
        """Mean [n, A] plus noise [n, A], as [n, *action]."""
        return (mean + noise).reshape(-1, *self.shape)

    def to_env(self, action: Array) -> Array:
        """From units of [−1, 1] to those of the environment, clipped to its bounds."""
        rescaled = self._unit.centre + self._unit.half * action
        # Clip after rescaling, whose rounding can leave the space; np.clip takes twice as long.
        return np.minimum(np.maximum(rescaled, self._low), self._high)


class DiscreteActions:
    """Actions 0, 1, … of a `Discrete` space, which may start at another number."""

    def __init__(self, space: gymnasium.spaces.Discrete) -> None:
        self.size = int(space.n)
        self._start = int(space.start)

    def chosen(self, logits: Array, noise: Array) -> Array:
        """[n, A], [n, A] to [n]: with Gumbel noise, a draw from the softmax of the logits."""
        return np.argmax(logits + noise, axis=1)

    def to_env(self, action: Array) -> Array:
        """From 0, 1, … to the values of the action space."""
        return action + self._start


AnyActions = BoxActions | DiscreteActions


def actions_of(space: gymnasium.spaces.Box | gymnasium.spaces.Discrete) -> AnyActions:
    if isinstance(space, gymnasium.spaces.Discrete):
        return DiscreteActions(space)
    return BoxActions(space)
