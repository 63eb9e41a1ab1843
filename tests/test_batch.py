"""The shared types: they reject mixed-up axes, gather rows lazily and convert in one gather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from emi.agent.rollout import Rollout
from emi.batch import Array, Rows, Stacks, Transitions, as_tensor, union
from emi.spaces import UnitRange


def rollout(**changes: np.ndarray) -> Rollout:
    time, env = 3, 2
    fields = {
        "pool": np.arange(8.0, dtype=np.float32)[:, None],
        "index": np.arange(6).reshape(time, env),
        "next_index": np.arange(2, 8).reshape(time, env),
        "action": np.arange(12.0).reshape(time, env, 2),
        "reward": np.arange(6.0).reshape(time, env),
        "terminated": np.zeros((time, env), bool),
        "truncated": np.zeros((time, env), bool),
        "clock": np.zeros((time, env), np.int64),
        "valid": np.array([[True, True], [True, False], [True, True]]),
        "episode_returns": np.zeros(0),
    }
    return Rollout(**(fields | changes))  # type: ignore[arg-type]


def test_a_transposed_grid_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"reward must have the axes \[time, env\]"):
        rollout(reward=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="action must begin with"):
        rollout(action=np.zeros((2, 3, 2)))


def test_flat_and_grid_are_inverse_and_time_major() -> None:
    run = rollout()
    assert run.steps == 5
    flat = run.flat(run.reward)
    assert flat.tolist() == [0, 1, 2, 4, 5]
    assert run.grid(flat).tolist() == [[0, 1], [2, 0], [4, 5]]


def test_transitions_of_a_rollout() -> None:
    batch = rollout().transitions(lambda action: -action)
    assert batch.obs[:].ravel().tolist() == [0, 1, 2, 4, 5]
    assert batch.next_obs[:].ravel().tolist() == [2, 3, 4, 6, 7]
    assert np.asarray(batch.action)[1].tolist() == [-2, -3]
    assert batch.env_index is not None
    assert batch.env_index.tolist() == [0, 1, 0, 0, 1]
    part = batch[np.array([3, 0])]
    assert np.asarray(part.obs).ravel().tolist() == [4, 0]
    assert len(part) == 2


def test_transitions_need_one_length() -> None:
    with pytest.raises(ValueError, match="got 3 of obs, 2 of action, 3 of next_obs"):
        Transitions(np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((3, 1)))


def test_rows_share_their_pool() -> None:
    pool = np.arange(4.0)
    rows = Rows(pool, np.array([2, 0]))
    pool[2] = 9
    assert rows[:].tolist() == [9, 0]
    assert len(rows) == 2


@dataclass(frozen=True)
class Counted(Stacks):
    """Counts how often rows are gathered."""

    gathers: list[int] = field(default_factory=list)

    def __getitem__(self, which: Any) -> Array:
        self.gathers.append(np.size(which))
        return super().__getitem__(which)


def stacks() -> Counted:
    """Three stacks of two frames of four numbers: (0, 1), (1, 2), (2, 3)."""
    frames = np.arange(16, dtype=np.uint8).reshape(4, 4)
    return Counted(frames, np.array([[0, 1], [1, 2], [2, 3]]))


CONVERSIONS: dict[str, tuple[Callable[[Rows], Any], Any]] = {
    "asarray": (np.asarray, np.uint8),
    "asarray float64": (lambda rows: np.asarray(rows, np.float64), np.float64),
    "array": (np.array, np.uint8),
    "as_tensor": (torch.as_tensor, torch.uint8),
    "as_tensor float32": (lambda rows: torch.as_tensor(rows, dtype=torch.float32), torch.float32),
    "as_tensor cpu": (lambda rows: torch.as_tensor(rows, device="cpu"), torch.uint8),
    "our as_tensor": (as_tensor, torch.uint8),
}


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("index", [[2, 0, 2], []], ids=["three", "none"])
def test_rows_convert_in_one_gather(name: str, index: list[int]) -> None:
    """Warnings are errors here: a conversion row by row would raise one."""
    convert, dtype = CONVERSIONS[name]
    pool = stacks()
    rows = Rows(pool, np.array(index, np.int64))
    converted = convert(rows)
    assert pool.gathers == [len(index)]
    assert converted.dtype == dtype
    assert tuple(converted.shape) == (len(index), 2, 4)
    numbers = [[list(range(4 * k, 4 * k + 4)), list(range(4 * k + 4, 4 * k + 8))] for k in index]
    assert converted.tolist() == numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64, np.bool_])
def test_rows_of_an_array_convert(dtype: type) -> None:
    pool = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    rows = Rows(pool, np.array([1, 2]))
    tensor, array = torch.as_tensor(rows), np.asarray(rows)
    assert array.dtype == dtype
    assert tensor.dtype == torch.from_numpy(pool).dtype
    assert tensor.tolist() == array.tolist() == [[1, 0], [1, 1]]
    # What is written to a copy does not reach the pool.
    tensor.fill_(0)
    array.fill(0)
    assert pool.astype(int).tolist() == [[0, 1], [1, 0], [1, 1]]


def test_the_last_entries_of_rows() -> None:
    stacks = Stacks(np.arange(10.0)[:, None, None], np.array([[0, 1, 2], [4, 5, 6], [7, 8, 9]]))
    for pool in (stacks, stacks[:]):
        rows = Rows(pool, np.array([2, 0]))
        assert rows.last(1)[:].tolist() == [[[[9.0]]], [[[2.0]]]]
        np.testing.assert_array_equal(rows.last(2)[:], rows[:][:, -2:])


def test_the_union_of_two_columns_has_every_row_once() -> None:
    pool = np.arange(7.0)
    first, second = Rows(pool, np.array([5, 1, 3])), Rows(pool, np.array([3, 6, 1]))
    both = union(first, second)
    assert both is not None
    assert both.rows[:].tolist() == [1, 3, 5, 6]
    assert both.rows[both.first].tolist() == [5, 1, 3]
    assert both.rows[both.second].tolist() == [3, 6, 1]
    assert union(first, Rows(pool.copy(), second.index)) is None
    assert union(first, pool[second.index]) is None


def test_rows_cannot_be_converted_without_a_copy() -> None:
    rows = Rows(np.arange(3.0), np.array([1]))
    with pytest.raises(ValueError, match="copy=False is impossible"):
        np.array(rows, copy=False)


def test_slices_keep_the_environment_and_the_end() -> None:
    batch = Transitions(
        np.arange(4.0)[:, None],
        np.arange(4),
        np.arange(1.0, 5.0)[:, None],
        env_index=np.array([0, 1, 0, 1]),
        ended=np.array([False, True, False, False]),
    )
    for which, rows in (
        (slice(1, 3), [1, 2]),
        (np.array([3, 0]), [3, 0]),
        (batch.env_index == 1, [1, 3]),
        (slice(0, 0), []),
    ):
        part = batch[which]
        assert part.env_index is not None
        assert part.ended is not None
        assert np.asarray(part.action).tolist() == rows
        assert part.env_index.tolist() == [row % 2 for row in rows]
        assert part.ended.tolist() == [row == 1 for row in rows]
    without = Transitions(batch.obs, batch.action, batch.next_obs)[1:]
    assert (without.env_index, without.ended) == (None, None)


@pytest.mark.parametrize("name", ["env_index", "ended"])
def test_columns_need_an_entry_for_each_transition(name: str) -> None:
    column = np.zeros(2, np.int64 if name == "env_index" else bool)
    with pytest.raises(ValueError, match=f"{name} must have one entry for each of the 3"):
        Transitions(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)), **{name: column})


def test_unit_range() -> None:
    low, high = np.array([0.0, -np.inf, -1.0]), np.array([10.0, np.inf, np.inf])
    unit = UnitRange.of(Box(low, high, dtype=np.float64))
    assert unit.centre.tolist() == [5, 0, 0]
    assert unit.half.tolist() == [5, 1, 1]
    assert unit.limit.tolist() == [1, np.inf, np.inf]


def test_bounds_that_cannot_scale_actions() -> None:
    """A single possible value; and the largest floats, which mean no bounds."""
    most = np.finfo(np.float32).max
    for dtype in (np.float32, np.float64):
        low, high = np.array([2.0, -most, -1.0], dtype), np.array([2.0, most, most], dtype)
        unit = UnitRange.of(Box(low, high, dtype=dtype))
        assert unit.centre.tolist() == [2, 0, 0]
        assert unit.half.tolist() == [0, 1, 1]
        assert unit.limit.tolist() == [1, np.inf, np.inf]
