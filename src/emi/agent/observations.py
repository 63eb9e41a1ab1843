"""What a rollout keeps of its observations: rows of an array, or the frames of stacks, once."""

from __future__ import annotations

from typing import Protocol

import gymnasium
import numpy as np

from emi.batch import Array, IntArray, Stacks
from emi.spaces import is_image


class Keeper(Protocol):
    """Takes observations row by row; `pool` gives them back."""

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        """Observations [m, *observation] as the `rows` [m], which follow the rows `before` [m]."""
        ...

    def pool(self) -> Array | Stacks:
        """Everything that was put, [rows, *observation]."""
        ...


def make_keeper(space: gymnasium.Space, rows: int) -> Keeper:
    """A keeper for about `rows` observations of `space`; it grows where more are put."""
    shape = space.shape or ()
    if is_image(space) and len(shape) == 3 and 1 < shape[0] <= shape[2]:
        return StackKeeper(shape, rows)
    return ArrayKeeper(shape, np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32), rows)


class ArrayKeeper:
    """Every observation is a row of one array."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> None:
        self._rows = np.empty((rows, *shape), dtype)
        self._size = 0

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        self._size = max(self._size, int(rows.max()) + 1)
        self._rows = _room_for(self._rows, self._size)
        self._rows[rows] = obs

    def pool(self) -> Array:
        return self._rows[: self._size]


class StackKeeper:
    """Observations [k, H, W] whose frames are kept once.

    A stack that goes on from the one before shares all of its frames but the newest: then one frame
    is kept, else all k. Whether it does is seen from the pixels, so nothing is assumed about the
    environment, and what comes back is exactly what was put.
    """

    def __init__(self, shape: tuple[int, ...], rows: int) -> None:
        self._index = np.zeros((rows, shape[0]), np.int64)
        self._frames = np.empty((rows, *shape[1:]), np.uint8)
        self._size = self._count = 0

    def put(self, rows: IntArray, obs: Array, before: IntArray | None) -> None:
        self._size = max(self._size, int(rows.max()) + 1)
        self._index = _room_for(self._index, self._size)
        goes_on = np.zeros(len(rows), bool)
        if before is not None:
            shared = self._index[before, 1:]
            goes_on = (self._frames[shared] == obs[:, :-1]).all(axis=(1, 2, 3))
            self._index[rows[goes_on], :-1] = shared[goes_on]
            self._index[rows[goes_on], -1] = self._keep(obs[goes_on, -1])
        new = obs[~goes_on]
        frames = self._keep(new.reshape(-1, *new.shape[2:]))
        self._index[rows[~goes_on]] = frames.reshape(new.shape[:2])

    def _keep(self, frames: Array) -> IntArray:
        """Where [m, H, W] frames are from now on, [m]."""
        places = np.arange(self._count, self._count + len(frames))
        self._count += len(frames)
        self._frames = _room_for(self._frames, self._count)
        self._frames[places] = frames
        return places

    def pool(self) -> Stacks:
        return Stacks(self._frames[: self._count], self._index[: self._size])


def _room_for(array: Array, rows: int) -> Array:
    """The array, or a copy half as large again when `rows` do not fit."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
