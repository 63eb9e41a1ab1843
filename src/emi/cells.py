"""Count visits in the cells of a plane whose extent is not known in advance, exactly.

Cell i of an axis with the exponent e covers [i 2ᵉ, (i + 1) 2ᵉ). A cell of exponent e + 1 consists
of two cells of exponent e, so that counts are merged without error when the plane grows: they are
those that the larger cells would have had from the start. Two runs have aligned cells, and can be
compared after the smaller cells of one are merged.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SIDE = 64  # cells along an axis, at most
DIGITS = 40  # the narrowest cell is the largest coordinate divided by 2^DIGITS

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]


class Grid(NamedTuple):
    """A rectangle of cells: exponent, first cell and number of cells of each axis."""

    exponent: tuple[int, int]
    first: tuple[int, int]
    shape: tuple[int, int]

    def cells(self, points: Array) -> IntArray:
        """Cells of points [n, 2] as indices [n, 2] into an array of `shape`, or outside of it."""
        return _cells(points, self.exponent) - np.array(self.first)

    def edges(self, axis: int) -> Array:
        """[shape[axis] + 1]: where the cells of an axis begin and end."""
        numbers = self.first[axis] + np.arange(self.shape[axis] + 1)
        return np.ldexp(numbers.astype(np.float64), self.exponent[axis])


def _cells(points: Array, exponent: tuple[int, int]) -> IntArray:
    scaled = np.ldexp(np.asarray(points, np.float64), -np.array(exponent))
    return np.floor(scaled).astype(np.int64)


def around(points: Array, exponent: tuple[int, int] | None = None) -> Grid:
    """The smallest grid of at most SIDE × SIDE cells around points [n, 2], n > 0.

    Its cells are not narrower than those of `exponent`; without one, as narrow as SIDE allows.
    """
    low, high = points.min(0), points.max(0)
    (x, other_x), (y, other_y) = zip(low.tolist(), high.tolist(), strict=True)
    found = exponent or (_narrowest(x, other_x), _narrowest(y, other_y))
    return _fitted(_cells(low, found), _cells(high, found), found)


def _narrowest(low: float, high: float) -> int:
    """The exponent of about SIDE cells between two numbers; `around` corrects it by one."""
    largest = max(abs(low), abs(high), 1e-38)
    width = max((high - low) / SIDE, math.ldexp(largest, -DIGITS))
    return math.floor(math.log2(width))


def _fitted(low: IntArray, high: IntArray, exponent: tuple[int, ...]) -> Grid:
    """The grid from cell `low` to cell `high` [2], merged until no side has more than SIDE."""
    merged, first, shape = list(exponent), low.tolist(), []
    for axis, last in enumerate(high.tolist()):
        while last - first[axis] >= SIDE:
            merged[axis], first[axis], last = merged[axis] + 1, first[axis] >> 1, last >> 1
        shape.append(last - first[axis] + 1)
    return Grid((merged[0], merged[1]), (first[0], first[1]), (shape[0], shape[1]))


def joined(a: Grid, b: Grid) -> Grid:
    """The smallest grid of at most SIDE × SIDE cells that contains both."""
    exponent = (max(a.exponent[0], b.exponent[0]), max(a.exponent[1], b.exponent[1]))
    ends = []
    for grid in (a, b):
        by = np.array(exponent) - np.array(grid.exponent)
        first, shape = np.array(grid.first), np.array(grid.shape)
        ends.append((first >> by, (first + shape - 1) >> by))
    (low, high), (other_low, other_high) = ends
    return _fitted(np.minimum(low, other_low), np.maximum(high, other_high), exponent)


def moved(cells: Array, grid: Grid, to: Grid) -> Array:
    """Sums [..., *to.shape] of cells [..., *grid.shape]; `to` contains `grid`."""
    out = np.zeros((*cells.shape[:-2], *to.shape), cells.dtype)
    x, y = (
        ((grid.first[axis] + np.arange(grid.shape[axis])) >> by) - to.first[axis]
        for axis, by in enumerate(np.array(to.exponent) - np.array(grid.exponent))
    )
    where: Any = (..., x[:, None], y[None, :])
    np.add.at(out, where, cells)
    return out


def counted(points: Array, grid: Grid, weights: Array | None = None) -> Array:
    """Points [n, 2] per cell of `grid`, or the sum of their weights [n]: [*grid.shape]."""
    x, y = grid.cells(points).T
    flat = np.bincount(x * grid.shape[1] + y, weights, math.prod(grid.shape))
    return flat.reshape(grid.shape)


def entropy(counts: Array) -> float:
    """Shannon entropy −Σ p log p of p = counts / Σ counts, in nats; 0 without counts."""
    some = counts[counts > 0].astype(np.float64)
    p = some / max(some.sum(), 1.0)
    return float(-(p * np.log(p)).sum()) + 0.0  # not −0
