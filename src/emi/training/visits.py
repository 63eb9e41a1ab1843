"""Which states a run visited, over training: bounded in size, whatever the length of the run.

A visit is the state that a step reached, s', also where the episode ended; the bonus of the step
belongs to it. Training is divided into at most SLOTS slots of equally many iterations: when all are
used, neighbours are merged in pairs. A slot holds

- the exact number of visits and the sum of the bonuses in every cell of a plane (`emi.cells`),
- a sample of states, evenly spaced over its iterations,
- for images, the number of distinct frames up to its end.

Nothing here draws random numbers, and nothing depends on when slots were merged: the record is a
function of the batches alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from emi.agent.rollout import Rollout
from emi.batch import Array, BoolArray, FloatArray, IntArray, Rows
from emi.cells import SIDE, Grid, around, counted, entropy, joined, moved
from emi.envs.positions import Map
from emi.errors import UserError
from emi.images import is_image
from emi.nets import newest_entries
from emi.stored_state import expect, expect_int, expect_keys

SLOTS = 64
STATES = 256  # the largest sample of a slot
ENTRIES = 65_536  # of the sample of a slot: fewer states if they are large
HASHES = 16_384  # distinct frames that are counted exactly


def slot_width(iterations: int) -> int:
    """Iterations per slot after so many iterations: the power of two at which SLOTS slots suffice.

    >>> [slot_width(k) for k in (1, 64, 65, 128, 129)]
    [1, 1, 2, 2, 4]
    """
    return 1 << max(0, (iterations - 1) // SLOTS).bit_length()


class Distinct:
    """The number of distinct items, from their smallest hashes (k minimum values).

    With k = HASHES hashes of 64 bits, of which the largest is h, there are about (k − 1) 2⁶⁴ / h
    items, with a relative standard error of 1 / √k = 0.8 %. Fewer than k are counted exactly.
    """

    def __init__(self) -> None:
        self.smallest: npt.NDArray[np.uint64] = np.empty(0, np.uint64)

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        self.smallest = np.unique(np.concatenate([self.smallest, hashes]))[:HASHES]

    @property
    def count(self) -> float:
        if len(self.smallest) < HASHES:
            return float(len(self.smallest))
        return (HASHES - 1) * 2.0**64 / float(self.smallest[-1])


def frame_hashes(frames: Rows) -> npt.NDArray[np.uint64]:
    """[n, ...] to hashes [n] of 64 bits."""
    digests = (
        hashlib.blake2b(frames[i].tobytes(), digest_size=8).digest() for i in range(len(frames))
    )
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


class Visits:
    """The record of a run; `add` a batch after the other.

    The plane of the cells is that of the positions that the environment gives. Without positions,
    it is that of the columns `axes` of vector observations, or, without `axes`, of the two with the
    largest standard deviation in the first batch. Images without positions have no plane. `names`
    are those of `axes`.
    """

    def __init__(
        self,
        space: gymnasium.Space,
        axes: tuple[int, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        self._images = is_image(space)
        entries, shape = newest_entries(space)
        self._newest: Callable[[Any], Any] = entries.newest
        size = math.prod(shape)
        if axes and (self._images or len(axes) > 2 or not all(0 <= k < size for k in axes)):
            what = "images have none" if self._images else f"the observation has {size} columns"
            raise UserError(f"coverage_axes must be one or two columns of a vector: {what}")
        self.iterations = 0
        self._axes, self._names = axes, names
        self._unit = np.array([[0.0, 0.0], [1.0, 1.0]])  # cell (0, 0) of the map: corner and size
        self._exponent: tuple[int, int] | None = None  # of the narrowest cells, if there is a map
        self._free: BoolArray | None = None  # [x, y], the cells of the map that are not walls
        self._grid: Grid | None = None  # None before the first batch, or without a plane
        self._count: IntArray = np.zeros((SLOTS, 0, 0), np.int64)  # [slot, x, y]
        self._bonus: FloatArray = np.zeros((SLOTS, 0, 0))  # [slot, x, y], sums
        self._steps: IntArray = np.zeros(SLOTS, np.int64)  # of the run at the end of a slot
        states = min(STATES, max(1, ENTRIES // size))
        dtype = np.uint8 if self._images and space.dtype == np.uint8 else np.float32
        stored = np.asarray(self._newest(np.zeros((1, *(space.shape or ())), dtype))).shape[1:]
        self._states: Array = np.zeros((SLOTS, states, *stored), dtype)
        self._state_bonus = np.zeros((SLOTS, states), np.float32)
        self._distinct = Distinct()
        self._frames = np.zeros(SLOTS)  # distinct frames at the end of a slot

    def add(
        self, rollout: Rollout, bonus: FloatArray, find_map: Callable[[], Map | None]
    ) -> dict[str, float]:
        """Record a batch with its bonuses [n]; returns the numbers for metrics.csv.

        `find_map` is called at the first batch.
        """
        seen = self._newest(Rows(rollout.pool, rollout.flat(rollout.next_index)))
        slot, part, width = self._next_slot()
        self._steps[slot] = self._steps[max(0, slot - (part == 0))] + rollout.steps
        # Sampled state p of a slot is of its iteration p mod `width`.
        places = np.arange(self._states.shape[1])[part::width]
        rows = ((places + 0.5) * len(seen) / self._states.shape[1]).astype(np.int64)
        self._states[slot, places] = seen[rows]
        self._state_bonus[slot, places] = bonus[rows]
        points = self._points(rollout, seen, find_map)
        numbers = {}
        if points is not None:
            self._cover(points)
            assert self._grid is not None
            self._count[slot] += counted(points, self._grid)
            self._bonus[slot] += counted(points, self._grid, bonus)
            total = self._count.sum(0)
            numbers["coverage/cells"] = float(np.count_nonzero(total))
            numbers["coverage/entropy"] = entropy(total)
        if self._images:
            self._distinct.add(frame_hashes(seen))
            numbers["coverage/frames"] = self._frames[slot] = self._distinct.count
        self.iterations += 1
        return numbers

    def _next_slot(self) -> tuple[int, int, int]:
        """The slot of this iteration, its number within the slot, and iterations per slot."""
        width = slot_width(self.iterations + 1)
        if width > slot_width(max(1, self.iterations)):
            first_half = np.arange(self._states.shape[1]) % width < width // 2
            for ends in (self._steps, self._frames):
                ends[: SLOTS // 2] = ends[1::2]
                ends[SLOTS // 2 :] = 0
            for sums in (self._count, self._bonus):
                sums[: SLOTS // 2] = sums[0::2] + sums[1::2]
                sums[SLOTS // 2 :] = 0
            for sample in (self._states, self._state_bonus):
                sample[0::2, ~first_half] = sample[1::2, ~first_half]
                sample[: SLOTS // 2] = sample[0::2].copy()
                sample[SLOTS // 2 :] = 0
        return *divmod(self.iterations, width), width

    def _points(
        self, rollout: Rollout, seen: Rows, find_map: Callable[[], Map | None]
    ) -> FloatArray | None:
        """The visited points of the plane [n, 2], in cells of the map if there is one."""
        first = self.iterations == 0
        if rollout.position is not None and not self._axes:
            given = rollout.flat(rollout.position)
            self._names = self._names or ("position 0", "position 1")[: given.shape[1]]
        elif self._images:
            return None
        else:
            vectors = np.asarray(seen).reshape(len(seen), -1)
            self._axes = self._axes or widest(vectors)
            given = vectors[:, list(self._axes)].astype(np.float64)
        if first and self._names:  # other columns have no map
            self._use_map(find_map())
        self._names = self._names or tuple(f"observation {k}" for k in self._axes)
        points = np.zeros((len(given), 2))  # a line is a plane of one row
        points[:, : given.shape[1]] = given
        points = (points - self._unit[0]) / self._unit[1]
        if self._free is not None:  # the upper border belongs to the last cells
            points = points.clip(0, np.nextafter(self._free.shape, 0.0))
        return points

    def _use_map(self, found: Map | None) -> None:
        if found is None:
            return
        self._unit = np.array([found.low, found.cell], np.float64)
        self._names, self._exponent = found.names, (0, 0)
        if max(found.free.shape) <= SIDE:
            self._free = found.free
            nx, ny = found.free.shape
            self._resize(Grid((0, 0), (0, 0), (nx, ny)))

    def _cover(self, points: FloatArray) -> None:
        """Enlarge the grid to contain points [n, 2]."""
        if self._free is not None:
            return
        if self._grid is None:
            self._resize(around(points, self._exponent))
        else:
            self._resize(joined(self._grid, around(points, self._grid.exponent)))

    def _resize(self, to: Grid) -> None:
        if self._grid is None:
            self._count = np.zeros((SLOTS, *to.shape), np.int64)
            self._bonus = np.zeros((SLOTS, *to.shape))
        elif to != self._grid:
            self._count = moved(self._count, self._grid, to)
            self._bonus = moved(self._bonus, self._grid, to)
        self._grid = to

    def arrays(self) -> dict[str, Array]:
        """What visits.safetensors holds; `state*` have a row for each sampled state."""
        width = slot_width(max(1, self.iterations))
        used, places = -(-self.iterations // width), np.arange(self._states.shape[1])
        done = np.minimum(width, self.iterations - width * np.arange(used))
        known = places % width < done[:, None]  # [slot, state]
        found: dict[str, Array] = {
            "steps": self._steps[:used],
            "states": self._states[:used][known],
            "state_bonus": self._state_bonus[:used][known],
            "state_slot": np.broadcast_to(np.arange(used)[:, None], known.shape)[known],
        }
        if self._grid is not None:
            found |= {
                "visits": self._count[:used],
                "bonus": self._bonus[:used],
                "unit": self._unit,
                "exponent": np.array(self._grid.exponent),
                "first": np.array(self._grid.first),
                "names": np.frombuffer("\n".join(self._names).encode(), np.uint8),
            }
        if self._free is not None:
            found["free"] = self._free
        return found | ({"frames": self._frames[:used]} if self._images else {})

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs."""
        return {
            "iterations": self.iterations,
            "axes": list(self._axes),
            "names": list(self._names),
            "grid": None if self._grid is None else [list(part) for part in self._grid],
            "free": self._free,
            "hashes": self._distinct.smallest.copy(),
            **{name: array.copy() for name, array in self._arrays().items()},
        }

    def _arrays(self) -> dict[str, Array]:
        return {
            "unit": self._unit,
            "count": self._count,
            "bonus": self._bonus,
            "steps": self._steps,
            "states": self._states,
            "state_bonus": self._state_bonus,
            "frames": self._frames,
        }

    def check(self, found: Any, iterations: int) -> None:
        """Raise UserError unless `found` is a state of this record after so many iterations."""
        expect_keys(found, self.state(), "visits")
        expect_int(found["iterations"], iterations, iterations, "visits.iterations")
        grid = found["grid"]
        shape = (0, 0) if grid is None else _checked_grid(grid).shape
        shapes = {"count": (SLOTS, *shape), "bonus": (SLOTS, *shape)}
        for name, own in self._arrays().items():
            _expect_array(found[name], shapes.get(name, own.shape), own.dtype, f"visits.{name}")
        for name in ("count", "steps", "frames"):
            expect(bool((found[name] >= 0).all()), found[name], f"visits.{name}", "no negatives")
        if found["free"] is not None:
            _expect_array(found["free"], shape, np.dtype(np.bool_), "visits.free")
        hashes = found["hashes"]
        few = isinstance(hashes, np.ndarray) and hashes.ndim == 1 and len(hashes) <= HASHES
        expect(few, hashes, "visits.hashes", f"at most {HASHES} hashes")
        _expect_array(hashes, hashes.shape, np.dtype(np.uint64), "visits.hashes")
        ascending = bool((hashes[1:] > hashes[:-1]).all())
        expect(ascending, hashes, "visits.hashes", "ascending hashes")
        size = math.prod(self._states.shape[2:])
        numbers = isinstance(found["axes"], list) and len(found["axes"]) <= 2
        expect(numbers, found["axes"], "visits.axes", "at most two columns")
        for axis in found["axes"]:
            expect_int(axis, 0, size - 1, "visits.axes")
        texts = isinstance(found["names"], list) and len(found["names"]) <= 2
        expect(texts, found["names"], "visits.names", "at most two names")
        for name in found["names"]:
            short = isinstance(name, str) and len(name) <= 200
            expect(short, name, "visits.names", "a short text")

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.iterations = state["iterations"]
        self._axes, self._names = tuple(state["axes"]), tuple(state["names"])
        self._grid = None if state["grid"] is None else _checked_grid(state["grid"])
        self._free = None if state["free"] is None else state["free"].copy()
        self._distinct.smallest = state["hashes"].copy()
        for name in self._arrays():
            setattr(self, f"_{name}", state[name].copy())


def widest(vectors: Array) -> tuple[int, ...]:
    """The two columns of [n, D] with the largest standard deviation, in order; one if D is 1."""
    largest = np.argsort(-vectors.std(0, dtype=np.float64), kind="stable")[:2]
    return tuple(sorted(largest.tolist()))


def _checked_grid(found: Any) -> Grid:
    pairs = isinstance(found, list) and len(found) == 3
    expect(pairs, found, "visits.grid", "three pairs of whole numbers")
    for pair, low, high in zip(found, (-200, -(2**62), 1), (200, 2**62, SIDE), strict=True):
        expect(isinstance(pair, list) and len(pair) == 2, pair, "visits.grid", "a pair")
        for number in pair:
            expect_int(number, low, high, "visits.grid")
    exponent, first, shape = map(tuple, found)
    return Grid(exponent, first, shape)


def _expect_array(found: Any, shape: tuple[int, ...], dtype: np.dtype, place: str) -> None:
    same = isinstance(found, np.ndarray) and found.shape == shape and found.dtype == dtype
    expect(same, found, place, f"an array {shape} of {dtype}")
    finite = found.dtype.kind != "f" or bool(np.isfinite(found).all())
    expect(finite, found, place, "finite numbers")
