"""VIME against autograd, row by row, against exact KL divergences, and against small numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor
from torch.autograd.functional import hessian
from torch.distributions import Normal, kl_divergence
from torch.func import grad, vmap
from torch.nn.functional import softplus

from emi.batch import Transitions
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.gradients.vime import loss_gradient, matrices, passes
from emi.intrinsic.vime import (
    MIN_DIVISOR,
    VIME,
    VIMEConfig,
    divisor,
    information_gain,
    kl_to_prior,
    rho_of,
)

VECTOR = Box(-np.inf, np.inf, (4,))
CONTINUOUS = Box(-1, 1, (3,))
QUICK = VIMEConfig(updates=5, min_replay=20, learning_rate=1e-2)
HIDDEN = pytest.mark.parametrize("hidden", [(), (6,), (5, 7)])


def batch(n: int, seed: int = 0, scale: float = 1.0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, action = rng.normal(size=(n, 4)), rng.uniform(-1, 1, (n, 3))
    next_obs = 0.8 * obs + 0.3 * np.pad(action, ((0, 0), (0, 1)))
    return Transitions(
        (scale * obs).astype(np.float32),
        action.astype(np.float32),
        (scale * next_obs).astype(np.float32),
    )


def trained(config: VIMEConfig = QUICK, seed: int = 0, batches: int = 1) -> VIME:
    """Trained, and with a posterior that is not the same σ everywhere."""
    vime = VIME(VECTOR, CONTINUOUS, config, seed)
    for k in range(batches):
        vime.learn(batch(60, seed=100 + k))
    with torch.no_grad():
        vime.phi[1] += 0.5 * torch.randn(vime.phi[1].shape, generator=vime.descent.generator)
    return vime


def predict(phi: Tensor, sizes: list[int], noise: Tensor, x: Tensor) -> Tensor:
    """The released model, word by word: [n, in] and one ε for all units to [n, out]."""
    at = unit = 0
    for k, (i, o) in enumerate(pairwise(sizes)):
        W, rho = (p[at : at + i * o].reshape(i, o) for p in phi)
        b, b_rho = (p[at + i * o : at + i * o + o] for p in phi)
        gamma = x @ W + b
        delta = x**2 @ torch.log(1 + torch.exp(rho)) ** 2 + torch.log(1 + torch.exp(b_rho)) ** 2
        a = gamma + torch.sqrt(delta) * noise[unit : unit + o]
        x = torch.relu(a) if k < len(sizes) - 2 else a
        at, unit = at + i * o + o, unit + o
    return x


def nll(phi: Tensor, sizes: list[int], noise: Tensor, x: Tensor, y: Tensor, sd: float) -> Tensor:
    return -Normal(predict(phi, sizes, noise, x), sd).log_prob(y).sum()


def literal_gains(vime: VIME, data: Transitions) -> np.ndarray:
    """λ² Σ g² H⁻¹, one transition after the other, with the gradients of autograd."""
    sizes, config = vime.sizes, vime.config
    phi, noise = vime.phi.detach().double(), vime.noise.double()
    mean, scale = vime.mean.double().numpy(), vime.scale.double().numpy()
    out = []
    for s, a, n in zip(data.obs[:], data.action[:], data.next_obs[:], strict=True):
        x = torch.as_tensor((np.concatenate([s, a]) - mean) / scale)[None]
        y = torch.as_tensor((n - mean[:4]) / scale[:4])[None]
        at = phi.clone().requires_grad_()
        nll(at, sizes, noise, x, y, config.likelihood_sd).backward()
        assert at.grad is not None
        (g_mu, g_rho), rho = at.grad, phi[1]
        sigma = torch.log(1 + torch.exp(rho))
        H = 2 * torch.exp(2 * rho) / (1 + torch.exp(rho)) ** 2 / sigma**2
        total = (g_mu**2 * sigma**2).sum() + (g_rho**2 / H).sum()
        out.append(min(config.step_size**2 * total.item(), config.max_gain))
    return np.array(out)


def random_model(hidden: tuple[int, ...]) -> tuple[list[int], Tensor, Tensor, Tensor, Tensor]:
    """Sizes, φ [2, P], ε [units], x [5, 3], y [5, 2]; float64."""
    rng = torch.Generator().manual_seed(len(hidden))
    sizes = [3, *hidden, 2]
    weights = sum((i + 1) * o for i, o in pairwise(sizes))
    shapes = ((2, weights), (sum(sizes[1:]),), (5, 3), (5, 2))
    phi, noise, x, y = (torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes)
    return sizes, phi, noise, x, y


def closed_form(
    sizes: list[int], phi: Tensor, noise: Tensor, x: Tensor, y: Tensor, step_size: float
) -> Tensor:
    variance = matrices(softplus(phi[1]).square(), sizes)
    ones = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    epsilon = noise[None].split(sizes[1:], 1)
    _, layers = passes(matrices(phi[0], sizes), variance, epsilon, ones, y, 5.0**-2)
    return information_gain(layers, variance, step_size)


# The bonus


def test_the_gain_of_one_weight_and_one_bias_by_hand() -> None:
    # x = 2, μ = (3, 1), σ² = (¼, 1), ε = √2: m = 7, v = 4 · ¼ + 1 = 2, a = 7 + √2 √2 = 9.
    mu, variance = [torch.tensor([[3.0], [1.0]])], [torch.tensor([[0.25], [1.0]])]
    noise, x = [torch.tensor([[2**0.5]])], torch.tensor([[2.0, 1.0]])
    error, layers = passes(mu, variance, noise, x, torch.tensor([[4.0]]), 5.0**-2)
    assert error.item() == pytest.approx(5)
    assert layers[0].v.item() == 2
    assert layers[0].delta.item() == pytest.approx(0.2)  # 5 / 5²
    assert layers[0].kappa.item() == pytest.approx(0.2)  # ε / √v = 1
    # δ² v + ½ κ² (2⁴ / 4² + 1) = 0.04 · 2 + 0.02 · 2
    gain = information_gain(layers, variance, 0.01)
    assert gain.item() == pytest.approx(0.01**2 * 0.12)


@HIDDEN
def test_the_closed_form_against_a_gradient_for_every_row(hidden: tuple[int, ...]) -> None:
    sizes, phi, noise, x, y = random_model(hidden)

    def loss(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return nll(p, sizes, noise, x[None], y[None], 5.0)

    g = vmap(grad(loss), (None, 0, 0))(phi, x, y)  # [5, 2, P]
    sigma = softplus(phi[1])
    inverse = torch.stack([sigma**2, sigma**2 / (2 * phi[1].sigmoid() ** 2)])
    expected = 0.01**2 * (g**2 * inverse).sum((1, 2))
    torch.testing.assert_close(closed_form(sizes, phi, noise, x, y, 0.01), expected)


@HIDDEN
def test_the_gain_is_twice_the_kl_of_a_small_step(hidden: tuple[int, ...]) -> None:
    """KL(q(φ + Δφ) ‖ q(φ)) → ½ λ² gᵀ H⁻¹ g for the step Δφ = −λ H⁻¹ g, as λ → 0."""
    sizes, phi, noise, x, y = random_model(hidden)

    def loss(p: Tensor) -> Tensor:
        return nll(p, sizes, noise, x[:1], y[:1], 5.0)

    def kl(p: Tensor) -> Tensor:
        old = Normal(phi[0], softplus(phi[1]))
        return kl_divergence(Normal(p[0], softplus(p[1])), old).sum()

    # H is what the KL's own second derivative says, and has nothing off the diagonal.
    H = hessian(kl, phi).reshape(phi.numel(), -1)
    torch.testing.assert_close(H, torch.diag(H.diagonal()))
    sigma = softplus(phi[1])
    expected = torch.stack([sigma**-2, 2 * (phi[1].sigmoid() / sigma) ** 2])
    torch.testing.assert_close(H.diagonal().view_as(phi), expected)

    def ratio(step_size: float) -> float:
        moved = phi - step_size * grad(loss)(phi) / expected
        gain = closed_form(sizes, phi, noise, x[:1], y[:1], step_size)
        return (gain.item() / kl(moved)).item()

    assert ratio(0.01) == pytest.approx(2, rel=1e-4)
    assert abs(ratio(0.1) - 2) < 0.2 * abs(ratio(1.0) - 2)  # what is left is of the third order


def test_three_transitions_one_after_the_other() -> None:
    vime, data = trained(batches=3), batch(3, seed=7)
    gains = literal_gains(vime, data)
    assert len(vime.medians) == 2
    mean = np.mean([*vime.medians, np.median(gains)])
    np.testing.assert_allclose(vime.reward(data).numpy(), gains / mean, rtol=1e-4)


def test_gains_are_clipped_before_the_median_is_taken() -> None:
    vime, data = trained(dataclasses.replace(QUICK, max_gain=1e-3)), batch(50)
    plain = literal_gains(vime, data)
    assert 0 < np.mean(plain == 1e-3) < 1
    np.testing.assert_allclose(vime.reward(data).numpy(), plain / np.median(plain), rtol=1e-4)
    assert vime.learn(data)["vime/clipped"] == pytest.approx(np.mean(plain == 1e-3))


def test_one_epsilon_serves_all_rows_until_the_next_training() -> None:
    """A bonus depends neither on the row's place nor on its neighbours, but through the median."""
    vime, data = trained(), batch(40)
    rows = vime._rows(data)
    gain = vime._gain(rows)
    order = np.random.default_rng(0).permutation(40)
    torch.testing.assert_close(vime._gain(rows[order]), gain[order])
    torch.testing.assert_close(vime._gain(rows[3:4]), gain[3:4])
    torch.testing.assert_close(vime.reward(data[order]), vime.reward(data)[order])
    before = vime.noise.clone()
    vime.learn(data)
    assert not torch.equal(vime.noise, before)


