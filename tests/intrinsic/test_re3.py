"""RE3 against a small NumPy version: neighbours, the pool, the scale and the bonus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.batch import Transitions
from emi.images import FrameStack
from emi.intrinsic import re3 as module
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.re3 import RE3, RE3Config, kth_distance

VECTOR, ACTIONS = Box(-np.inf, np.inf, (4,)), Discrete(3)
IMAGE = FrameStack(Box(0, 255, (2, 36, 36), np.uint8), 2)
SMALL = RE3Config(pool_size=50, features=6, hidden=(8,))


def batch(n: int, seed: int = 0, scale: float = 1.0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = (scale * rng.normal(size=(2, n, 4))).astype(np.float32)
    return Transitions(obs, rng.integers(0, 3, n), next_obs)


def images(n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.integers(0, 256, (2, n, 2, 36, 36), dtype=np.uint8)
    return Transitions(obs, rng.integers(0, 3, n), next_obs)


def embedded(method: RE3, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """y of vectors that are normalised by the moments of `seen`."""
    x = (rows - seen.mean(0)) / seen.std(0)
    for layer in method.encoder:
        if isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.double().numpy().T + layer.bias.double().numpy()
        else:
            x = np.where(x > 0, x, 0.2 * x)
    return x


def distances(y: np.ndarray, among: np.ndarray, k: int) -> np.ndarray:
    """To the k-th nearest; the rows of y are the last of `among`, and not their own neighbours."""
    table = np.linalg.norm(y[:, None] - among[None], axis=2)
    table[np.arange(len(y)), len(among) - len(y) + np.arange(len(y))] = np.inf
    return np.sort(table, 1)[:, k - 1]


def kth(y: Any, among: Any, own: list[int], k: int) -> list[float]:
    found = kth_distance(torch.tensor(y), torch.tensor(among), torch.tensor(own), k)
    return [round(value, 6) for value in found.tolist()]


def test_literal_distances() -> None:
    line = [[0.0], [1.0], [3.0], [7.0]]
    assert kth(line, line, [0, 1, 2, 3], 1) == [1, 1, 2, 4]
    assert kth(line, line, [0, 1, 2, 3], 2) == [3, 2, 3, 6]
    assert kth(line, line, [0, 1, 2, 3], 9) == [7, 6, 4, 7]  # the farthest
    assert kth([[2.0]], line, [-1], 1) == [1]
    assert kth([[3.0]], line, [-1], 1) == [0]  # visited before
    assert kth([[5.0, 1.0]], [[5.0, 1.0]], [0], 3) == [0]  # no neighbour


def test_small_distances_far_from_the_origin_are_exact() -> None:
    """‖a‖² − 2ab + ‖b‖² alone would lose all digits of these."""
    line = [[1e4], [1e4 + 0.0625], [1e4 + 0.1875]]
    assert kth(line, line, [0, 1, 2], 1) == [0.0625, 0.0625, 0.125]


def test_chunks_give_the_same_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    own = torch.arange(40)
    whole = kth_distance(y, y, own, 3)
    monkeypatch.setattr(module, "CHUNK", 3 * 40)
    torch.testing.assert_close(kth_distance(y, y, own, 3), whole)
    np.testing.assert_allclose(whole, distances(y.numpy(), y.numpy(), 3), rtol=1e-5)


def test_the_bonus_of_three_batches() -> None:
    """The pool of 50 keeps the newest; moments are those of earlier batches, the first has its own.

    All distances so far, this batch included, give the scale.
    """
    method, kept, all_distances = RE3(VECTOR, ACTIONS, SMALL), np.zeros((0, 4)), np.zeros(0)
    for number in range(4):
        rows = batch(20, number, scale=1 + number)
        new = rows.next_obs.astype(np.float64)
        seen = new if number == 0 else kept
        among = np.concatenate([kept, new])[-50:]
        d = distances(embedded(method, new, seen), embedded(method, among, seen), 3)
        all_distances = np.concatenate([all_distances, d])
        expected = np.log(1 + d / all_distances.std())
        np.testing.assert_allclose(method.reward(rows), expected, rtol=1e-4)
        bonus, scalars = score_and_learn(method, rows)
        np.testing.assert_allclose(bonus, expected, rtol=1e-4)
        assert scalars == {
            "re3/distance": pytest.approx(d.mean(), rel=1e-4),
            "re3/distance_std": pytest.approx(all_distances.std(), rel=1e-4),
            "re3/pool": min(20 * number, 50),
        }
        kept = np.concatenate([kept, new])


def test_a_batch_larger_than_the_pool_is_compared_with_its_last_rows() -> None:
    method, rows = RE3(VECTOR, ACTIONS, SMALL), batch(80)
    y = embedded(method, rows.next_obs, rows.next_obs)
    table = np.linalg.norm(y[:, None] - y[None, -50:], axis=2)
    table[np.arange(30, 80), np.arange(50)] = np.inf
    d = np.sort(table, 1)[:, 2]
    np.testing.assert_allclose(method.reward(rows), np.log(1 + d / d.std()), rtol=1e-4)
    method.learn(rows)
    assert torch.equal(method.pool.rows, torch.from_numpy(rows.next_obs[-50:]))


def test_images_are_kept_as_embeddings() -> None:
    method, rows = RE3(IMAGE, ACTIONS, SMALL), images(6)
    method.learn(rows)
    assert method.pool.rows.shape == (6, 6)
    same = Transitions(rows.obs, rows.action, rows.next_obs[[0, 0, 0, 1, 2, 3]])
    # Three copies of one image and the pool's: its third neighbour is at distance 0.
    bonus = method.reward(same)
    torch.testing.assert_close(bonus[:3], torch.zeros(3), atol=1e-3, rtol=0)
    assert (bonus[3:] > 0.1).all()


def test_equal_states_have_no_bonus_and_no_division_by_zero() -> None:
    method = RE3(VECTOR, ACTIONS, SMALL)
    one = np.ones((5, 4), np.float32)
    bonus, scalars = score_and_learn(method, Transitions(one, np.zeros(5), one))
    assert bonus.tolist() == [0] * 5
    assert scalars["re3/distance_std"] == 0


def test_the_unit_of_vectors_does_not_matter() -> None:
    def after_two(scale: float) -> torch.Tensor:
        method = RE3(VECTOR, ACTIONS, SMALL)
        for number in range(2):
            bonus, _ = score_and_learn(method, batch(20, number, scale))
        return bonus

    torch.testing.assert_close(after_two(1.0), after_two(1024.0), rtol=1e-3, atol=1e-4)
    raw = RE3(VECTOR, ACTIONS, SMALL, normalize=False)
    assert raw.observed is None
    assert torch.isfinite(raw.reward(batch(20))).all()


def test_the_bonus_grows_with_the_entropy_of_the_states() -> None:
    """States in one corner of a room, or all over it: the mean bonus in the same units."""
    rng = np.random.default_rng(0)
    method = RE3(VECTOR, ACTIONS, RE3Config(pool_size=500))
    room = rng.uniform(-1, 1, (400, 4)).astype(np.float32)
    method.learn(Transitions(room, np.zeros(400), room))
    corner = (0.8 + 0.2 * rng.uniform(0, 1, (100, 4))).astype(np.float32)
    wide = rng.uniform(-1, 1, (100, 4)).astype(np.float32)
    low, high = (method.reward(Transitions(x, np.zeros(100), x)).mean() for x in (corner, wide))
    assert low < 0.7 * high
