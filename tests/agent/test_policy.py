"""Policies against torch.distributions, and their NumPy actors against their networks."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from emi.agent.policy import CategoricalPolicy, GaussianPolicy, PolicyConfig, actor, make_policy
from emi.nets import Activation

VECTOR = Box(-np.inf, np.inf, (5,))
IMAGE = Box(0, 255, (4, 52, 52), np.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(parameters: torch.Tensor) -> Independent:
    mean, log_std = parameters.chunk(2, dim=1)
    return Independent(Normal(mean, log_std.exp()), 1)


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed))


def test_gaussian_functions_agree_with_torch() -> None:
    policy = make_policy(VECTOR, Box(-1, 1, (3,)), PolicyConfig(), generator())
    old, new, action = random_tensor(7, 6), random_tensor(7, 6, seed=1), random_tensor(7, 3, seed=2)
    torch.testing.assert_close(policy.log_prob(old, action), gaussian(old).log_prob(action))
    torch.testing.assert_close(policy.kl(old, new), kl_divergence(gaussian(old), gaussian(new)))
    torch.testing.assert_close(policy.entropy(old), gaussian(old).entropy())


def test_categorical_functions_agree_with_torch() -> None:
    policy = make_policy(VECTOR, Discrete(4), PolicyConfig(), generator())
    old, new = random_tensor(7, 4), random_tensor(7, 4, seed=1)
    action = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    p, q = Categorical(logits=old), Categorical(logits=new)
    torch.testing.assert_close(policy.log_prob(old, action), p.log_prob(action))
    torch.testing.assert_close(policy.kl(old, new), kl_divergence(p, q))
    torch.testing.assert_close(policy.entropy(old), p.entropy())


def test_fisher_is_the_hessian_of_the_kl() -> None:
    for policy, width in (
        (make_policy(VECTOR, Box(-1, 1, (2,)), PolicyConfig(), generator()), 4),
        (make_policy(VECTOR, Discrete(3), PolicyConfig(), generator()), 3),
    ):
        at = random_tensor(1, width)
        hessian = torch.autograd.functional.hessian(
            lambda new, policy=policy, at=at: policy.kl(at, new[None])[0], at[0]
        )
        columns = [policy.fisher(at)(unit[None])[0] for unit in torch.eye(width)]
        torch.testing.assert_close(torch.stack(columns, 1), hessian, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [VECTOR, IMAGE, Box(-9, 9, (2, 3))])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_the_numpy_actor_is_the_network(space: Box, activation: str) -> None:
    config = PolicyConfig(hidden=(8, 4), activation=activation)  # type: ignore[arg-type]
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(6)])
    continuous = make_policy(space, Box(-1, 1, (2,)), config, generator())
    assert isinstance(continuous, GaussianPolicy)
    mean = continuous(torch.as_tensor(obs))[:, :2].detach().numpy()
    np.testing.assert_allclose(continuous.mode(obs), mean, rtol=1e-4, atol=1e-5)
    discrete = make_policy(space, Discrete(3), config, generator())
    logits = discrete(torch.as_tensor(obs)).detach().numpy()
    np.testing.assert_array_equal(discrete.mode(obs), logits.argmax(1))


def test_gaussian_samples_have_the_policys_mean_and_std() -> None:
    config = PolicyConfig(init_std=0.5)
    policy = make_policy(VECTOR, Box(-1, 1, (2,)), config, generator())
    obs = np.repeat(np.ones((1, 5), np.float32), 20_000, axis=0)
    draws = actor(policy, np.random.default_rng(0))(obs)
    assert draws.shape == (20_000, 2)
    np.testing.assert_allclose(draws.mean(0), policy.mode(obs[:1])[0], atol=0.02)
    np.testing.assert_allclose(draws.std(0), 0.5, atol=0.02)


def test_categorical_samples_have_the_policys_frequencies() -> None:
    policy = make_policy(VECTOR, Discrete(3, start=5), PolicyConfig(), generator())
    assert isinstance(policy, CategoricalPolicy)
    obs = np.repeat(np.ones((1, 5), np.float32), 20_000, axis=0)
    draws = actor(policy, np.random.default_rng(0))(obs)
    expected = policy(torch.ones(1, 5)).softmax(1)[0].detach().numpy()
    np.testing.assert_allclose(np.bincount(draws) / 20_000, expected, atol=0.015)
    np.testing.assert_array_equal(policy.actions.to_env(np.array([0, 2])), [5, 7])


def test_actions_are_scaled_and_clipped_for_the_environment() -> None:
    space = Box(np.array([0.0, -2.0, -np.inf]), np.array([10.0, 2.0, np.inf]), dtype=np.float64)
    policy = make_policy(VECTOR, space, PolicyConfig(), generator())
    raw = np.array([[-3.0, 0.5, 40.0], [0.0, 1.5, -40.0]], np.float32)
    np.testing.assert_array_equal(policy.actions.to_env(raw), [[0, 1, 40], [5, 2, -40]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("low", "high"),
    [(-2.0, 0.7), (-0.1, 0.1), (0.0, 0.3), (3.0, 3.0), (-1.0, np.inf), (-1e38, 3.4e38)],
)
def test_no_rounding_leads_out_of_the_action_space(low: float, high: float, dtype: type) -> None:
    space = Box(low, high, (1,), dtype)
    policy = make_policy(VECTOR, space, PolicyConfig(), generator())
    for raw in (-9.0, -1.0, 0.0, 1.0, 9.0):
        (action,) = policy.actions.to_env(np.array([[raw]], np.float32))
        assert action.dtype == dtype
        assert space.contains(action), (raw, action)


def test_init_is_xavier_with_zero_biases_and_unit_std() -> None:
    policy = make_policy(VECTOR, Box(-1, 1, (2,)), PolicyConfig(), generator())
    assert isinstance(policy, GaussianPolicy)
    first = policy.trunk[1]
    bound = math.sqrt(6 / (5 + 64))
    assert 0.9 * bound < first.weight.abs().max() <= bound  # type: ignore[operator, union-attr]
    assert policy.head.weight.abs().max() > 0.3  # the last layer is not made small
    assert not policy.head.bias.any()
    assert not policy.log_std.any()


def test_the_seed_decides_the_weights() -> None:
    a, b, c = (
        make_policy(VECTOR, Discrete(2), PolicyConfig(), generator(s)).head.weight
        for s in (3, 3, 4)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_other_action_spaces_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="Box or Discrete"):
        make_policy(VECTOR, Dict({"a": Discrete(2)}), PolicyConfig(), generator())