@pytest.mark.parametrize("size", [1e6, 1e30])
def test_no_observation_is_too_large_to_be_scored(size: float) -> None:
    vime = trained()
    assert (vime.reward(batch(20, scale=size)) == 1).all()  # all at the clip, and so the median


# The divisor


def test_gains_are_divided_by_the_mean_of_the_last_ten_medians() -> None:
    vime = trained()
    medians = []
    for k in range(12):
        data = batch(6, seed=k)
        gains = literal_gains(vime, data)
        medians.append(np.median(gains))  # also of an even number: between the two in the middle
        expected = np.mean(medians[-10:])
        np.testing.assert_allclose(vime.reward(data).numpy(), gains / expected, rtol=1e-3)
        assert vime.learn(data)["vime/median"] == pytest.approx(expected, rel=1e-4)
    assert len(vime.medians) == 10


def test_scoring_leaves_no_trace_in_the_medians() -> None:
    vime, data = trained(batches=3), batch(30)
    before = list(vime.medians)
    vime.reward(batch(30, scale=10))
    assert vime.medians == before
    bonus = vime.reward(data)
    assert torch.equal(vime.reward(data), bonus)


def test_a_less_informative_batch_has_a_smaller_bonus() -> None:
    """Dividing by the scale of this batch alone would give the same bonus at any stage."""
    vime = trained(dataclasses.replace(QUICK, updates=30))
    first = vime.reward(batch(60)).median()
    for k in range(6):
        vime.learn(batch(60, seed=k))
    assert vime.reward(batch(60)).median() < 0.5 * first


