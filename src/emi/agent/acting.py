"""Acting in NumPy: a small network, and how its output becomes an action.

For ten environments, PyTorch's dispatcher costs more than the arithmetic of a small network.
Nothing here imports PyTorch, so that the worker processes of `emi.training.workers` start fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import gymnasium
import numpy as np

from emi.batch import Array
from emi.spaces import ActionGroups, ActionSpace, DiscreteSpace, UnitRange


class ActingLayer(NamedTuple):
    """One layer: "linear" with the next weight and bias, or an activation with its parameter."""

    kind: str
    parameter: float = 0.0  # α of "elu", the negative slope of "leaky_relu"


class ActingNetwork(NamedTuple):
    """A fully connected network: its layers, and the weights of the linear ones."""

    layers: Sequence[ActingLayer]
    weights: Sequence[Array]  # [out, in] and [out] of every linear layer, in order

    def function(self) -> Callable[[Array], Array]:
        """obs [n, ...] to outputs [n, outputs]."""
        weights = iter(self.weights)
        layers = [_layer(layer, weights) for layer in self.layers]

        def outputs(obs: Array) -> Array:
            x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
            for layer in layers:
                x = layer(x)
            return x

        return outputs


def _layer(layer: ActingLayer, weights: Iterator[Array]) -> Callable[[Array], Array]:
    """A function of one layer. Activations follow a linear layer, and overwrite its output."""
    parameter = layer.parameter
    match layer.kind:
        case "linear":
            transposed, bias = next(weights).T, next(weights)

            def affine(x: Array) -> Array:
                y = x.dot(transposed)  # less overhead than @
                y += bias
                return y

            return affine
        case "tanh":
            return lambda x: np.tanh(x, out=x)
        case "relu":
            return lambda x: np.maximum(0, x, out=x)
        case "elu":
            return lambda x: np.where(x > 0, x, parameter * np.expm1(np.minimum(x, 0)))
        case "leaky_relu":
            return lambda x: np.where(x > 0, x, parameter * x)
    raise ValueError(f"unknown layer {layer.kind!r}")


class BoxActions:
    """Actions of a `Box`, in units in which it is [−1, 1]; they may lie outside.

    The environment receives them rescaled and clipped.
    """

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self._unit = UnitRange.of(space)
        self._low, self._high = space.low, space.high
        self._is_unit = bool((self._unit.centre == 0).all() and (self._unit.half == 1).all())

    def chosen(self, mean: Array, noise: Array) -> Array:
        """Mean [n, A] plus noise [n, A], as [n, *action]."""
        action = mean + noise
        return action if len(self.shape) == 1 else action.reshape(-1, *self.shape)

    def rescale(self, action: Array) -> Array:
        """From units of [−1, 1] to those of the environment, possibly outside its bounds."""
        return action if self._is_unit else self._unit.centre + self._unit.half * action

    def to_env(self, action: Array) -> Array:
        """From units of [−1, 1] to those of the environment, clipped to its bounds."""
        # Clip after rescaling, whose rounding can leave the space; np.clip takes twice as long.
        return np.minimum(np.maximum(self.rescale(action), self._low), self._high)


class DiscreteActions:
    """Discrete actions as numbers 0, 1, … of the choices of each group, see `ActionGroups`.

    The environment receives the values of its action space, which may start at other numbers.
    """

    def __init__(self, space: DiscreteSpace) -> None:
        self.groups = ActionGroups.of(space)
        self.size = self.groups.size
        self._starts = np.array(self.groups.starts).reshape(self.groups.shape)

    def best(self, scores: Array) -> Array:
        """The choice with the highest score in each group; [n, A] to [n, *action]."""
        found = [np.argmax(part, axis=2) for part in self.groups.split(scores)]
        index = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return index.reshape(len(scores), *self.groups.shape)

    def chosen(self, logits: Array, noise: Array) -> Array:
        """[n, A], [n, A] to [n, *action]: with Gumbel noise, a draw from the groups' softmax."""
        return self.best(logits + noise)

    def rescale(self, action: Array) -> Array:
        """The same as `to_env`: there is nothing to clip."""
        return self.to_env(action)

    def to_env(self, action: Array) -> Array:
        """From 0, 1, … to the values of the action space, in its dtype."""
        return (action + self._starts).astype(self.groups.dtype, copy=False)


AnyActions = BoxActions | DiscreteActions


def actions_of(space: ActionSpace) -> AnyActions:
    if isinstance(space, gymnasium.spaces.Box):
        return BoxActions(space)
    return DiscreteActions(space)
