"""The shared vocabulary refuses mixed-up axes and gathers rows lazily."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from emi.agent.rollout import Rollout
from emi.batch import Rows, Transitions
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


def test_a_transposed_grid_is_refused() -> None:
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
    part = batch[np.array([3, 0])]
    assert np.asarray(part.obs).ravel().tolist() == [4, 0]
    assert len(part) == 2


def test_transitions_need_one_length() -> None:
    with pytest.raises(ValueError, match="must have one length, got 3, 2 and 3"):
        Transitions(np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((3, 1)))


def test_rows_share_their_pool() -> None:
    pool = np.arange(4.0)
    rows = Rows(pool, np.array([2, 0]))
    pool[2] = 9
    assert rows[:].tolist() == [9, 0]
    assert len(rows) == 2


def test_unit_range() -> None:
    low, high = np.array([0.0, -np.inf, -1.0]), np.array([10.0, np.inf, np.inf])
    unit = UnitRange.of(Box(low, high, dtype=np.float64))
    assert unit.centre.tolist() == [5, 0, 0]
    assert unit.half.tolist() == [5, 1, 1]
    assert unit.limit.tolist() == [1, np.inf, np.inf]


def test_bounds_that_no_action_can_be_measured_by() -> None:
    """A single value, and the largest numbers there are, which stand for no bounds."""
    most = np.finfo(np.float32).max
    for dtype in (np.float32, np.float64):
        low, high = np.array([2.0, -most, -1.0], dtype), np.array([2.0, most, most], dtype)
        unit = UnitRange.of(Box(low, high, dtype=dtype))
        assert unit.centre.tolist() == [2, 0, 0]
        assert unit.half.tolist() == [0, 1, 1]
        assert unit.limit.tolist() == [1, np.inf, np.inf]
