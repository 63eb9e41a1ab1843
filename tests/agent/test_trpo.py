"""TRPO against explicit Hessians, exact solutions and the promises of its line search."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from emi.agent import trpo
from emi.agent.policy import (
    MIN_LOG_STD,
    AnyPolicy,
    GaussianPolicy,
    PolicyConfig,
    actor,
    make_policy,
)
from emi.agent.trpo import (
    Linearisations,
    Slice,
    StepReport,
    TRPOConfig,
    conjugate_gradient,
    cut,
    evaluate,
    fisher_vector_product,
    flatten,
    line_search,
    spread_rows,
    states,
    surrogate_gradient,
    surrogate_loss,
    trpo_step,
    unflatten,
)
from emi.batch import Rows
from emi.nets import Activation

OBS = Box(-np.inf, np.inf, (3,))
ACTIONS = {
    "gaussian": Box(-1, 1, (2,)),
    "categorical": Discrete(3),
    "grouped": MultiDiscrete([2, 3]),
    "binary": MultiBinary(2),
}


def tiny(kind: str, seed: int = 0, hidden: tuple[int, ...] = (3,)) -> AnyPolicy:
    generator = torch.Generator().manual_seed(seed)
    return make_policy(OBS, ACTIONS[kind], PolicyConfig(hidden=hidden), generator)


def batch(policy: AnyPolicy, n: int = 48, seed: int = 1) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    action = torch.as_tensor(actor(policy, rng)(obs))
    advantage = torch.as_tensor(rng.normal(size=n).astype(np.float32))
    return Rows(obs, np.arange(n)), action, advantage


def linearised(policy: AnyPolicy, parts: list[Slice]) -> Linearisations:
    return Linearisations(policy, parts, trpo.KEPT_BYTES)


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
    old = linearised(policy, cut(obs, action, advantage, 1))
    product = fisher_vector_product(policy, old, damping=0.5)
    hessian = explicit_hessian(policy, torch.as_tensor(obs[:]))
    size = len(hessian)
    columns = torch.stack([product(unit) for unit in torch.eye(size)], dim=1)
    torch.testing.assert_close(columns, hessian + 0.5 * torch.eye(size), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ACTIONS)
def test_slices_do_not_change_the_result(kind: str) -> None:
    policy = tiny(kind)
    obs, action, advantage = batch(policy, n=50)  # 50 is no multiple of 16
    one, many = (cut(obs, action, advantage, k) for k in (1, 16))
    assert len(many) == 16
    assert sum(part.weight for part in many) == pytest.approx(1)
    v = torch.randn(len(flatten(list(policy.parameters()))), generator=torch.Generator())
    whole = fisher_vector_product(policy, linearised(policy, one), 1e-5)(v)
    sliced = fisher_vector_product(policy, linearised(policy, many), 1e-5)(v)
    torch.testing.assert_close(sliced, whole, rtol=1e-5, atol=1e-6)
    (loss, gradient, _), (sliced_loss, sliced_gradient, _) = (
        surrogate_gradient(policy, linearised(policy, parts)) for parts in (one, many)
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
    obs = Rows(np.zeros((1, *shape), space.dtype), np.zeros(n, np.int64))
    parts = cut(obs, torch.zeros(n, dtype=torch.long), torch.zeros(n), TRPOConfig().slices)
    assert len(parts) == slices
    assert sum(len(part.action) for part in parts) == n


def test_a_std_at_its_floor_has_no_fisher_information_in_slices_either() -> None:
    policy = tiny("gaussian")
    assert isinstance(policy, GaussianPolicy)
    with torch.no_grad():
        policy.log_std[0] = MIN_LOG_STD - 1
    obs, action, advantage = batch(policy)
    old = linearised(policy, cut(obs, action, advantage, 3))
    product = fisher_vector_product(policy, old, damping=0.0)
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
    parts = cut(obs, action, advantage, 1)
    before, _, old = surrogate_gradient(policy, linearised(policy, parts))
    theta = flatten(list(policy.parameters())).detach()
    assert evaluate(policy, parts, old, theta) == pytest.approx((before, 0.0), abs=1e-6)
    report = trpo_step(policy, obs, action, advantage, TRPOConfig())
    loss, kl = evaluate(policy, parts, old, flatten(list(policy.parameters())).detach())
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
    (part,) = cut(obs, action, advantage, 1)
    parameters = policy(states(part)).detach()
    log_prob = policy.log_prob(parameters, action)
    assert surrogate_loss(policy, parameters, part, log_prob).item() == pytest.approx(-1.0)
    # Twice as likely with a positive advantage, half as likely with a negative one.
    before = log_prob - torch.tensor([math.log(2), -math.log(2)])
    expected = -(2 * 3.0 + 0.5 * -1.0) / 2
    assert surrogate_loss(policy, parameters, part, before).item() == pytest.approx(expected)


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
    monkeypatch.setattr(policy, "fisher", lambda parameters: torch.neg, raising=True)
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


def autograd_step(
    policy: AnyPolicy, obs: Rows, action: torch.Tensor, advantage: torch.Tensor
) -> StepReport:
    """The step with default settings and one slice, with every derivative by autograd."""
    config = TRPOConfig()
    weights = list(policy.parameters())
    x = torch.as_tensor(obs[:])
    old = policy(x).detach()
    before = policy.log_prob(old, action)

    def loss_of(parameters: torch.Tensor) -> torch.Tensor:
        ratio = (policy.log_prob(parameters, action) - before).exp()
        return -(ratio * advantage).mean()

    loss = loss_of(policy(x))
    gradient = flatten(torch.autograd.grad(loss, weights))
    out = policy(x)
    u = torch.zeros_like(out, requires_grad=True)
    transposed = flatten(torch.autograd.grad(out, weights, u, create_graph=True))

    def product(v: torch.Tensor) -> torch.Tensor:
        (tangent,) = torch.autograd.grad(transposed, u, v, retain_graph=True)
        weighted = policy.fisher(old)(tangent) / len(tangent)
        back = torch.autograd.grad(out, weights, weighted, retain_graph=True)
        return flatten(back) + config.damping * v

    direction, residual = conjugate_gradient(product, -gradient, 10, config.cg_tolerance)
    curvature = direction.dot(-gradient - residual).item()
    step = direction * (2 * config.max_kl / (curvature + 1e-8)) ** 0.5
    theta = flatten(weights).detach()

    def measure(candidate: torch.Tensor) -> tuple[float, float]:
        with torch.no_grad():
            for weight, new in zip(weights, unflatten(candidate, weights), strict=True):
                weight.copy_(new)
            new = policy(x)
            return loss_of(new).item(), policy.kl(old, new).mean().item()

    found = line_search(measure, theta, step, loss.item(), config)
    entropy = policy.entropy(old).mean().item()
    gain = loss.item() - found.loss
    return StepReport(found.kl, entropy, found.accepted, found.tries, gain)


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(("width", "hidden", "n"), [(20, (64, 32), 1_000), (3, (5,), 48)])
def test_a_step_is_that_of_autograd(
    kind: str, activation: Activation, width: int, hidden: tuple[int, ...], n: int
) -> None:
    space = Box(-np.inf, np.inf, (width,))
    rng = np.random.default_rng(0)
    config = PolicyConfig(hidden=hidden, activation=activation)
    policies = [
        make_policy(space, ACTIONS[kind], config, torch.Generator().manual_seed(3))
        for _ in range(2)
    ]
    obs = rng.normal(size=(n, width)).astype(np.float32)
    action = torch.as_tensor(actor(policies[0], rng)(obs))
    advantage = torch.as_tensor(rng.normal(size=n).astype(np.float32))
    rows = Rows(obs, np.arange(n))
    report = trpo_step(policies[0], rows, action, advantage, TRPOConfig())
    expected = autograd_step(policies[1], rows, action, advantage)
    # The bits are equal where MKL and oneDNN add in the same order; rounding differs elsewhere.
    assert report.accepted
    assert report == pytest.approx(expected, rel=1e-3)
    ours, theirs = (flatten(list(p.parameters())).detach() for p in policies)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("num_envs", [1, 2, 5, 8, 10, 16, 17, 20, 32, 50, 64, 89, 100])
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.2, 0.3])
def test_the_rows_of_h_cover_all_environments_and_times(num_envs: int, fraction: float) -> None:
    times = 20_000 // num_envs
    n = times * num_envs
    rows = spread_rows(n, fraction)
    assert len(rows) == math.ceil(fraction * n)
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < n
    # Some from every environment, and as many from every tenth of the time, nearly.
    by_env = np.bincount(rows % num_envs, minlength=num_envs)
    assert by_env.min() >= 0.2 * len(rows) / num_envs
    assert by_env.max() <= 2.2 * len(rows) / num_envs
    by_time = np.bincount(10 * rows // n)
    assert np.abs(by_time - len(rows) / 10).max() <= 2


def test_the_rows_of_h_are_all_rows_or_at_least_one() -> None:
    assert spread_rows(7, 1.0).tolist() == list(range(7))
    assert spread_rows(3, 0.01).tolist() == [0]
    assert spread_rows(20, 0.2).tolist() == [0, 8, 12, 17]


@pytest.mark.parametrize("kind", ACTIONS)
def test_the_direction_uses_h_of_the_chosen_rows_and_the_gradient_of_all(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny(kind)
    obs, action, advantage = batch(policy, n=60)
    rows = spread_rows(60, 0.25)
    hessian = explicit_hessian(policy, torch.as_tensor(obs[rows]))
    _, gradient, _ = surrogate_gradient(policy, linearised(policy, cut(obs, action, advantage, 1)))
    damping = 0.1
    expected = torch.linalg.solve(hessian + damping * torch.eye(len(hessian)), -gradient)
    found: list[torch.Tensor] = []

    def record(*arguments: Any) -> Any:
        solution = conjugate_gradient(*arguments)
        found.append(solution.x)
        return solution

    monkeypatch.setattr(trpo, "conjugate_gradient", record)
    config = TRPOConfig(fisher_fraction=0.25, damping=damping, cg_iterations=60, slices=2)
    report = trpo_step(policy, obs, action, advantage, config)
    assert report.accepted
    torch.testing.assert_close(found[0], expected, rtol=1e-2, atol=1e-3)


def test_a_step_with_a_fraction_stays_in_the_trust_region_of_the_whole_batch() -> None:
    policy = tiny("gaussian")
    obs, action, advantage = batch(policy, n=200)
    parts = cut(obs, action, advantage, 1)
    loss, _, old = surrogate_gradient(policy, linearised(policy, parts))
    report = trpo_step(policy, obs, action, advantage, TRPOConfig(fisher_fraction=0.1))
    theta = flatten(list(policy.parameters())).detach()
    new_loss, kl = evaluate(policy, parts, old, theta)
    assert report.accepted
    assert report.kl == pytest.approx(kl, abs=1e-7)
    assert kl <= 0.01
    assert report.surrogate == pytest.approx(loss - new_loss, abs=1e-6)


def test_a_candidate_beyond_the_trust_region_is_not_evaluated_to_its_end() -> None:
    policy = tiny("categorical")
    obs, action, advantage = batch(policy, n=400)
    parts = cut(obs, action, advantage, 8)
    _, gradient, old = surrogate_gradient(policy, linearised(policy, parts))
    theta = flatten(list(policy.parameters())).detach()
    far = theta - 0.5 * gradient / gradient.norm()
    _, whole = evaluate(policy, parts, old, far)
    assert whole > 0.01
    rows: list[int] = []
    forward = policy.forward

    def count(obs: torch.Tensor) -> torch.Tensor:
        rows.append(len(obs))
        return forward(obs)

    policy.forward = count  # type: ignore[method-assign]
    loss, kl = evaluate(policy, parts, old, far, max_kl=0.01)
    assert math.isnan(loss)
    assert 0.01 < kl <= whole
    assert sum(rows) < 400
    # It ends with the first slice that exceeds the bound.
    before = len(rows) - 1
    assert evaluate(policy, parts[:before], old[:before], far)[1] <= 0.01
    # Within the trust region, everything is evaluated, with the same bits.
    near = theta - 1e-3 * gradient / gradient.norm()
    assert evaluate(policy, parts, old, near, max_kl=0.01) == evaluate(policy, parts, old, near)


@pytest.mark.parametrize("kind", ACTIONS)
def test_the_early_end_changes_no_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TRPOConfig(slices=6, max_kl=0.05, backtrack_ratio=0.7)
    found = []
    for margin in (trpo.KL_MARGIN, math.inf):
        monkeypatch.setattr(trpo, "KL_MARGIN", margin)
        policy = tiny(kind, seed=3)
        report = trpo_step(policy, *batch(policy, n=300, seed=3), config)
        found.append((report, flatten(list(policy.parameters())).tolist()))
    assert found[0] == found[1]


def test_activations_are_kept_up_to_the_bound_and_computed_again_beyond() -> None:
    policy = tiny("categorical")
    obs, action, advantage = batch(policy, n=40)
    parts = cut(obs, action, advantage, 4)
    # A row keeps 3 inputs, 3 hidden units and 3 logits of 4 bytes.
    assert policy.linearise(states(parts[0])).bytes == 10 * 36
    v = torch.randn(len(flatten(list(policy.parameters()))), generator=torch.Generator())
    calls: list[int] = []
    linearise = policy.linearise

    def count(obs: torch.Tensor) -> Any:
        calls.append(len(obs))
        return linearise(obs)

    policy.linearise = count  # type: ignore[method-assign, assignment]
    results = []
    for kept_bytes, rows, computed in ((0, 0, 8), (799, 20, 6), (10_000, 40, 4)):
        old = Linearisations(policy, parts, kept_bytes)
        product = fisher_vector_product(policy, old, 1e-5)
        calls.clear()
        product(v)
        results.append(product(v))
        assert old.kept_rows == rows
        assert len(calls) == computed
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_the_kept_activations_of_an_atari_batch_leave_memory_for_the_rest() -> None:
    space = Box(0, 255, (4, 52, 52), np.uint8)
    policy = make_policy(space, Discrete(18), PolicyConfig(), torch.Generator())
    bytes_per_row = policy.linearise(torch.zeros((2, 4, 52, 52), dtype=torch.uint8)).bytes / 2
    # 4·52·52 inputs, 16·12·12 and 32·5·5 after the convolutions, 256 units and 18 logits.
    assert bytes_per_row == 4 * (10_816 + 2_304 + 800 + 256 + 18)
    assert 9_000 < trpo.KEPT_BYTES / bytes_per_row < 10_000