def test_a_median_of_zero_leaves_everything_finite() -> None:
    assert divisor([0.0, 0.0]) == MIN_DIVISOR
    assert divisor([1.0, 3.0]) == 2
    vime, data = trained(dataclasses.replace(QUICK, step_size=0.0)), batch(20)
    assert (vime.reward(data) == 0).all()
    assert all(math.isfinite(v) for v in vime.learn(data).values())


# Learning


@HIDDEN
def test_the_gradient_of_the_loss_against_autograd(hidden: tuple[int, ...]) -> None:
    config = VIMEConfig(hidden=hidden, samples=3, kl_batches=7, prior_sd=0.4, likelihood_sd=2.0)
    vime = trained(config)
    rng = torch.Generator().manual_seed(0)
    x, y, noise = (
        torch.randn(shape, generator=rng) for shape in ((6, 7), (6, 4), (3, sum(vime.sizes[1:])))
    )
    phi = vime.phi.detach().double().requires_grad_()
    sd, (mu, rho) = config.likelihood_sd, phi
    # Summed over the minibatch and the entries of s', mean over the samples.
    fits = [nll(phi, vime.sizes, e.double(), x.double(), y.double(), sd) for e in noise]
    fit = torch.stack(fits).mean()
    prior = Normal(torch.zeros_like(mu), config.prior_sd)
    kl = kl_divergence(Normal(mu, softplus(rho)), prior).sum()
    (fit + kl / 7).backward()

    inputs = torch.cat([x, torch.ones(6, 1)], 1)
    gradient, squares = loss_gradient(
        vime.phi.detach(), vime.sizes, inputs, y, noise,
        likelihood_sd=2.0, prior_sd=0.4, kl_weight=1 / 7,
    )  # fmt: skip
    assert phi.grad is not None
    torch.testing.assert_close(gradient.double(), phi.grad, rtol=1e-4, atol=1e-4)
    constant = y.numel() * (math.log(sd) + 0.5 * math.log(2 * math.pi))
    assert squares.item() / (2 * sd**2 * 3) + constant == pytest.approx(fit.item(), rel=1e-5)
    ours = kl_to_prior(vime.phi[0], softplus(vime.phi[1]), 0.4).item()
    assert ours == pytest.approx(kl.item(), rel=1e-5)


