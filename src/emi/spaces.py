"""Checks and properties of Gymnasium spaces and vector environments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.errors import UserError

if TYPE_CHECKING:  # worker processes do not import PyTorch
    from torch import Tensor

    Columns = TypeVar("Columns", npt.NDArray[Any], Tensor)

DiscreteSpace: TypeAlias = Discrete | MultiDiscrete | MultiBinary
ActionSpace: TypeAlias = Box | DiscreteSpace


def require_box(space: gymnasium.Space) -> gymnasium.spaces.Box:
    """Return the observation space if the networks can read it; UserError otherwise."""
    if not isinstance(space, gymnasium.spaces.Box):
        raise UserError(f"observations must be a Box (vectors, or uint8 images), got {space}")
    return space


def require_vectors(space: gymnasium.Space, reader: str) -> gymnasium.spaces.Box:
    """Return the observation space if it holds vectors; UserError names `reader` otherwise."""
    if not isinstance(space, gymnasium.spaces.Box) or is_image(space):
        raise UserError(f"{reader} needs vectors: a Box that is not an image, got {space}")
    return space


def require_actions(space: gymnasium.Space) -> ActionSpace:
    """Return the action space if it is supported; UserError otherwise."""
    if not isinstance(space, ActionSpace):
        raise UserError(
            f"actions must be a Box, Discrete, MultiDiscrete or MultiBinary space, got {space}"
        )
    return space


def is_image(space: gymnasium.Space) -> bool:
    """An image is a uint8 `Box` with two axes, or with three of which one is the channels'."""
    return (
        isinstance(space, gymnasium.spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
    )


class Block(NamedTuple):
    """Neighbouring groups of the same size, which are computed at once."""

    entries: slice  # of the flattened action
    columns: slice  # of the concatenated choices
    groups: int  # their number
    size: int  # choices of each group


@dataclass(frozen=True)
class ActionGroups:
    """A discrete action as independent groups of choices, one group for each of its entries.

    Entry k of the flattened action is one of `sizes[k]` integers from `starts[k]`. `Discrete(n)`
    is one group of n, `MultiDiscrete` a group for each entry of `nvec`, and `MultiBinary` a group
    of two for each bit. What belongs to the choices, logits or one-hot vectors, is concatenated
    over the groups: [n, `size`].
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...]  # of the action
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, space: DiscreteSpace) -> ActionGroups:
        shape = space.shape or ()
        match space:
            case Discrete():
                sizes, starts = [int(space.n)], [int(space.start)]
            case MultiDiscrete():
                sizes, starts = (np.ravel(a).tolist() for a in (space.nvec, space.start))
            case MultiBinary():
                sizes, starts = [2] * math.prod(shape), [0] * math.prod(shape)
        return cls(tuple(sizes), tuple(starts), shape, np.dtype(space.dtype))

    @property
    def size(self) -> int:
        """The number of choices of all groups together."""
        return sum(self.sizes)

    @cached_property
    def blocks(self) -> Sequence[Block]:
        return tuple(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        entry = column = 0
        for size, group in groupby(self.sizes):
            count = len(list(group))
            entries, columns = entry + count, column + count * size
            yield Block(slice(entry, entries), slice(column, columns), count, size)
            entry, column = entries, columns

    def split(self, x: Columns) -> list[Columns]:
        """[n, `size`] to [n, groups, choices], for each block of groups of the same size."""
        return [x[:, b.columns].reshape(len(x), b.groups, b.size) for b in self.blocks]


class UnitRange(NamedTuple):
    """How a `Box` maps to [−1, 1]: value = centre + half · unit.

    Entries without bounds are not scaled, nor are entries whose bounds differ by more than the
    largest float32. An entry with a single possible value has half = 0. Each array is [*shape];
    `limit` is 1 for entries with bounds and infinite for the others.
    """

    centre: npt.NDArray[np.float32]
    half: npt.NDArray[np.float32]
    limit: npt.NDArray[np.float32]

    @classmethod
    def of(cls, space: gymnasium.spaces.Box) -> UnitRange:
        with np.errstate(over="ignore"):
            width = space.high.astype(np.float64) - space.low.astype(np.float64)
        bounded = width < np.finfo(np.float32).max
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        centre, half, limit = (high + low) / 2, (high - low) / 2, np.where(bounded, 1.0, np.inf)
        return cls(*(x.astype(np.float32) for x in (centre, half, limit)))


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """The autoreset mode that `envs` declares. There is no default: a wrong one is not noticed."""
    mode = envs.metadata.get("autoreset_mode")
    if mode is None:
        raise UserError(
            "the vector environment does not declare its autoreset mode: set "
            'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode'
        )
    return AutoresetMode(mode)
