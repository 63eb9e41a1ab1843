"""Noise: the distribution of the bonus, and that it carries no information."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from emi.batch import Transitions
from emi.intrinsic.noise import Noise, NoiseConfig, exponential

SPACES = Box(-np.inf, np.inf, (3,)), Discrete(2)


def batch(n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, n, 3)).astype(np.float32)
    return Transitions(obs, rng.integers(0, 2, n), next_obs)


def test_the_bonus_is_exponential_with_the_given_mean() -> None:
    bonus = Noise(*SPACES, NoiseConfig(mean=2.5)).reward(batch(200_000)).double()
    assert bonus.min() >= 0
    assert bonus.mean().item() == pytest.approx(2.5, rel=0.02)
    assert bonus.std().item() == pytest.approx(2.5, rel=0.02)
    # The median of Exp(1) is log 2.
    assert bonus.median().item() == pytest.approx(2.5 * np.log(2), rel=0.02)


def test_bonuses_are_independent_of_each_other_and_of_the_batch_before() -> None:
    noise = Noise(*SPACES)
    first = noise.reward(batch(50_000)).numpy()
    noise.learn(batch(50_000))
    second = noise.reward(batch(50_000)).numpy()
    for a, b in ((first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.02  # 4.5 standard errors


def test_the_bonus_depends_on_the_number_of_batches_and_not_on_the_transitions() -> None:
    noise = Noise(*SPACES, seed=3)
    before = noise.reward(batch(50, seed=0))
    assert torch.equal(before, noise.reward(batch(50, seed=1)))
    assert torch.equal(before[:20], noise.reward(batch(20)))
    assert noise.learn(batch(50)) == {"noise/batches": 1.0}
    assert not torch.equal(before, noise.reward(batch(50)))
    np.testing.assert_array_equal(before, exponential(3, 0, 50).astype(np.float32))


def test_any_seed_of_64_bits_is_a_key() -> None:
    """A stored seed or count that was changed still gives finite bonuses."""
    assert np.isfinite(exponential(-(2**63), -1, 10)).all()
    assert not np.array_equal(exponential(0, 1, 10), exponential(1, 0, 10))


def test_any_space_will_do_because_nothing_is_read() -> None:
    noise = Noise(Dict({"a": SPACES[0]}), Dict({"b": SPACES[1]}))
    obs, action = {"a": np.zeros((4, 3), np.float32)}, {"b": np.zeros(4, np.int64)}
    assert noise.reward(Transitions(obs, action, obs)).shape == (4,)