def test_the_kl_by_hand() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    assert kl_to_prior(zero, 0.5 * one, 0.5).item() == pytest.approx(0, abs=1e-6)
    # (1 + 1) / (2 · ¼) − ½ + log ½ − log 1
    assert kl_to_prior(one, one, 0.5).item() == pytest.approx(3.5 - math.log(2))


def test_a_training_is_so_many_adam_steps_on_replayed_minibatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = VIMEConfig(updates=4, min_replay=20)
    vime = VIME(VECTOR, CONTINUOUS, config)
    seen = []

    def spy(
        phi: Tensor, sizes: list[int], x: Tensor, y: Tensor, noise: Tensor, **settings: float
    ) -> tuple[Tensor, Tensor]:
        assert settings == {"likelihood_sd": 5.0, "prior_sd": 0.5, "kl_weight": 0.2}
        out = loss_gradient(phi, sizes, x, y, noise, **settings)
        seen.append((phi.clone(), x, y, noise, out))
        return out

    monkeypatch.setattr("emi.intrinsic.vime.loss_gradient", spy)
    data = batch(50)
    scalars = vime.learn(data)
    assert len(seen) == 4
    inputs = np.concatenate([data.obs[:], data.action[:]], 1)
    mean, std = inputs.mean(0), inputs.std(0)
    known = np.concatenate([(inputs - mean) / std, np.ones((50, 1))], 1)
    for _, x, y, noise, _ in seen:
        assert (x.shape, y.shape, noise.shape) == ((10, 8), (10, 4), (10, 36))
        # Rows of the batch, each with its own successor, in the units of s.
        distance = np.abs(known[None] - x.numpy()[:, None]).max(2)
        row = distance.argmin(1)
        assert distance.min(1).max() < 1e-4
        expected = (np.asarray(data.next_obs)[row] - mean[:4]) / std[:4]
        np.testing.assert_allclose(y.numpy(), expected, atol=1e-4)
    assert not torch.equal(seen[0][3], seen[1][3])
    assert not torch.equal(seen[0][1], seen[1][1])

    # The same steps with an Adam of our own.
    phi = torch.nn.Parameter(seen[0][0].clone())
    adam = torch.optim.Adam([phi], lr=1e-4)
    for before, *_, (g, _) in seen:
        torch.testing.assert_close(phi.detach(), before)
        phi.grad = g
        adam.step()
    torch.testing.assert_close(vime.phi, phi)

    fits = [
        np.mean([nll(before, vime.sizes, e, x[:, :-1], y, 5.0).item() for e in noise])
        for before, x, y, noise, _ in seen
    ]
    assert scalars["vime/nll"] == pytest.approx(np.mean(fits), rel=1e-5)
    prior = Normal(torch.zeros(()), 0.5)
    kl = kl_divergence(Normal(vime.phi[0], softplus(vime.phi[1])), prior).sum().item()
    assert scalars["vime/kl_prior"] == pytest.approx(kl, rel=1e-5)
    assert scalars["vime/loss"] == pytest.approx(np.mean(fits) + kl / 5, rel=1e-5)
    assert scalars["vime/replay"] == 50


def test_the_model_learns_the_dynamics() -> None:
    # With the released numbers the pull of the prior is stronger than the likelihood.
    config = VIMEConfig(updates=400, learning_rate=1e-2, likelihood_sd=0.5, kl_batches=500)
    vime = VIME(VECTOR, CONTINUOUS, config)
    first, last = (vime.learn(batch(600, seed=k)) for k in range(2))
    assert last["vime/nll"] < 0.5 * first["vime/nll"]
    x, y = vime._normalised(vime._rows(batch(200, seed=9)))
    silent = torch.zeros(sum(vime.sizes[1:]))
    error = predict(vime.phi.detach(), vime.sizes, silent, x[:, :-1]) - y
    assert error.square().mean() < 0.5 * y.square().mean()


