"""TRPO against explicit Hessians, exact solutions and the promises of its line search."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.agent.policy import (
    MIN_LOG_STD,
    AnyPolicy,
    GaussianPolicy,
    PolicyConfig,
    actor,
    make_policy,
)
from emi.agent.trpo import (
    TRPOConfig,
    conjugate_gradient,
    cut,
    evaluate,
    fisher_vector_product,
    flatten,
    line_search,
    surrogate_gradient,
    surrogate_loss,
    trpo_step,
    unflatten,
)
from emi.batch import Rows

OBS = Box(-np.inf, np.inf, (3,))
ACTIONS = {"gaussian": Box(-1, 1, (2,)), "categorical": Discrete(3)}


def tiny(kind: str, seed: int = 0, hidden: tuple[int, ...] = (3,)) -> AnyPolicy:
    generator = torch.Generator().manual_seed(seed)
    return make_policy(OBS, ACTIONS[kind], PolicyConfig(hidden=hidden), generator)


def batch(policy: AnyPolicy, n: int = 48, seed: int = 1) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    action = torch.as_tensor(actor(policy, rng)(obs))
    advantage = torch.as_tensor(rng.normal(size=n).astype(np.float32))
    return Rows(obs, np.arange(n)), action, advantage


def explicit_hessian(policy: AnyPolicy, obs: torch.Tensor) -> torch.Tensor:
    """The Hessian of the mean KL at the policy itself, entry by entry."""
    weights = list(policy.parameters())
    names = [name for name, _ in policy.named_parameters()]
    old = policy(obs).detach()

    def mean_kl(theta: torch.Tensor) -> torch.Tensor:
        parts = dict(zip(names, unflatten(theta, weights), strict=True))
        return policy.kl(old, torch.func.functional_call(policy, parts, (obs,))).mean()

    return torch.autograd.functional.hessian(mean_kl, flatten(weights).detach())


@pytest.mark.parametrize("kind", ACTIONS)
def test_fisher_product_is_the_explicit_hessian(kind: str) -> None:
    policy = tiny(kind)
    obs, action, advantage = batch(policy)
    product = fisher_vector_product(policy, cut(policy, obs, action, advantage, 1), damping=0.5)
    hessian = explicit_hessian(policy, torch.as_tensor(obs[:]))
    size = len(hessian)
    columns = torch.stack([product(unit) for unit in torch.eye(size)], dim=1)
    torch.testing.assert_close(columns, hessian + 0.5 * torch.eye(size), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ACTIONS)
def test_slices_do_not_change_the_result(kind: str) -> None:
    policy = tiny(kind)
    obs, action, advantage = batch(policy, n=50)  # 50 is no multiple of 16
    one, many = (cut(policy, obs, action, advantage, k) for k in (1, 16))
    assert len(many) == 16
    assert sum(part.weight for part in many) == pytest.approx(1)
    v = torch.randn(len(flatten(list(policy.parameters()))), generator=torch.Generator())
    whole = fisher_vector_product(policy, one, 1e-5)(v)
    sliced = fisher_vector_product(policy, many, 1e-5)(v)
    torch.testing.assert_close(sliced, whole, rtol=1e-5, atol=1e-6)
    (loss, gradient), (sliced_loss, sliced_gradient) = (
        surrogate_gradient(policy, parts) for parts in (one, many)
    )
    assert sliced_loss == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(sliced_gradient, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "n", "slices"),
    # 2²² entries at a time, 387 stacks of four frames of 52×52.
    [((20,), 5_000, 1), ((33,), 50_000, 1), ((4, 52, 52), 387, 1), ((4, 52, 52), 1_000, 3)],
)
def test_left_open_slices_are_as_large_as_is_good(
    shape: tuple[int, ...], n: int, slices: int
) -> None:
    space = Box(0, 255, shape, np.uint8 if len(shape) == 3 else np.float32)
    policy = make_policy(space, Discrete(2), PolicyConfig(hidden=(2,)), torch.Generator())
    obs = Rows(np.zeros((1, *shape), space.dtype), np.zeros(n, np.int64))
    parts = cut(policy, obs, torch.zeros(n, dtype=torch.long), torch.zeros(n), TRPOConfig().slices)
    assert len(parts) == slices
    assert sum(len(part.action) for part in parts) == n


def test_a_std_at_its_floor_has_no_fisher_information_in_slices_either() -> None:
    policy = tiny("gaussian")
    assert isinstance(policy, GaussianPolicy)
    with torch.no_grad():
        policy.log_std[0] = MIN_LOG_STD - 1
    obs, action, advantage = batch(policy)
    product = fisher_vector_product(policy, cut(policy, obs, action, advantage, 3), damping=0.0)
    v = torch.zeros(len(flatten(list(policy.parameters()))))
    v[:2] = 1.0  # log_std is the first parameter
    assert product(v)[:2].tolist() == [0.0, 2.0]


def test_conjugate_gradient_solves() -> None:
    root = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = root @ root.T + torch.eye(6, dtype=torch.float64)
    b = torch.arange(1.0, 7.0, dtype=torch.float64)
    x, _ = conjugate_gradient(lambda v: a @ v, b, iterations=6, tolerance=1e-20)
    torch.testing.assert_close(a @ x, b, rtol=1e-8, atol=1e-8)
    # One iteration is the exact line minimum along b.
    first, residual = conjugate_gradient(lambda v: a @ v, b, iterations=1, tolerance=0)
    torch.testing.assert_close(first, b * (b.dot(b) / b.dot(a @ b)))
    torch.testing.assert_close(residual, b - a @ first)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_an_accepted_step_stays_in_the_trust_region_and_improves(kind: str, seed: int) -> None:
    policy = tiny(kind, seed)
    obs, action, advantage = batch(policy, n=200, seed=seed)
    parts = cut(policy, obs, action, advantage, 1)
    before = evaluate(policy, parts, flatten(list(policy.parameters())).detach())[0]
    report = trpo_step(policy, obs, action, advantage, TRPOConfig())
    loss, kl = evaluate(policy, parts, flatten(list(policy.parameters())).detach())
    assert report.accepted
    assert 0 < kl <= 0.01
    # A quadratic model within the trust region: the step should use most of it.
    assert kl > 0.003
    assert report.kl == pytest.approx(kl, abs=1e-7)
    assert loss < before
    assert report.surrogate == pytest.approx(before - loss, abs=1e-6)


@pytest.mark.parametrize("kind", ACTIONS)
def test_the_surrogate_is_minus_the_mean_of_ratio_times_advantage(kind: str) -> None:
    policy = tiny(kind)
    obs, action, _ = batch(policy, n=2)
    advantage = torch.tensor([3.0, -1.0])
    (part,) = cut(policy, obs, action, advantage, 1)
    assert surrogate_loss(policy, part.old, part).item() == pytest.approx(-1.0)
    # Twice as likely with a positive advantage, half as likely with a negative one.
    shifted = policy.log_prob(part.old, action) + torch.tensor([math.log(2), -math.log(2)])
    answers = iter([shifted, policy.log_prob(part.old, action)])
    policy.log_prob = lambda *_: next(answers)  # type: ignore[method-assign, assignment]
    expected = -(2 * 3.0 + 0.5 * -1.0) / 2
    assert surrogate_loss(policy, part.old, part).item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ACTIONS)
def test_a_step_makes_good_actions_more_likely(kind: str) -> None:
    policy = tiny(kind)
    obs, action, advantage = batch(policy, n=200)
    states = torch.as_tensor(obs[:])
    before = policy.log_prob(policy(states), action).detach()
    trpo_step(policy, obs, action, advantage, TRPOConfig())
    change = policy.log_prob(policy(states), action).detach() - before
    assert torch.corrcoef(torch.stack([change, advantage]))[0, 1] > 0.1


def weights_of(policy: AnyPolicy) -> bytes:
    return flatten(list(policy.parameters())).detach().numpy().tobytes()


@pytest.mark.parametrize("kind", ACTIONS)
def test_a_rejected_step_restores_bit_exactly(kind: str) -> None:
    policy = tiny(kind)
    before = weights_of(policy)
    # No step is short enough for this trust region after fifteen halvings of one that is not.
    config = TRPOConfig(max_kl=1e-30, max_backtracks=3)
    obs, action, advantage = batch(policy)
    report = trpo_step(policy, obs, action, 1e6 * advantage, config)
    assert not report.accepted
    assert report.kl == 0
    assert weights_of(policy) == before


@pytest.mark.parametrize("kind", ACTIONS)
def test_zero_advantage_is_a_no_op(kind: str) -> None:
    policy = tiny(kind)
    before = weights_of(policy)
    obs, action, advantage = batch(policy)
    report = trpo_step(policy, obs, action, 0 * advantage, TRPOConfig())
    assert not report.accepted
    assert weights_of(policy) == before


def test_negative_curvature_is_a_no_op(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny("gaussian")
    before = weights_of(policy)
    monkeypatch.setattr(policy, "fisher", lambda parameters, tangent: -tangent, raising=True)
    report = trpo_step(policy, *batch(policy), TRPOConfig())
    assert not report.accepted
    assert weights_of(policy) == before


def test_the_line_search_takes_the_first_step_that_is_good_on_both_counts() -> None:
    theta, step = torch.tensor([1.0]), torch.tensor([1.0])
    seen: list[float] = []
    # By ratio: NaN, worse loss, KL too large, good, also good but shorter.
    answers = [(math.nan, 0.0), (1.0, 0.001), (0.5, 0.02), (0.6, 0.009), (0.7, 0.001)]

    def measure(candidate: torch.Tensor) -> tuple[float, float]:
        seen.append(candidate.item())
        return answers[len(seen) - 1]

    found = line_search(measure, theta, step, loss=1.0, config=TRPOConfig())
    assert found.accepted
    assert found.tries == 4
    assert (found.loss, found.kl) == (0.6, 0.009)
    assert seen == pytest.approx([2.0, 1.8, 1.64, 1.512])
    assert found.theta.item() == pytest.approx(1.512)
    assert theta.item() == 1.0


def test_the_line_search_gives_theta_back_when_nothing_is_good() -> None:
    theta = torch.tensor([1.0, 2.0])
    found = line_search(lambda _: (math.nan, math.nan), theta, theta, 1.0, TRPOConfig())
    assert not found.accepted
    assert found.tries == 15
    assert found.theta is theta


def test_a_step_on_one_sample_is_finite() -> None:
    policy = tiny("gaussian")
    obs, action, _ = batch(policy, n=1)
    trpo_step(policy, obs, action, torch.ones(1), TRPOConfig(slices=4))
    assert np.isfinite(np.frombuffer(weights_of(policy), np.float32)).all()
