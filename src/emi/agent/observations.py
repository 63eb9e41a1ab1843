"""Storage of the observations of a rollout: rows of an array, or each frame of stacks once."""

from typing import Protocol

import gymnasium
import numpy as np

from emi.batch import Array, IntArray, Stacks
from emi.images import is_image


class Keeper(Protocol):
    """Stores observations row by row; `pool` returns them."""

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        """Store [m, *observation] as `rows` [m], the successors of the rows `before` [m].

        `rows` are in ascending order.
        """

    def pool(self) -> Array | Stacks:
        """All observations, [rows, *observation]."""


def make_keeper(space: gymnasium.Space, rows: int) -> Keeper:
    """A keeper for about `rows` observations of `space`; it grows if there are more."""
    shape = space.shape or ()
    if space.dtype == np.uint8 and is_image(space) and len(shape) == 3 and 1 < shape[0] <= shape[2]:
        return StackKeeper(shape, rows)
    return ArrayKeeper(shape, np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32), rows)


class ArrayKeeper:
    """Stores every observation as a row of one array."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> None:
        self._rows = np.empty((rows, *shape), dtype)
        self._size = 0

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        self._size = max(self._size, int(rows[-1]) + 1)
        self._rows = _resized(self._rows, self._size)
        self._rows[rows] = obs

    def pool(self) -> Array:
        return self._rows[: self._size]


class StackKeeper:
    """Stores each frame of stacks [k, H, W] once.

    A stack that continues the one before shares all frames but the newest, and only the newest is
    stored; otherwise all k are. The pixels are compared, so that nothing is assumed about the
    environment and exactly the given observations are returned.
    """

    def __init__(self, shape: tuple[int, ...], rows: int) -> None:
        self._index = np.zeros((rows, shape[0]), np.int64)
        self._frames = np.empty((rows, *shape[1:]), np.uint8)
        self._size = self._count = 0

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        self._size = max(self._size, int(rows[-1]) + 1)
        self._index = _resized(self._index, self._size)
        continues = np.zeros(len(rows), bool)
        if before is not None:
            shared = self._index[before, 1:]
            continues = (self._frames[shared] == obs[:, :-1]).all(axis=(1, 2, 3))
            self._index[rows[continues], :-1] = shared[continues]
            self._index[rows[continues], -1] = self._keep(obs[continues, -1])
        new = obs[~continues]
        frames = self._keep(new.reshape(-1, *new.shape[2:]))
        self._index[rows[~continues]] = frames.reshape(new.shape[:2])

    def _keep(self, frames: Array) -> IntArray:
        """Store [m, H, W] frames; return their indices, [m]."""
        places = np.arange(self._count, self._count + len(frames))
        self._count += len(frames)
        self._frames = _resized(self._frames, self._count)
        self._frames[places] = frames
        return places

    def pool(self) -> Stacks:
        return Stacks(self._frames[: self._count], self._index[: self._size])


def _resized(array: Array, rows: int) -> Array:
    """The array, or a copy of at least 1.5 times its size if `rows` do not fit."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
