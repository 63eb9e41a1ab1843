"""Pseudo-counts against NumPy: the neighbours of an episode, the kernel and the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from known_unknown import DISCRETE, VECTOR

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.neighbours import Nearest, Neighbours
from emi.intrinsic.pseudo_counts import PseudoCounts, PseudoCountsConfig, episodic_bonus

SMALL = PseudoCountsConfig(neighbours=3, width=4, minibatch=32)


def walk(n: int, envs: int, seed: int, ends: float = 0.1) -> Transitions:
    """Rows on a few places, so that states repeat; every s is the s' before it, unless it ended."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.integers(0, 4, (2, n, 4)).astype(np.float32)
    ended = rng.random(n) < ends
    for i in range(envs, n):
        obs[i] = obs[i] if ended[i - envs] else next_obs[i - envs]
    return Transitions(obs, rng.integers(0, 4, n), next_obs, np.arange(n) % envs, ended)


class Oracle:
    """Algorithm 1 of NGU, one step at a time."""

    def __init__(self, config: PseudoCountsConfig) -> None:
        self.config, self.states, self.all_distances = config, [], []

    def score(self, start: np.ndarray, after: np.ndarray, ended: bool) -> float:
        c = self.config
        self.states = self.states or [start]
        squared = np.sort([((after - s) ** 2).sum() for s in self.states[-c.capacity :]])
        nearest = squared[: c.neighbours]
        self.all_distances += list(nearest)
        distance = np.maximum(nearest / np.mean(self.all_distances) - c.cluster_distance, 0)
        similarity = np.sqrt((c.kernel_epsilon / (distance + c.kernel_epsilon)).sum()) + c.constant
        self.states = [] if ended else [*self.states, after]
        return 0.0 if similarity > c.max_similarity else 1 / similarity


@pytest.mark.parametrize("changes", [{}, {"capacity": 5}, {"max_similarity": 1.5}])
def test_the_bonus_against_numpy(changes: dict[str, Any]) -> None:
    """Over several batches with changing numbers of environments; φ is trained in between."""
    config = PseudoCountsConfig(**{**vars(SMALL), **changes})
    method = PseudoCounts(VECTOR, DISCRETE, config, seed=1, normalize=False)
    oracles = [Oracle(config) for _ in range(3)]
    for k, envs in enumerate((1, 3, 2, 3)):
        batch = walk(60, envs, k)
        obs, after = (method.embed_state(x).double().numpy() for x in (batch.obs, batch.next_obs))
        bonus, scalars = score_and_learn(method, batch)
        expected = [
            oracles[i % envs].score(obs[i], after[i], bool(ended))
            for i, ended in enumerate(np.asarray(batch.ended))
        ]
        np.testing.assert_allclose(bonus, expected, rtol=1e-3)
        everything = np.concatenate([oracle.all_distances for oracle in oracles])
        assert scalars["pseudo_counts/distance"] == pytest.approx(
            everything.mean() ** 0.5, rel=1e-4
        )
    lengths = method.memory.get_extra_state()["length"].tolist()
    assert lengths == [min(len(oracle.states), config.capacity) for oracle in oracles]


def test_the_kernel_by_hand() -> None:
    """Three neighbours of which two are equal to s', in an episode of three states."""
    squared = torch.tensor([[[0.0, 0.008, 1.0, torch.inf]]])
    found = Nearest(squared, torch.ones(1, 1, dtype=torch.float64))
    bonus = episodic_bonus(found, PseudoCountsConfig())
    count = 1 + 1 + 0.001 / (1 - 0.008 + 0.001)
    assert bonus.item() == pytest.approx(1 / (count**0.5 + 0.001))
    assert episodic_bonus(found, PseudoCountsConfig(max_similarity=1.4)).item() == 0


def test_a_state_at_rest_is_worth_one_over_the_root_of_its_visits() -> None:
    method = PseudoCounts(VECTOR, DISCRETE, PseudoCountsConfig(), normalize=False)
    rest = np.ones((30, 4), np.float32)
    bonus = method.reward(Transitions(rest, np.zeros(30, np.int64), rest))
    visits = np.minimum(np.arange(1, 31), 10)  # at most the k nearest are counted
    np.testing.assert_allclose(bonus, 1 / (np.sqrt(visits) + 0.001), rtol=1e-6)


def test_the_memory_is_as_long_as_the_longest_episode_and_never_longer_than_its_capacity() -> None:
    method = PseudoCounts(VECTOR, DISCRETE, PseudoCountsConfig(capacity=12, width=4, minibatch=32))
    shapes = []
    for k in range(4):
        method.learn(walk(16, 2, k, ends=0))
        shapes.append(method.memory.get_extra_state()["phi"].shape)
    assert shapes == [(2, 9, 4), (2, 12, 4), (2, 12, 4), (2, 12, 4)]
    method.forget([0, 1])
    assert method.memory.get_extra_state()["phi"].shape == (2, 0, 4)


def test_blocks_give_the_same_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = PseudoCounts(VECTOR, DISCRETE, SMALL), walk(90, 3, 0)
    whole = method.reward(batch)
    monkeypatch.setattr("emi.intrinsic.neighbours.BLOCK_ENTRIES", 200)
    assert torch.equal(method.reward(batch), whole)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("phi", torch.zeros(2, 9, 4), r"5 places"),
        ("phi", torch.zeros(2, 5, 3), "shape"),
        ("phi", torch.zeros(2, 5), r"\[env, places, features\]"),
        ("length", torch.tensor([6, 0]), "5 or less"),
        ("length", torch.tensor([-1, 0]), "0 or more"),
        ("count", torch.zeros(3, dtype=torch.float64), "shape"),
    ],
)
def test_a_stored_memory_is_checked(name: str, value: torch.Tensor, words: str) -> None:
    memory = Neighbours(width=4, k=3, capacity=5)
    zeros = torch.zeros(2, dtype=torch.float64)
    length = torch.tensor([5, 2])
    state = {"phi": torch.zeros(2, 5, 4), "length": length, "sum": zeros, "count": zeros}
    memory.set_extra_state(state)
    assert len(memory) == 2
    with pytest.raises(UserError, match=words):
        memory.set_extra_state(state | {name: value})