def test_the_settings_are_those_of_the_released_half_cheetah() -> None:
    assert VIMEConfig() == VIMEConfig(
        hidden=(32,),
        prior_sd=0.5,
        likelihood_sd=5.0,
        samples=10,
        kl_batches=5,
        learning_rate=1e-4,
        updates=500,
        minibatch=10,
        replay_size=100_000,
        min_replay=500,
        step_size=0.01,
        max_gain=1000.0,
        median_window=10,
    )


def test_the_model_starts_at_the_prior_deviation() -> None:
    assert softplus(torch.tensor(rho_of(0.5))).item() == pytest.approx(0.5)
    assert rho_of(1e3) == 1e3
    vime = VIME(Box(-np.inf, np.inf, (20,)), CONTINUOUS)
    mu, rho = vime.phi.detach()
    assert len(mu) == 24 * 32 + 33 * 20
    torch.testing.assert_close(softplus(rho), torch.full_like(rho, 0.5))
    assert mu.mean().item() == pytest.approx(0, abs=0.1)
    assert mu.std().item() == pytest.approx(1, abs=0.1)


def test_weights_lie_layer_by_layer_with_the_biases_last() -> None:
    flat = torch.arange(13.0)
    first, second = matrices(flat, [2, 3, 1])
    assert first.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert second.tolist() == [[9], [10], [11], [12]]
    assert first.data_ptr() == flat.data_ptr()


# When there is a bonus, and in which units


def test_there_is_no_bonus_before_the_first_training() -> None:
    vime, data = VIME(VECTOR, CONTINUOUS, QUICK), batch(19)
    start = vime.phi.detach().clone()
    scalars = vime.learn(data)
    assert (vime.reward(data) == 0).all()
    assert torch.equal(vime.phi, start)
    assert vime.medians == []
    names = ("loss", "nll", "kl_prior", "median", "clipped")
    assert all(scalars[f"vime/{name}"] == 0 for name in names)
    assert scalars["vime/replay"] == 19
    # The batch that completes the replay was scored before there was a model.
    vime.learn(batch(1))
    assert vime.medians == []
    assert not torch.equal(vime.phi, start)
    assert (vime.reward(data) > 0).all()


def test_the_model_that_scores_a_batch_has_not_seen_it() -> None:
    """Nor its units: a distant batch is not normalised by its own standard deviation."""
    vime, far = trained(), batch(30, scale=100)
    assert not vime.learns_first
    mean, scale = vime.mean.clone(), vime.scale.clone()
    gains = literal_gains(vime, far)
    vime.reward(far)
    assert torch.equal(vime.mean, mean)
    assert torch.equal(vime.scale, scale)
    vime.learn(far)
    assert vime.medians[-1] == pytest.approx(np.median(gains), rel=1e-4)
    assert (vime.scale[:4] > 10 * scale[:4]).all()


def test_units_are_those_of_the_whole_replay() -> None:
    config = dataclasses.replace(QUICK, replay_size=70)
    vime = VIME(VECTOR, CONTINUOUS, config)
    parts = [batch(40, seed=k, scale=k + 1) for k in range(3)]
    for part in parts:
        vime.learn(part)
    inputs = np.concatenate([np.concatenate([p.obs[:], p.action[:]], 1) for p in parts])[-70:]
    np.testing.assert_allclose(vime.mean.numpy(), inputs.mean(0), atol=1e-6)
    np.testing.assert_allclose(vime.scale.numpy(), inputs.std(0), rtol=1e-5)
    assert len(vime.replay) == 70


def test_an_entry_that_never_varied_keeps_its_unit() -> None:
    """Dividing by a standard deviation of 0 gives NaN, and of almost 0 a huge first change."""
    data = batch(30)
    constant, zero = np.array(data.obs), np.array(data.obs)
    constant[:, 1] = 0.1
    zero[:, 1] = 0
    for obs in (constant, zero):
        vime = VIME(VECTOR, CONTINUOUS, QUICK)
        vime.learn(Transitions(obs, data.action, obs))
        assert vime.scale[1] == 1
        changed = obs.copy()
        changed[:, 1] += 1
        bonus = vime.reward(Transitions(changed, data.action, changed))
        assert torch.isfinite(bonus).all()
        assert vime._gain(vime._rows(Transitions(changed, data.action, changed))).max() < 1


