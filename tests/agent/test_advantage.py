"""Generalised advantages in closed form, for each of the three ends."""

from __future__ import annotations

import numpy as np
import pytest

from emi.agent.advantage import bootstrapped, gae, standardise, successor_values
from emi.agent.rollout import Rollout
from emi.batch import FloatArray, Rows


def grid(*rows: list[float]) -> FloatArray:
    return np.array(rows, float)


def rollout(terminated: list[list[int]], truncated: list[list[int]]) -> Rollout:
    """Observations are their own row numbers; successors at ends are rows of their own."""
    t, e = np.array(terminated, bool), np.array(truncated, bool)
    time, env = t.shape
    rows = np.arange((time + 1) * env).reshape(time + 1, env)
    next_index = rows[1:].copy()
    ends = np.flatnonzero((t | e).reshape(-1))
    next_index.reshape(-1)[ends] = rows.size + np.arange(len(ends))
    pool = np.arange(rows.size + len(ends), dtype=np.float32)[:, None]
    clock = np.zeros((time, env), np.int64)
    for step in range(1, time):
        clock[step] = np.where((t | e)[step - 1], 0, clock[step - 1] + 1)
    return Rollout(
        pool=pool,
        index=rows[:-1],
        next_index=next_index,
        action=np.zeros((time, env)),
        reward=np.zeros((time, env)),
        terminated=t,
        truncated=e,
        clock=clock,
        valid=np.ones((time, env), bool),
        episode_returns=np.zeros(0),
    )


def test_lambda_one_is_return_minus_value() -> None:
    reward, value = grid([1.0], [2.0], [4.0]), grid([10.0], [20.0], [30.0])
    after = grid([20.0], [30.0], [0.0])
    ended = np.array([[False], [False], [True]])
    advantage = gae(reward, value, after, ended, discount=0.5, gae_lambda=1.0)
    returns = grid([1 + 0.5 * (2 + 0.5 * 4)], [2 + 0.5 * 4], [4.0])
    np.testing.assert_allclose(advantage, returns - value)


def test_lambda_zero_is_the_one_step_error() -> None:
    reward, value = grid([1.0], [2.0]), grid([10.0], [20.0])
    after = grid([20.0], [7.0])
    advantage = gae(reward, value, after, np.zeros((2, 1), bool), discount=0.9, gae_lambda=0.0)
    np.testing.assert_allclose(advantage, [[1 + 18 - 10], [2 + 6.3 - 20]])


def test_no_trace_crosses_an_end() -> None:
    reward = grid([0.0, 0.0], [0.0, 0.0], [100.0, 100.0])
    ended = np.array([[False, False], [True, False], [False, False]])
    zeros = np.zeros((3, 2))
    advantage = gae(reward, zeros, zeros, ended, discount=1.0, gae_lambda=1.0)
    np.testing.assert_array_equal(advantage, [[0, 100], [0, 100], [100, 100]])


@pytest.mark.parametrize("bootstrap", [False, True])
def test_the_three_ends(bootstrap: bool) -> None:
    # Environments: terminated, timed out, both at once, and cut by the end of the batch.
    run = rollout(
        terminated=[[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]],
        truncated=[[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]],
    )
    calls: list[list[float]] = []

    def predict_after(obs: Rows) -> FloatArray:
        calls.append(obs[:][:, 0].tolist())
        return 1000.0 + obs[:][:, 0].astype(float)

    value = np.arange(12.0).reshape(3, 4)
    cut = bootstrapped(run, bootstrap_timeouts=bootstrap)
    after = successor_values(run, value, cut, predict_after)
    # Rows 12 to 15 begin no step (cut); 16, 17, 18 are the true last observations of episodes.
    timeout = 1017.0 if bootstrap else 0.0
    np.testing.assert_array_equal(
        after, [[4, 5, 6, 7], [0, timeout, 0, 11], [1012, 1013, 1014, 1015]]
    )
    assert calls == [[17, 12, 13, 14, 15] if bootstrap else [12, 13, 14, 15]]


def test_an_end_on_the_last_step_is_not_cut() -> None:
    run = rollout(terminated=[[0, 1]], truncated=[[1, 0]])
    assert not bootstrapped(run, bootstrap_timeouts=False).any()
    np.testing.assert_array_equal(bootstrapped(run, bootstrap_timeouts=True), [[True, False]])


def test_standardise() -> None:
    out = standardise(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(out, [-1.22474487, 0, 1.22474487], atol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 1.0, -3e7, 0.1])
def test_equal_advantages_become_zero(constant: float) -> None:
    # Rounding leaves 1e-17 here and there; scaled up it would be a full step in a random direction.
    np.testing.assert_array_equal(standardise(np.full(1001, constant)), np.zeros(1001))
