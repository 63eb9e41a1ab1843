"""The visited states of a run as its file holds them, checked: the file can come from anyone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emi.cells import SIDE, Grid
from emi.report.tensors_file import LARGEST, Array, read_tensors

VISITS_BYTES = 64_000_000
MOST_SLOTS = 64
MOST_STATES = 20_000
MOST_DIMENSIONS = 100_000  # of a state
MOST_NAME = 400  # bytes of the names of both axes

# The kinds of dtype and the shape of every tensor: s slots, x × y cells, n states, any other size.
_ALWAYS = {"steps": ("i", "s"), "states": ("fu", "n…"), "state_bonus": ("f", "n")}
_ALWAYS |= {"state_slot": ("i", "n")}
_PLANE = {"visits": ("i", "sxy"), "bonus": ("f", "sxy"), "unit": ("f", "22")}
_PLANE |= {"exponent": ("i", "2"), "first": ("i", "2"), "names": ("u", "…")}
_OPTIONAL = {"free": ("b", "xy"), "frames": ("f", "s"), "phi": ("f", "nd")}


@dataclass(frozen=True)
class VisitsPlane:
    """Exact counts in the cells of a plane."""

    grid: Grid
    unit: Array  # [2, 2]: the corner and the size of cell (0, 0) of exponent 0
    names: tuple[str, str]  # of the axes; the second is empty for a line
    visits: Array  # [slot, x, y]
    bonus: Array  # [slot, x, y], sums
    free: Array | None  # [x, y], cells of the environment's map that are not walls


@dataclass(frozen=True)
class VisitsRecord:
    """The visited states of one run; a slot is a part of its training."""

    steps: Array  # [slot], environment steps at the end of each slot
    states: Array  # [n, ...], a sample
    state_slot: Array  # [n]
    state_bonus: Array  # [n]
    plane: VisitsPlane | None
    frames: Array | None  # [slot], distinct images up to the end of each slot
    phi: Array | None  # [n, d], images in the embedding of the end of the run


def read_visits_file(file: Path) -> VisitsRecord:
    """The record in a file; UserError if it cannot be shown."""
    return read_tensors(file, VISITS_BYTES, _record, "train the run again")


def _record(tensors: dict[str, Array]) -> VisitsRecord:
    planar = "visits" in tensors
    wanted = _ALWAYS | (_PLANE if planar else {})
    wanted |= {name: kind for name, kind in _OPTIONAL.items() if name in tensors}
    sizes: dict[str, int] = {}
    for name, (kinds, shape) in wanted.items():
        _check(name, tensors.get(name), kinds, shape, sizes)
    slots = tensors["steps"]
    if (np.diff(slots, prepend=0) <= 0).any():
        raise ValueError("steps do not ascend")
    if (tensors["state_slot"] < 0).any() or (tensors["state_slot"] >= len(slots)).any():
        raise ValueError("state_slot names a slot that is not there")
    return VisitsRecord(
        steps=slots,
        states=tensors["states"],
        state_slot=tensors["state_slot"],
        state_bonus=tensors["state_bonus"],
        plane=_plane(tensors) if planar else None,
        frames=tensors.get("frames"),
        phi=tensors.get("phi"),
    )


def _plane(tensors: dict[str, Array]) -> VisitsPlane:
    visits = tensors["visits"]
    if (visits < 0).any() or visits.max() > 2**53:
        raise ValueError("visits are negative or too many")
    exponent, first = (tensors[name].tolist() for name in ("exponent", "first"))
    if max(map(abs, exponent)) > 200 or max(map(abs, first)) > 2**62:
        raise ValueError("the cells are too large or too far away")
    if (tensors["unit"][1] <= 0).any():
        raise ValueError("a cell of the map has no size")
    names = bytes(tensors["names"][:MOST_NAME]).decode().split("\n")
    # A dollar would begin a formula in a figure.
    if len(names) > 2 or not all(name.isprintable() and "$" not in name for name in names):
        raise ValueError("the axes must have one or two names")
    _, nx, ny = visits.shape
    grid = Grid((exponent[0], exponent[1]), (first[0], first[1]), (nx, ny))
    pair = (names[0], names[1] if len(names) == 2 else "")
    bonus, free = tensors["bonus"], tensors.get("free")
    return VisitsPlane(grid, tensors["unit"], pair, visits, bonus, free)


def _check(name: str, array: Array | None, kinds: str, shape: str, sizes: dict[str, int]) -> None:
    """ValueError unless `array` has a dtype of `kinds`, this shape, and numbers of a sane size."""
    most = {"s": MOST_SLOTS, "x": SIDE, "y": SIDE, "n": MOST_STATES, "d": 256, "2": 2}
    if array is None:
        raise ValueError(f"{name} is missing")
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} is {array.dtype}")
    axes = shape.removesuffix("…")
    if array.ndim < len(axes) or (axes == shape and array.ndim > len(axes)):
        raise ValueError(f"{name} has {array.ndim} axes")
    for axis, size in zip(axes, array.shape, strict=False):
        if not 1 <= size <= most[axis] or sizes.setdefault(axis, size) != size:
            raise ValueError(f"{name} has shape {array.shape}")
    if array[:1].size > MOST_DIMENSIONS or (axes != shape and array.size == 0):
        raise ValueError(f"{name} has shape {array.shape}")
    if array.dtype.kind == "f" and not (np.abs(array) <= LARGEST).all():  # NaN is refused as well
        raise ValueError(f"{name} is not finite")
