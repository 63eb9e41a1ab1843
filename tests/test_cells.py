"""Cells of a plane: exact counts, whatever the order in which the plane grew."""

import numpy as np
import pytest

from emi.cells import SIDE, Grid, around, counted, entropy, joined, moved


def test_a_cell_begins_at_a_multiple_of_its_width() -> None:
    grid = Grid((-1, 1), (-2, 0), (4, 3))  # cells of 0.5 × 2
    points = np.array([[-1.0, 0.0], [-0.51, 1.99], [0.0, 2.0], [0.99, 5.9]])
    np.testing.assert_array_equal(grid.cells(points), [[0, 0], [0, 0], [2, 1], [3, 2]])
    np.testing.assert_array_equal(grid.edges(0), [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_array_equal(
        counted(points, grid), [[2, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    )
    weights = counted(points, grid, np.array([1.0, 2.0, 4.0, 8.0]))
    assert weights[0, 0] == 3
    assert weights[3, 2] == 8


def test_a_grid_is_as_fine_as_its_size_allows() -> None:
    points = np.array([[0.0, 5.0], [63.9, 5.0]])
    assert around(points)[0][0] == 0
    assert around(points).shape == (SIDE, 1)
    assert around(points, (2, 2)) == Grid((2, 2), (0, 1), (16, 1))
    # 64 cells of width 1 would not reach: the cells are merged in pairs.
    assert around(np.array([[0.0, 0.0], [64.0, 0.0]]), (0, 0)) == Grid((1, 0), (0, 0), (33, 1))


def test_merged_counts_are_those_of_the_larger_cells() -> None:
    rng = np.random.default_rng(0)
    parts = [scale * rng.normal(size=(200, 2)) + rng.normal(size=2) for scale in (1e-3, 0.1, 5, 90)]
    grid = around(parts[0])
    counts = counted(parts[0], grid)
    for part in parts[1:]:
        larger = joined(grid, around(part, grid.exponent))
        counts = moved(counts, grid, larger) + counted(part, larger)
        grid = larger
    np.testing.assert_array_equal(counts, counted(np.concatenate(parts), grid))
    assert counts.sum() == 800
    assert max(grid.shape) <= SIDE


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e15, 3e38])
def test_any_size_of_numbers(scale: float) -> None:
    points = scale * np.array([[1.0, -1.0], [1.0, 1.0]])
    grid = around(points)
    assert counted(points, grid).sum() == 2
    assert max(grid.shape) <= SIDE


def test_the_entropy_of_equal_counts_is_the_logarithm_of_their_number() -> None:
    assert entropy(np.array([[3, 3], [0, 3]])) == pytest.approx(np.log(3))
    assert entropy(np.array([7])) == 0
    assert entropy(np.zeros(4)) == 0
