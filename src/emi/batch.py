"""The types that all packages share: batches of transitions, and rows that are gathered lazily.

Time is the first axis and environments the second, `[time, env, ...]`. A flat batch `[n, ...]`
holds the same steps in time-major order, without the steps that are not transitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from emi.errors import NotFiniteError, UserError

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
# Observations of a `Dict` or `Tuple` space have a column for each entry.
Columns: TypeAlias = "Batched | Mapping[str, Columns] | tuple[Columns, ...]"


def map_columns(function: Callable[..., Any], columns: Any, *others: Any) -> Any:
    """Apply a function to every column, and to the same entries of `others`, key by key.

    `others` may be columns of the same nesting, or spaces.
    """
    if isinstance(columns, Mapping):
        return {
            key: map_columns(function, column, *(other[key] for other in others))
            for key, column in columns.items()
        }
    if isinstance(columns, tuple):
        return tuple(
            map_columns(function, column, *(other[i] for other in others))
            for i, column in enumerate(columns)
        )
    return function(columns, *others)


def named_columns(columns: Columns, name: str) -> Iterator[tuple[str, Batched]]:
    """Every column with its name: `name`, followed by its keys, as in `observation['goal']`."""
    if isinstance(columns, Mapping | tuple):
        entries = columns.items() if isinstance(columns, Mapping) else enumerate(columns)
        for key, column in entries:
            yield from named_columns(column, f"{name}[{key!r}]")
    else:
        yield name, columns


def _as_column(given: Any) -> Any:
    """A list of rows as an array; everything else as it is."""
    if not isinstance(given, list):
        return given
    try:
        return np.asarray(given)
    except ValueError:
        raise UserError("the rows of a batch must have the same shape: give an array") from None


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


def of_both(
    function: Callable[[Batched], Tensor], first: Batched, second: Batched
) -> tuple[Tensor, Tensor]:
    """`function` of two columns, called once; a row of a pool that is in both is computed once."""
    if both := union(first, second):
        values = function(both.rows)
        return values[both.first], values[both.second]
    import torch

    values = function(torch.cat([as_tensor(first), as_tensor(second)]))
    return values[: len(first)], values[len(first) :]


@dataclass(frozen=True)
class Transitions:
    """A batch of (s, a, s'), each with a leading batch axis: arrays, tensors, or `emi.batch.Rows`.

    Observations of a `Dict` space are a mapping of such columns, those of a `Tuple` space a tuple
    of them. A list is a list of rows. `next_obs` is the true successor, also where an episode
    ended. Actions are in the units of the environment's action space. The rows of one environment
    are in time order. `env_index` and `ended` are for methods that keep a running value or a memory
    per environment. Without `env_index` all rows are of one environment; without `ended` no
    episode ends. Rows that were drawn from a replay buffer are in no order: their `env_index` is
    −1, and a method must not continue a running value with them.
    """

    obs: Any  # Columns, [n, *observation]
    action: Any  # Columns, [n, *action]
    next_obs: Any  # Columns, [n, *observation]
    env_index: IntArray | Tensor | None = None  # [n], the environment of a row; −1: in no order
    ended: BoolArray | Tensor | None = None  # [n], whether the environment's next row starts anew

    def __post_init__(self) -> None:
        rows: dict[str, int] = {}
        for name in ("obs", "action", "next_obs"):
            columns = map_columns(_as_column, getattr(self, name))
            object.__setattr__(self, name, columns)
            for place, column in named_columns(columns, name):
                try:
                    rows[place] = len(column)
                except TypeError:
                    raise UserError(
                        f"{place} must have a leading batch axis, got {column!r}"
                    ) from None
        if not rows or len(set(rows.values())) > 1:
            lengths = ", ".join(f"{n} of {place}" for place, n in rows.items())
            raise UserError(f"all columns must have the same number of rows, got {lengths or 0}")
        for name in ("env_index", "ended"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self):
                raise UserError(
                    f"{name} must have one entry for each of the {len(self)} transitions, "
                    f"got {len(column)}"
                )

    def __len__(self) -> int:
        return next(len(column) for _, column in named_columns(self.obs, "obs"))

    def __getitem__(self, which: Any) -> Transitions:
        def some(column: Any) -> Any:
            return None if column is None else column[which]

        return Transitions(*(map_columns(some, column) for column in vars(self).values()))


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Concatenate batches; the rows of each environment stay in time order."""
    if len(parts) == 1:
        return parts[0]

    def concatenate(*columns: Any) -> Any:
        if columns[0] is None:
            return None
        if isinstance(columns[0], np.ndarray | Rows):
            return np.concatenate([np.asarray(column) for column in columns])
        import torch

        return torch.cat(columns)

    whole = zip(*(vars(part).values() for part in parts), strict=True)
    return Transitions(*(map_columns(concatenate, *columns) for columns in whole))


def is_numeric(column: Batched) -> bool:
    """Whether a column holds numbers; text is not read by any network."""
    if isinstance(column, Rows):
        return isinstance(column.pool, Stacks) or is_numeric(column.pool)
    return not isinstance(column, np.ndarray) or column.dtype.kind in "biuf"


def check_batch(batch: Transitions) -> None:
    """Raise NotFiniteError if a number is NaN or infinite: it names the column and the row.

    A model that is trained on such a number is lost.
    """
    if len(batch) == 0:
        raise UserError("a batch must have at least one transition, got none")
    for word, columns in (
        ("observation", batch.obs),
        ("action", batch.action),
        ("successor (next_obs)", batch.next_obs),
    ):
        for place, column in named_columns(columns, word):
            row = not_finite(column)
            if row is not None:
                raise NotFiniteError(
                    f"the {place} of row {row} is NaN or infinite: check the environment, or "
                    "remove the row"
                )


def not_finite(column: Batched) -> int | None:
    """The first row with a NaN or infinite number; None if there is none."""
    if isinstance(column, Rows):
        pool = column.pool
        if isinstance(pool, Stacks) or not_finite(pool) is None:
            return None  # without gathering the rows
        column = column[:]
    if not isinstance(column, np.ndarray):
        import torch

        if not isinstance(column, torch.Tensor):
            return None  # text, or objects that no network reads
        if not column.is_floating_point() or bool(torch.isfinite(column).all()):
            return None
        finite = torch.isfinite(column.reshape(len(column), -1)).all(1)
        return int((~finite).nonzero()[0])
    # A sum of squares is finite if all numbers are and it does not overflow; np.isfinite takes
    # three times as long.
    if column.dtype.kind != "f" or math.isfinite(np.vdot(column, column)):
        return None
    good = np.isfinite(column.reshape(len(column), -1)).all(1)
    return None if good.all() else int(np.flatnonzero(~good)[0])


def as_tensor(array: Batched, device: torch.device | str = "cpu") -> Tensor:
    """The rows as a tensor on `device`; copied only if necessary."""
    import torch

    if isinstance(array, Rows):
        array = array[:]
    # PyTorch has no negative strides, and warns about arrays that it could write to by mistake.
    if isinstance(array, np.ndarray) and (
        not array.flags.writeable or any(stride < 0 for stride in array.strides)
    ):
        array = array.copy()
    return torch.as_tensor(array, device=device)


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
