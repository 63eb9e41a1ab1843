"""Policies against torch.distributions, and their NumPy actors against their networks."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
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


def test_functions_of_several_groups_are_the_sums_over_them() -> None:
    """p = (1/4, 3/4) and (1/4, 1/4, 1/2), by hand."""
    policy = make_policy(VECTOR, MultiDiscrete([2, 3]), PolicyConfig(), generator())
    old, uniform = torch.tensor([[0, math.log(3), 0, 0, math.log(2)]]), torch.zeros(1, 5)
    action = torch.tensor([[1, 2]])
    assert policy.log_prob(old, action).item() == pytest.approx(math.log(3 / 8))
    assert policy.entropy(old).item() == pytest.approx(0.562335145 + 1.039720771)
    assert policy.kl(old, uniform).item() == pytest.approx(0.130812036 + 0.058891518)
    assert policy.kl(old, old).item() == 0
    tangent = torch.tensor([[1.0, 0, 0, 0, 1]])
    expected = [3 / 16, -3 / 16, -1 / 8, -1 / 8, 1 / 4]
    assert policy.fisher(old)(tangent)[0].tolist() == pytest.approx(expected)
    constant = torch.tensor([[7.0, 7, -2, -2, -2]])  # of each group: changes no probability
    assert policy.fisher(old)(constant).abs().max() < 1e-6


@pytest.mark.parametrize(
    "space", [MultiDiscrete([2, 3]), MultiDiscrete([[4, 4], [4, 2]]), MultiBinary(3)], ids=str
)
def test_grouped_functions_agree_with_torch(space: Space) -> None:
    policy = make_policy(VECTOR, space, PolicyConfig(), generator())
    assert isinstance(policy, CategoricalPolicy)
    sizes = policy.actions.groups.sizes
    old, new = random_tensor(7, sum(sizes)), random_tensor(7, sum(sizes), seed=1)
    obs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    action = torch.as_tensor(actor(policy, np.random.default_rng(1))(obs))
    assert action.shape == (7, *(space.shape or ()))
    p, q = ([Categorical(logits=part) for part in x.split(sizes, 1)] for x in (old, new))
    groups = action.flatten(1).unbind(1)
    logs = [group.log_prob(taken) for group, taken in zip(p, groups, strict=True)]
    torch.testing.assert_close(policy.log_prob(old, action), torch.stack(logs).sum(0))
    kls = [kl_divergence(*pair) for pair in zip(p, q, strict=True)]
    torch.testing.assert_close(policy.kl(old, new), torch.stack(kls).sum(0))
    entropies = torch.stack([group.entropy() for group in p])
    torch.testing.assert_close(policy.entropy(old), entropies.sum(0))


def test_one_group_has_the_bits_of_a_discrete_space() -> None:
    """The same weights, draws, probabilities and products."""
    single, grouped = (
        make_policy(VECTOR, space, PolicyConfig(), generator(3))
        for space in (Discrete(4), MultiDiscrete([4]))
    )
    obs = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    plain, column = (actor(p, np.random.default_rng(2))(obs) for p in (single, grouped))
    np.testing.assert_array_equal(plain[:, None], column)
    np.testing.assert_array_equal(single.mode(obs)[:, None], grouped.mode(obs))
    parameters = single(torch.as_tensor(obs))
    assert torch.equal(parameters, grouped(torch.as_tensor(obs)))
    others, tangent = random_tensor(50, 4), random_tensor(50, 4, seed=1)
    for a, b in (
        (
            single.log_prob(parameters, torch.as_tensor(plain)),
            grouped.log_prob(parameters, torch.as_tensor(column)),
        ),
        (single.kl(parameters, others), grouped.kl(parameters, others)),
        (single.entropy(parameters), grouped.entropy(parameters)),
        (single.fisher(parameters)(tangent), grouped.fisher(parameters)(tangent)),
    ):
        assert torch.equal(a, b)


def test_fisher_is_the_hessian_of_the_kl() -> None:
    for policy, width in (
        (make_policy(VECTOR, Box(-1, 1, (2,)), PolicyConfig(), generator()), 4),
        (make_policy(VECTOR, Discrete(3), PolicyConfig(), generator()), 3),
        (make_policy(VECTOR, MultiDiscrete([3, 2, 2]), PolicyConfig(), generator()), 7),
        (make_policy(VECTOR, MultiBinary(3), PolicyConfig(), generator()), 6),
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


def test_samples_of_every_group_have_its_frequencies() -> None:
    space = MultiDiscrete([2, 3], start=[0, 7])
    policy = make_policy(VECTOR, space, PolicyConfig(), generator(1))
    obs = np.repeat(np.ones((1, 5), np.float32), 20_000, axis=0)
    draws = actor(policy, np.random.default_rng(0))(obs)
    assert draws.shape == (20_000, 2)
    logits = policy(torch.ones(1, 5))[0].detach()
    for k, part in enumerate(logits.split([2, 3])):
        frequencies = np.bincount(draws[:, k]) / 20_000
        np.testing.assert_allclose(frequencies, part.softmax(0).numpy(), atol=0.015)
    together = np.mean((draws == [1, 2]).all(1))  # the groups are independent
    assert together == pytest.approx(np.prod((draws == [1, 2]).mean(0)), abs=0.01)
    best = [int(part.argmax()) for part in logits.split([2, 3])]
    np.testing.assert_array_equal(policy.mode(obs[:1]), [best])


@pytest.mark.parametrize(
    ("space", "index", "expected"),
    [
        (Discrete(3, start=5), [2], [7]),
        (MultiDiscrete([2, 3], start=[-1, 7]), [[1, 2]], [[0, 9]]),
        (MultiDiscrete(np.array([[2, 3], [4, 5]])), [[[1, 2], [3, 4]]], [[[1, 2], [3, 4]]]),
        (MultiDiscrete([200, 3], dtype=np.uint8), [[199, 0]], [[199, 0]]),
        (MultiBinary(2), [[1, 0]], [[1, 0]]),
        (MultiBinary((2, 2)), [[[1, 0], [0, 1]]], [[[1, 0], [0, 1]]]),
    ],
    ids=str,
)
def test_discrete_actions_for_the_environment(space: Space, index: list, expected: list) -> None:
    policy = make_policy(VECTOR, space, PolicyConfig(), generator())
    found = policy.actions.to_env(np.array(index))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == space.dtype
    assert space.contains(found[0])
    sampled = actor(policy, np.random.default_rng(0))(np.zeros((30, 5), np.float32))
    assert all(space.contains(action) for action in policy.actions.to_env(sampled))


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
    with pytest.raises(ValueError, match="Box, Discrete, MultiDiscrete or MultiBinary"):
        make_policy(VECTOR, Dict({"a": Discrete(2)}), PolicyConfig(), generator())
