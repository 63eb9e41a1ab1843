"""The types that all packages share: batches of transitions, and rows that are gathered lazily.

Time is the first axis and environments the second, `[time, env, ...]`. A flat batch `[n, ...]`
holds the same steps in time-major order, without the steps that are not transitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from emi.errors import UserError

if TYPE_CHECKING:  # imported by the functions that need it: worker processes need none of them
    import torch
    from torch import Tensor

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Stacks:
    """Stacks of frames [rows, k, *frame] that store each frame once; indexed like an array."""

    frames: Array  # [frames, *frame]
    index: IntArray  # [rows, k], the frames of each row, the newest last

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Any) -> Array:
        return self.frames[self.index[which]]


@dataclass(frozen=True)
class Rows:
    """Rows `pool[index]`, gathered when they are read, so that images are stored once."""

    pool: Array | Stacks  # [rows, ...]
    index: IntArray  # [n]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Any) -> Array:
        return self.pool[self.index[which]]

    def last(self, k: int) -> Rows:
        """The same rows with only the last k entries of their first axis: of a stack, k frames."""
        if isinstance(self.pool, Stacks):
            return Rows(Stacks(self.pool.frames, self.pool.index[:, -k:]), self.index)
        return Rows(self.pool[:, -k:], self.index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("rows are gathered into a new array: copy=False is impossible")
        rows = self[:]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    # torch.as_tensor uses these two; without them it would copy row by row.
    def __dlpack__(self, **options: Any) -> Any:
        return self[:].__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # main memory


Batched: TypeAlias = "Array | Tensor | Rows"


class Union(NamedTuple):
    """All rows of two columns, without repetition, and where the rows of each are in them."""

    rows: Rows
    first: IntArray
    second: IntArray


def union(first: Batched, second: Batched) -> Union | None:
    """The rows of two columns of the same pool; None if they have no pool in common."""
    if not (isinstance(first, Rows) and isinstance(second, Rows) and first.pool is second.pool):
        return None
    used = np.zeros(len(first.pool), bool)
    used[first.index] = used[second.index] = True
    place = np.cumsum(used) - 1
    return Union(Rows(first.pool, np.flatnonzero(used)), place[first.index], place[second.index])


@dataclass(frozen=True)
class Transitions:
    """A batch of (s, a, s'), each with a leading batch axis: arrays, tensors, or `emi.batch.Rows`.

    `next_obs` is the true successor, also where an episode ended. Actions are in the units of the
    environment's action space. The rows of one environment are in time order. `env_index` and
    `ended` are for methods that keep a running value or a memory per environment. Without
    `env_index` all rows are of one environment; without `ended` no episode ends. Rows that were
    drawn from a replay buffer are in no order: their `env_index` is −1, and a method must not
    continue a running value with them.
    """

    obs: Batched  # [n, *observation]
    action: Batched  # [n, *action]
    next_obs: Batched  # [n, *observation]
    env_index: IntArray | None = None  # [n], the environment of a row, from 0; −1: in no order
    ended: BoolArray | None = None  # [n], whether the next row of the environment begins an episode

    def __post_init__(self) -> None:
        if not len(self.obs) == len(self.action) == len(self.next_obs):
            raise UserError(
                "obs, action and next_obs must have the same length, got "
                f"{len(self.obs)}, {len(self.action)} and {len(self.next_obs)}"
            )
        for name in ("env_index", "ended"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.action):
                raise UserError(
                    f"{name} must have one entry for each of the {len(self.action)} transitions, "
                    f"got {len(column)}"
                )

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, which: Any) -> Transitions:
        columns: list[Any] = [c if c is None else c[which] for c in vars(self).values()]
        return Transitions(*columns)


def as_tensor(array: Batched, device: torch.device | str = "cpu") -> Tensor:
    """The rows as a tensor on `device`; copied only if necessary."""
    import torch

    return torch.as_tensor(array[:] if isinstance(array, Rows) else array, device=device)


# Large batches are processed in pieces, so that not all images are floats at once.
PIECE_ROWS = 8_192  # largest number of rows in a piece
PIECE_ENTRIES = 2**22  # largest number of entries; a convolution outputs several times as many


def piece_rows(*columns: Batched) -> int:
    """The number of rows in a piece of these columns."""
    widest = max(math.prod(column[:1].shape) for column in columns)
    return max(1, min(PIECE_ROWS, PIECE_ENTRIES // max(1, widest)))


def pieces(*columns: Batched, device: torch.device | str) -> Iterator[tuple[Tensor, ...]]:
    """The columns as tensors on `device`, piece by piece, with the same rows of each."""
    rows = piece_rows(*columns)
    for start in range(0, len(columns[0]), rows):
        yield tuple(as_tensor(column[start : start + rows], device) for column in columns)


def in_pieces(
    function: Callable[..., Tensor], device: torch.device | str, *columns: Batched
) -> Tensor:
    """`function(*columns)`, computed piece by piece without gradients."""
    import torch

    with torch.no_grad():
        return torch.cat([function(*part) for part in pieces(*columns, device=device)])
