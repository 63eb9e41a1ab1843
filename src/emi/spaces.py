"""Checks and properties of Gymnasium spaces and vector environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.errors import UserError
from emi.images import is_image

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


@dataclass(frozen=True)
class Readable:
    """What networks read of the observations of a space: images, or float32 vectors."""

    box: spaces.Box
    read: Callable[[Any], npt.NDArray[Any]]
    """one observation to [*box.shape], or a batch of them [n, ...] to [n, *box.shape]"""
    left_out: tuple[str, ...] = ()
    """entries that hold text, by their dotted keys"""


def readable(space: gymnasium.Space) -> Readable:
    """How observations of `space` are read; UserError if they cannot be.

    Images and vectors of floats stay as they are. Anything else becomes one float32 vector:

    - `Discrete` is one-hot, `MultiDiscrete` several of them, `MultiBinary` zeros and ones;
    - a `Box` is flattened, and integers with bounds are scaled to [−1, 1] by them;
    - the entries of `Dict` and `Tuple`, also nested ones, follow each other in the order of the
      space. Entries that hold text are left out. A single entry that remains may be an image.
    """
    entries = list(_entries(space, ()))
    texts = tuple(_key(path) for path, inner in entries if _is_text(inner))
    entries = [(path, inner) for path, inner in entries if not _is_text(inner)]
    if not entries:
        raise UserError(f"the observations {_shown(space)} have no entry that networks can read")
    parts = [_part(path, inner, whole=space) for path, inner in entries]
    if len(parts) == 1:
        only = parts[0]
        return Readable(only.box, lambda obs: only.read(_at(obs, only.path)), texts)
    for path, inner in entries:
        if is_image(inner):
            shape = "×".join(map(str, inner.shape or ()))
            raise UserError(
                f"the observations hold an image of {shape} in {_key(path)!r} and other "
                f"entries, which no network here reads together: choose one of "
                f"{_listed(entries)} with --observation"
            )
    low, high = (np.concatenate([_bound(part.box, name) for part in parts]) for name in _BOUNDS)

    def read(obs: Any) -> npt.NDArray[Any]:
        rows = [part.read(_at(obs, part.path)) for part in parts]
        return np.concatenate(rows, axis=-1, dtype=np.float32, casting="same_kind")

    return Readable(spaces.Box(low, high, dtype=np.float32), read, texts)


def flat_space(space: gymnasium.Space) -> spaces.Box:
    """The `Box` that observations of `space` become: see `readable`."""
    return readable(space).box


def flatten_rows(space: gymnasium.Space, obs: Any) -> npt.NDArray[Any]:
    """Observations of `space`, one or a batch of them [n, ...], as rows of `flat_space`.

    A batch of a `Dict` is a mapping to arrays [n, ...], one of a `Tuple` a sequence of them, as
    vector environments return them.
    """
    return readable(space).read(obs)


def choose_entry(space: gymnasium.Space, key: str) -> tuple[gymnasium.Space, Callable[[Any], Any]]:
    """The entry `key` of a `Dict` or `Tuple`, and a function from observations to their entry.

    `a.b` is the entry `b` of the entry `a`; the entries of a `Tuple` are 0, 1, ….
    """
    entries = [(path, inner) for path, inner in _entries(space, (), inner_nodes=True) if path]
    for path, inner in entries:
        if _key(path) == key:
            return inner, partial(_at, path=path)
    if not entries:
        raise UserError(
            f"the observations {_shown(space)} have no entries: leave out --observation {key}"
        )
    raise UserError(f"the observations have no entry {key!r}: choose one of {_listed(entries)}")


Path = tuple[Any, ...]  # keys of a nested entry


def _key(path: Path) -> str:
    return ".".join(map(str, path))


class _Part(NamedTuple):
    path: Path
    box: spaces.Box
    read: Callable[[Any], npt.NDArray[Any]]


_BOUNDS = ("low", "high")
_WIDE = 4  # bytes of an integer type whose limits stand for "no bound"


def _entries(
    space: gymnasium.Space, path: Path, inner_nodes: bool = False
) -> list[tuple[Path, gymnasium.Space]]:
    """The leaves of nested `Dict` and `Tuple` spaces, with their keys; also the inner nodes."""
    inner: Mapping[Any, gymnasium.Space]
    if isinstance(space, spaces.Dict):
        inner = space.spaces
    elif isinstance(space, spaces.Tuple):
        inner = dict(enumerate(space.spaces))
    else:
        return [(path, space)]
    found: list[tuple[Path, gymnasium.Space]] = [(path, space)] if inner_nodes else []
    for key, each in inner.items():
        found += _entries(each, (*path, key), inner_nodes)
    return found


def _at(obs: Any, path: Path) -> Any:
    for key in path:
        obs = obs[key]
    return obs


def _is_text(space: gymnasium.Space) -> bool:
    return space.dtype is not None and space.dtype.kind in "US"


def _part(path: Path, space: gymnasium.Space, whole: gymnasium.Space) -> _Part:
    match space:
        case spaces.Box() if is_image(space) or (len(space.shape) == 1 and space.dtype.kind == "f"):
            return _Part(path, space, np.asarray)
        case spaces.Box():
            return _Part(path, *_flat_box(space))
        case spaces.Discrete():
            return _Part(path, *_one_hot(space, np.array([space.n]), np.array(space.start), ()))
        case spaces.MultiDiscrete():
            return _Part(path, *_one_hot(space, space.nvec, space.start, space.shape))
        case spaces.MultiBinary():
            box = spaces.Box(0.0, 1.0, (math.prod(space.shape),), np.float32)
            return _Part(path, box, _flat_function(space.shape))
    where = f" in {_key(path)!r}" if path else ""
    other = ": choose another entry with --observation" if space is not whole else ""
    raise UserError(
        f"observations of the type {type(space).__name__}{where} cannot be read: only Box, "
        f"Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported{other}"
    )


def _flat_box(space: spaces.Box) -> tuple[spaces.Box, Callable[[Any], npt.NDArray[Any]]]:
    """A `Box` as a float32 vector; integers with bounds are scaled to [−1, 1]."""
    low, high = (_bound(space, name) for name in _BOUNDS)
    kind: np.dtype[Any] = np.dtype(space.dtype)
    if kind.kind == "f":
        return spaces.Box(low, high, dtype=np.float32), _flat_function(space.shape)
    bounded = (space.bounded_below & space.bounded_above).reshape(-1)
    if kind.itemsize >= _WIDE:
        limits = np.iinfo(kind)
        bounded = bounded & ~((space.low == limits.min) | (space.high == limits.max)).reshape(-1)
    first, last = (getattr(space, name).reshape(-1).astype(np.float64) for name in _BOUNDS)
    centre = np.where(bounded, (first + last) / 2, 0.0)
    half = np.where(bounded & (last > first), (last - first) / 2, 1.0)
    one = np.float32(1)
    box = spaces.Box(np.where(bounded, -one, low), np.where(bounded, one, high), dtype=np.float32)
    return box, _flat_function(space.shape, lambda values: (values - centre) / half)


def _flat_function(
    shape: Sequence[int], change: Callable[[Any], npt.NDArray[Any]] = np.asarray
) -> Callable[[Any], npt.NDArray[Any]]:
    """A function from arrays [..., *shape] to float32 [..., entries]."""
    axes, entries = len(shape), math.prod(shape)

    def flat(obs: Any) -> npt.NDArray[Any]:
        array = np.asarray(obs)
        rows = array.reshape(*array.shape[: array.ndim - axes], entries)
        return change(rows).astype(np.float32)

    return flat


def _one_hot(
    space: gymnasium.Space,
    sizes: npt.NDArray[Any],
    start: npt.NDArray[Any],
    shape: Sequence[int],
) -> tuple[spaces.Box, Callable[[Any], npt.NDArray[Any]]]:
    """Whole numbers [..., *shape] as one-hot vectors, one after the other."""
    counts, first = sizes.reshape(-1), start.reshape(-1)
    places = np.cumsum([0, *counts[:-1]])
    width, axes = int(counts.sum()), len(shape)

    def outside(obs: Any) -> UserError:
        return UserError(f"the observation {_shown(obs)} is not in {_shown(space)}")

    def read(obs: Any) -> npt.NDArray[Any]:
        array = np.asarray(obs)
        if array.ndim == 0 and axes == 0:  # as a single environment returns it
            number = int(array) - int(first[0])
            if not 0 <= number < width:
                raise outside(obs)
            row = np.zeros(width, np.float32)
            row[number] = 1.0
            return row
        batch = array.shape[: array.ndim - axes]
        index = array.reshape(-1, len(counts)) - first
        if ((index < 0) | (index >= counts)).any():
            raise outside(obs)
        rows = np.zeros((len(index), width), np.float32)
        rows[np.arange(len(index))[:, None], (index + places).astype(np.int64)] = 1.0
        return rows.reshape(*batch, width)

    return spaces.Box(0.0, 1.0, (width,), np.float32), read


def _bound(space: spaces.Box, name: str) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a float64 bound may exceed all of float32
        return getattr(space, name).reshape(-1).astype(np.float32)


def _listed(entries: Sequence[tuple[Path, gymnasium.Space]]) -> str:
    return ", ".join(repr(_key(path)) for path, _ in entries)


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


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
