"""Value functions: what they represent exactly, and that their whole state is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from emi.agent.value import (
    LinearFeatureValue,
    NetworkValue,
    ValueConfig,
    explained_variance,
    features,
    make_value,
    past_weight,
)
from emi.batch import Rows

VECTOR = Box(-np.inf, np.inf, (2,))
IMAGE = Box(0, 255, (52, 52), np.uint8)


def rows(array: np.ndarray) -> Rows:
    return Rows(array, np.arange(len(array)))


def test_features_are_those_of_the_linear_baseline() -> None:
    out = features(torch.tensor([[3.0, -20.0]]), torch.tensor([200]))
    assert out.tolist() == [[3, -10, 9, 100, 2, 4, 8, 1]]


def test_linear_recovers_a_function_of_its_features_and_starts_at_zero() -> None:
    rng = np.random.default_rng(0)
    obs, clock = rng.normal(size=(300, 2)).astype(np.float32), rng.integers(0, 500, 300)
    target = 2 * obs[:, 0].astype(float) - obs[:, 1].astype(float) ** 2 + 0.03 * clock - 1
    value = make_value(VECTOR, ValueConfig(), torch.Generator())
    assert isinstance(value, LinearFeatureValue)
    np.testing.assert_array_equal(value.predict(rows(obs), clock), np.zeros(300))
    value.fit(rows(obs), clock, target, rng)
    np.testing.assert_allclose(value.predict(rows(obs), clock), target, atol=1e-4)


def test_the_weight_of_earlier_batches() -> None:
    assert past_weight(0.9, 0, 7) == 0.9
    assert past_weight(0.9, 20, 0) == 0.9
    assert past_weight(0.8, 20, 5) == pytest.approx(0.6)
    assert past_weight(0.9, 20, 30) == 0


@pytest.mark.parametrize("rewarded", [0, 1])
def test_a_memory_is_a_weighted_least_squares_over_all_batches(rewarded: int) -> None:
    rng = np.random.default_rng(0)
    batches = [
        (rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 500, 40), rng.normal(size=40))
        for _ in range(3)
    ]
    value = LinearFeatureValue(VECTOR, ValueConfig(memory=0.5, memory_episodes=4))
    for obs, clock, target in batches:
        value.fit(rows(obs), clock, target, rng, rewarded=rewarded)
    w = 0.5 if rewarded == 0 else 0.375  # 0.5 · (1 − 1/4)
    x = [features(torch.as_tensor(o), torch.as_tensor(c)).numpy() for o, c, _ in batches]
    weights = np.repeat([w**2, w, 1.0], 40) ** 0.5
    y = np.concatenate([target for _, _, target in batches])
    solution, *_ = np.linalg.lstsq(weights[:, None] * np.concatenate(x), weights * y, rcond=None)
    np.testing.assert_allclose(value.coefficients, solution, rtol=1e-3, atol=1e-5)
    # A copy of the state continues with the same memory.
    copied = LinearFeatureValue(VECTOR, ValueConfig(memory=0.5, memory_episodes=4))
    copied.load_state_dict(value.state_dict())
    for either in (value, copied):
        either.fit(rows(batches[0][0]), batches[0][1], batches[0][2], rng)
    torch.testing.assert_close(value.coefficients, copied.coefficients, rtol=0, atol=0)


def test_linear_survives_constant_observations() -> None:
    value = make_value(VECTOR, ValueConfig(), torch.Generator())
    obs = np.ones((50, 2), np.float32)
    value.fit(rows(obs), np.zeros(50, np.int64), np.full(50, 7.0), np.random.default_rng(0))
    np.testing.assert_allclose(value.predict(rows(obs), np.zeros(50, np.int64)), 7.0, atol=1e-3)


def test_the_value_after_a_cut_does_not_depend_on_time_and_stays_in_the_range_of_returns() -> None:
    value = make_value(VECTOR, ValueConfig(), torch.Generator())
    obs = np.array([[x, 0.0] for x in (0.0, 1.0, 2.0, 3.0)], np.float32)
    clock, rng = np.arange(4) * 50, np.random.default_rng(0)
    np.testing.assert_array_equal(value.predict_after(rows(obs)), np.zeros(4))
    value.fit(rows(obs), clock, np.array([5.0, 6.0, 7.0, 8.0]), rng)  # whole episodes only
    np.testing.assert_array_equal(value.predict_after(rows(obs)), np.zeros(4))
    value.fit(rows(obs), clock, np.array([5.0, 6.0, 7.0, 8.0]), rng, cut=True)
    far = np.array([[-9.0, 0.0], [0.5, 0.0], [9.0, 0.0]], np.float32)
    np.testing.assert_allclose(value.predict_after(rows(far)), [5.0, 5.5, 8.0], atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_returns_that_are_bootstrapped_again_and_again_stay_bounded(seed: int) -> None:
    """|R| ≤ max |r| / (1 − γ), for paths that are cut after 10 steps and any observations."""
    rng, discount, steps = np.random.default_rng(seed), 0.9, 10
    value = make_value(VECTOR, ValueConfig(), torch.Generator())
    clock = np.arange(steps)
    for _ in range(300):
        obs = rng.normal(size=(steps + 1, 2)).cumsum(0).astype(np.float32)
        returns = np.append(rng.uniform(-1, 1, steps), value.predict_after(rows(obs[-1:])))
        for t in range(steps - 1, -1, -1):
            returns[t] += discount * returns[t + 1]
        assert np.abs(returns).max() <= 1 / (1 - discount)
        value.fit(rows(obs[:-1]), clock, returns[:-1], rng, cut=True)


def test_a_cut_run_keeps_its_second_fit_in_its_state() -> None:
    obs = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    first, second, whole = (LinearFeatureValue(VECTOR, ValueConfig()) for _ in range(3))
    rng = np.random.default_rng(0)
    whole.fit(rows(obs), np.arange(64), obs[:, 0].astype(float), rng)
    assert whole.state_dict().keys() == {"coefficients"}  # as before there was a second fit
    first.fit(rows(obs), np.arange(64), obs[:, 0].astype(float), rng, cut=True)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.predict_after(rows(obs)), first.predict_after(rows(obs)))
    second.load_state_dict(whole.state_dict())
    np.testing.assert_array_equal(second.predict_after(rows(obs)), np.zeros(64))
    with pytest.raises(RuntimeError, match="size mismatch for after"):
        second.load_state_dict(first.state_dict() | {"after": torch.zeros(3)})
    with pytest.raises(RuntimeError, match="Missing key"):
        second.load_state_dict({k: v for k, v in first.state_dict().items() if k != "after_range"})


def test_images_are_valued_by_the_papers_convolutions() -> None:
    value = make_value(
        Box(0, 255, (4, 52, 52), np.uint8), ValueConfig(kind="network"), torch.Generator()
    )
    assert isinstance(value, NetworkValue)
    convs = [layer for layer in value.trunk if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size, c.stride) for c in convs] == [
        (4, 16, (8, 8), (4, 4)),
        (16, 32, (4, 4), (2, 2)),
    ]
    assert (value.head.in_features, value.head.out_features) == (256, 1)


@pytest.mark.parametrize("space", [VECTOR, IMAGE])
def test_network_learns(space: Box) -> None:
    rng = np.random.default_rng(0)
    if space is VECTOR:
        obs = rng.normal(size=(256, 2)).astype(np.float32)
        target = obs[:, 0].astype(float)
    else:
        level = rng.integers(0, 256, 256)
        obs = np.broadcast_to(level[:, None, None], (256, 52, 52)).astype(np.uint8)
        target = level / 128 - 1
    config = ValueConfig(kind="network", epochs=20, minibatch=32)
    value = make_value(space, config, torch.Generator().manual_seed(0))
    clock = np.zeros(256, np.int64)
    before = np.mean((value.predict(rows(obs), clock) - target) ** 2)
    value.fit(rows(obs), clock, target, rng)
    assert np.mean((value.predict(rows(obs), clock) - target) ** 2) < 0.1 * before


def test_network_state_includes_the_optimizer() -> None:
    obs, clock = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32), np.arange(64)
    config = ValueConfig(kind="network", minibatch=16)

    def fit(value: NetworkValue, seed: int) -> None:
        value.fit(rows(obs), clock, obs[:, 0].astype(float), np.random.default_rng(seed))

    first = NetworkValue(VECTOR, config, torch.Generator().manual_seed(0))
    fit(first, 0)
    second = NetworkValue(VECTOR, config, torch.Generator().manual_seed(9))
    second.load_state_dict(first.state_dict())
    fit(first, 1)
    fit(second, 1)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_batch_smaller_than_a_minibatch_is_still_learnt_from() -> None:
    value = NetworkValue(VECTOR, ValueConfig(kind="network"), torch.Generator().manual_seed(0))
    before = value.head.weight.clone()
    value.fit(
        rows(np.ones((1, 2), np.float32)),
        np.zeros(1, np.int64),
        np.ones(1),
        np.random.default_rng(0),
    )
    assert not torch.equal(before, value.head.weight)


def test_images_need_the_network() -> None:
    with pytest.raises(ValueError, match=r"value\.kind=network"):
        make_value(IMAGE, ValueConfig(), torch.Generator())


def test_explained_variance() -> None:
    target = np.array([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(np.zeros(3), target) == 0
    assert explained_variance(-target, target) == -3
    assert explained_variance(target, np.ones(3)) == 0