def test_a_replay_of_one_transition() -> None:
    """The standard deviation of one row is 0, not NaN."""
    vime = VIME(VECTOR, CONTINUOUS, VIMEConfig(updates=2, min_replay=1))
    for _ in range(2):
        assert all(math.isfinite(v) for v in vime.learn(batch(1)).values())
    assert vime.reward(batch(1)).tolist() == pytest.approx([1], rel=1)


def test_the_successor_is_the_given_one_and_not_the_next_row() -> None:
    """The released code takes the next slot of the replay, also where an episode has ended."""
    vime, data = VIME(VECTOR, CONTINUOUS, QUICK), batch(25)
    vime.learn(data)
    np.testing.assert_array_equal(vime.replay.rows[:, :4].numpy(), data.obs)
    np.testing.assert_array_equal(vime.replay.rows[:, 4:7].numpy(), data.action)
    np.testing.assert_array_equal(vime.replay.rows[:, 7:].numpy(), data.next_obs)


def test_discrete_actions_are_one_hot_and_actions_matter() -> None:
    vime = VIME(VECTOR, Discrete(3, start=1), QUICK)
    data = batch(30)
    actions = np.arange(30) % 3 + 1
    vime.learn(Transitions(data.obs, actions, data.next_obs))
    np.testing.assert_array_equal(vime.replay.rows[:, 4:7].numpy(), np.eye(3)[actions - 1])
    one = Transitions(data.obs, np.full(30, 1), data.next_obs)
    two = Transitions(data.obs, np.full(30, 2), data.next_obs)
    assert not torch.equal(vime.reward(one), vime.reward(two))


@pytest.mark.parametrize("space", [MultiDiscrete([2, 3]), MultiBinary(2)], ids=str)
def test_the_replay_holds_the_one_hot_vectors_of_all_groups(space: MultiDiscrete) -> None:
    vime, data = VIME(VECTOR, space, QUICK), batch(30)
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(30)])
    vime.learn(Transitions(data.obs, actions, data.next_obs))
    second = np.eye(3 if isinstance(space, MultiDiscrete) else 2)[actions[:, 1]]
    expected = np.concatenate([np.eye(2)[actions[:, 0]], second], 1)
    width = 4 + expected.shape[1]
    np.testing.assert_array_equal(vime.replay.rows[:, 4:width].numpy(), expected)
    np.testing.assert_array_equal(vime.replay.rows[:, width:].numpy(), data.next_obs)


def test_images_raise_a_user_error() -> None:
    with pytest.raises(
        ValueError, match=r"VIME needs vectors: a Box that is not an image, got Box\(0"
    ):
        VIME(Box(0, 255, (3, 52, 52), np.uint8), CONTINUOUS)
    VIME(Box(0, 255, (128,), np.uint8), CONTINUOUS)  # bytes, but no image


def test_the_state_holds_units_noise_replay_and_medians() -> None:
    first, second = trained(batches=3), VIME(VECTOR, CONTINUOUS, QUICK, seed=9)
    extra: dict[str, Any] = first.get_extra_state()
    assert json.loads(json.dumps(extra)) == extra
    second.load_state_dict(first.state_dict())
    for k in range(2):
        data = batch(40, seed=k)
        assert torch.equal(first.reward(data), second.reward(data))
        assert first.learn(data) == second.learn(data)
    assert first.medians == second.medians
    assert len(extra["medians"]) == 2  # the state of then
    # A state from before the first training gives no bonus, wherever it is loaded.
    second.load_state_dict(VIME(VECTOR, CONTINUOUS, QUICK).state_dict())
    assert (second.reward(data) == 0).all()


def test_score_and_learn_computes_the_gains_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the bits of `reward` and `learn`, which compute them twice."""
    calls: list[int] = []
    gain = VIME._gain

    def counted(vime: VIME, rows: Tensor) -> Tensor:
        calls.append(len(rows))
        return gain(vime, rows)

    monkeypatch.setattr(VIME, "_gain", counted)
    shared, apart = VIME(VECTOR, CONTINUOUS, QUICK), VIME(VECTOR, CONTINUOUS, QUICK)
    for k, expected in enumerate(([], [30], [30])):  # nothing is scored before the first training
        data = batch(30, seed=k)
        bonus, scalars = score_and_learn(shared, data)
        assert calls == expected
        assert torch.equal(bonus, apart.reward(data))
        assert scalars == apart.learn(data)
        assert calls == expected * 3
        calls.clear()
    assert torch.equal(shared.phi, apart.phi)
    assert torch.equal(shared.noise, apart.noise)
    assert shared.medians == apart.medians
