"""NovelD against a few lines of NumPy: novelty, the difference, and first visits."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.batch import Rows, Transitions
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.noveld import NovelD, NovelDConfig, novelty_difference
from emi.intrinsic.rnd import RND, RNDConfig

GRID, ACTIONS = Box(0, 9, (2,), np.int64), Discrete(4)
SMALL = NovelDConfig(features=8, hidden=(8,))


def walk(n: int, seed: int = 0, envs: int = 1, states: int = 6) -> Transitions:
    """Random states of a grid; s' of a row is s of the next one of its environment."""
    rng = np.random.default_rng(seed)
    path = rng.integers(0, states, (n // envs + 1, envs, 2))
    ended = rng.random(n) < 0.1
    env_index = np.arange(n) % envs
    obs, next_obs = (part.reshape(n, 2) for part in (path[:-1], path[1:]))
    return Transitions(obs, np.zeros(n, np.int64), next_obs, env_index, ended)


def forward(net: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        else:
            x = np.where(x > 0, x, 0.2 * x if isinstance(layer, torch.nn.LeakyReLU) else 0)
    return x


def novelty(method: NovelD, states: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """‖f̂ − f‖₂ of states that are whitened by the moments of `seen`."""
    x = np.clip((states - seen.mean(0)) / seen.std(0), -5, 5)
    return np.linalg.norm(forward(method.rnd.predictor, x) - forward(method.rnd.target, x), axis=1)


def first_visits(batch: Transitions) -> np.ndarray:
    seen: dict[int, set[tuple[int, ...]]] = {}
    first = []
    for state, env, ended in zip(batch.next_obs, batch.env_index, batch.ended, strict=True):
        visited = seen.setdefault(int(env), set())
        first.append(tuple(state) not in visited)
        visited.add(tuple(state))
        if ended:
            visited.clear()
    return np.array(first)


def test_literal_differences() -> None:
    before, after = torch.tensor([4.0, 4.0, 0.0]), torch.tensor([3.0, 1.0, 2.0])
    assert novelty_difference(before, after, 0.5).tolist() == [1.0, 0.0, 2.0]
    assert novelty_difference(before, after, 0.0).tolist() == [3.0, 1.0, 2.0]


def test_the_bonus_of_a_first_and_of_a_trained_batch() -> None:
    method, batch = NovelD(GRID, ACTIONS, SMALL), walk(120, envs=3)
    seen = np.concatenate([batch.obs, batch.next_obs])  # before the first training
    for number in range(2):
        start, end = (novelty(method, x, seen) for x in (batch.obs, batch.next_obs))
        first = first_visits(batch)
        assert 0.2 < first.mean() < 0.95
        expected = np.maximum(end - 0.5 * start, 0) * first
        np.testing.assert_allclose(method.reward(batch), expected, rtol=1e-4, atol=1e-5)
        bonus, scalars = score_and_learn(method, batch)
        np.testing.assert_allclose(bonus, expected, rtol=1e-4, atol=1e-5)
        assert scalars["noveld/novelty"] == pytest.approx(end.mean(), rel=1e-4)
        assert scalars["noveld/first_visits"] == pytest.approx(first.mean())
        seen = batch.next_obs if number == 0 else seen
        method.forget(range(3))


def test_the_predictor_is_trained_like_that_of_rnd() -> None:
    method, batch = NovelD(GRID, ACTIONS, SMALL, seed=3), walk(60)
    rnd = RND(GRID, ACTIONS, RNDConfig(features=8, hidden=(8,)), seed=3)
    for _ in range(2):
        assert method.learn(batch)["noveld/loss"] == rnd.learn(batch)["rnd/loss"]
    for ours, theirs in zip(method.rnd.parameters(), rnd.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_going_back_and_forth_earns_nothing() -> None:
    method = NovelD(GRID, ACTIONS, SMALL)
    a, b = np.array([[1, 1]]), np.array([[5, 8]])
    obs, next_obs = np.concatenate([a, b] * 4), np.concatenate([b, a] * 4)
    batch = Transitions(obs, np.zeros(8), next_obs, np.zeros(8, np.int64), np.zeros(8, bool))
    method.learn(walk(60))
    method.forget([0])
    assert (method.reward(batch)[2:] == 0).all()
    assert (method.reward(batch)[:2] > 0).any()


def test_the_memory_continues_in_the_next_batch_and_in_a_copy() -> None:
    method, batch = NovelD(GRID, ACTIONS, SMALL), walk(30)
    quiet = Transitions(
        batch.obs, batch.action, batch.next_obs, batch.env_index, np.zeros(30, bool)
    )
    method.learn(quiet)
    assert (method.reward(quiet) == 0).all()  # all of it was visited
    other = NovelD(GRID, ACTIONS, SMALL, seed=9)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    assert (other.reward(quiet) == 0).all()
    other.forget([0])
    assert (other.reward(quiet) > 0).any()
    assert (method.reward(quiet) == 0).all()


def test_rows_of_a_pool_give_the_same_bonus() -> None:
    batch = walk(40)
    pool = np.concatenate([batch.obs, batch.next_obs[-1:]])
    rows = Transitions(
        Rows(pool, np.arange(40)),
        batch.action,
        Rows(pool, np.arange(1, 41)),
        batch.env_index,
        batch.ended,
    )
    method = NovelD(GRID, ACTIONS, SMALL)
    method.learn(batch)
    torch.testing.assert_close(method.reward(rows), method.reward(batch))
