"""EX2: the gradient against autograd, the odds against a known density, the order of events."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

from emi.batch import Rows, Transitions
from emi.intrinsic.ex2 import EX2, EX2Config, exemplar_logit, novelty
from emi.intrinsic.gradients.ex2 import Discriminator, backward, layer_shapes

VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = Box(0, 255, (4, 36, 36), np.uint8)
CONTINUOUS = Box(-2, 2, (3,))
DISCRETE = Discrete(5)
SMALL = EX2Config(
    hidden=6, features=3, updates=3, first_updates=5, minibatch=8, replay_size=100, min_replay=20
)


def vectors(n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, action, next_obs = (rng.normal(size=(n, k)).astype(np.float32) for k in (4, 3, 4))
    return Transitions(obs, action, next_obs)


def images(n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs = rng.integers(0, 256, (2, n, 4, 36, 36), dtype=np.uint8)
    return Transitions(obs[0], rng.integers(0, 5, n), obs[1])


def leaves(D: Discriminator) -> list[Tensor]:
    """All weights of a discriminator."""
    layers = (*D.trunk, D.branch, D.code, D.hidden, D.logit)
    return [tensor for layer in layers for tensor in layer]


def objective(D: Discriminator, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss as the paper has it, one row per pair, the first half (x, x); BCE, KL, logits."""

    def encode(e: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        for W, b in D.trunk:
            rows = torch.tanh(rows @ W[e] + b[e])
        mean, log_var = (
            torch.tanh(rows @ D.branch.W[k] + D.branch.b[k]) @ D.code.W[k] + D.code.b[k]
            for k in (e, e + 2)
        )
        kl = 0.5 * (mean**2 + torch.exp(log_var) - log_var - 1).sum(1)
        return mean + torch.exp(log_var / 2) * noise[e], kl

    codes, kl = zip(*(encode(e, x[e]) for e in range(2)), strict=True)
    hidden = torch.tanh(torch.cat(codes, 1) @ D.hidden.W[0] + D.hidden.b[0])
    logit = (hidden @ D.logit.W[0] + D.logit.b[0])[:, 0]
    p, half = torch.sigmoid(logit), len(logit) // 2
    bce = -torch.cat([torch.log(p[:half]), torch.log(1 - p[half:])]).mean()
    return bce, (kl[0] + kl[1]).mean(), logit


@pytest.mark.parametrize("sizes", [[5, 6, 6], [7]])  # as for vectors, as after convolutions
@pytest.mark.parametrize("B", [1, 4])
def test_the_gradient_by_hand_is_autograds(sizes: list[int], B: int) -> None:
    f, kl_weight = 3, 0.3
    rng = torch.Generator().manual_seed(0)
    shapes = layer_shapes(sizes, 6, f)
    count = sum(k * (i + 1) * o for k, i, o in shapes)
    vector = torch.randn(count, generator=rng, dtype=torch.float64)
    x = torch.randn(2, 2 * B, sizes[0], generator=rng, dtype=torch.float64)
    noise = torch.randn(2, 2 * B, f, generator=rng, dtype=torch.float64)

    D = Discriminator.of(vector.clone().requires_grad_(), shapes)
    leaf = x.clone().requires_grad_()
    bce, kl, logit = objective(D, leaf, noise)
    *expected, d_x = torch.autograd.grad(bce + kl_weight * kl, [*leaves(D), leaf])

    grad = torch.full_like(vector, math.nan)  # nothing is left unwritten
    plain, written = Discriminator.of(vector, shapes), Discriminator.of(grad, shapes)
    with torch.no_grad():
        step = backward(plain, written, leaf, noise, kl_weight)
        assert backward(plain, written, x, noise, kl_weight).d_x is None  # no gradient required
    for ours, theirs in zip(leaves(written), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(step.logit, logit.detach())
    torch.testing.assert_close(step.kl, kl.detach())
    # The way into what feeds the encoders.
    torch.testing.assert_close(step.d_x, d_x, rtol=1e-6, atol=1e-9)


def test_every_weight_is_a_place_of_its_own() -> None:
    """Two encoders with separate weights: nothing is shared, nothing is left over."""
    shapes = layer_shapes([5, 6, 6], 6, 3)
    vector = torch.zeros(sum(k * (i + 1) * o for k, i, o in shapes))
    for tensor in leaves(Discriminator.of(vector, shapes)):
        tensor += 1
    assert torch.equal(vector, torch.ones_like(vector))


def test_without_noise_the_codes_are_their_means() -> None:
    ex2, data = EX2(VECTOR, CONTINUOUS, SMALL, seed=1), vectors(7)
    D = Discriminator.of(ex2.weights.detach(), ex2.shapes)
    x = torch.as_tensor(data.obs).expand(2, 7, 4)
    logit = objective(D, x, torch.zeros(2, 7, 3))[2]
    torch.testing.assert_close(ex2.logit(data.obs, data.action), logit)
    torch.testing.assert_close(exemplar_logit(D, x), logit)


@pytest.mark.parametrize("D", [0.5, 0.2, 0.9])
def test_novelty_by_hand(D: float) -> None:
    logit, p = torch.tensor([math.log(D / (1 - D))]), (1 - D) / D
    assert novelty(logit, "neg_log_density").item() == pytest.approx(-math.log(p), abs=1e-6)
    assert novelty(logit, "inverse_sqrt_density").item() == pytest.approx(1 / math.sqrt(p))


def test_novelty_is_bounded_as_d_is_clipped() -> None:
    logit = torch.tensor([-1e4, 1e4])
    assert novelty(logit, "neg_log_density").tolist() == pytest.approx([-11.512915, 11.512915])
    low, high = novelty(logit, "inverse_sqrt_density").tolist()
    assert high == pytest.approx(316.2262, rel=1e-5)
    assert low == pytest.approx(1 / 316.2262, rel=1e-5)


@pytest.mark.parametrize("bonus", ["neg_log_density", "inverse_sqrt_density"])
@pytest.mark.parametrize("n", [1, 6, 7])
def test_the_bonus_is_what_exceeds_the_median_of_the_batch(bonus: Any, n: int) -> None:
    ex2 = EX2(VECTOR, CONTINUOUS, dataclasses.replace(SMALL, bonus=bonus))
    ex2.learn(vectors(30))
    data = vectors(n, seed=1)
    raw = novelty(ex2.logit(data.obs, data.action), bonus).numpy()
    # Of an even number, NumPy takes the mean of the two in the middle; torch the lower one.
    np.testing.assert_allclose(ex2.reward(data).numpy(), raw - np.median(raw), rtol=1e-5, atol=1e-6)
    if n == 1:
        assert ex2.reward(data).item() == 0


def steps_taken(ex2: EX2) -> int:
    state = ex2.descent.optimizer.state[ex2.weights]
    return int(state["step"]) if state else 0


def test_no_training_and_no_bonus_before_min_replay() -> None:
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)  # 20 states are needed
    before = ex2.weights.detach().clone()
    nothing = {"ex2/loss": 0.0, "ex2/bce": 0.0, "ex2/kl": 0.0, "ex2/accuracy": 0.0}
    assert ex2.learn(vectors(12)) == {**nothing, "ex2/replay": 12.0}
    assert not ex2.reward(vectors(12)).any()
    # Now 24 are stored: enough for a bonus, of the untrained network, and for training.
    assert ex2.learn(vectors(12, seed=1)) == {**nothing, "ex2/replay": 24.0}
    assert torch.equal(ex2.weights, before)
    assert ex2.reward(vectors(12)).any()
    scalars = ex2.learn(vectors(12, seed=2))
    assert scalars["ex2/replay"] == 36
    assert scalars["ex2/loss"] > 0
    assert not torch.equal(ex2.weights, before)


def test_a_first_batch_however_large_has_no_past() -> None:
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
    assert ex2.learn(vectors(90))["ex2/loss"] == 0
    assert steps_taken(ex2) == 0


def test_the_first_training_is_longer() -> None:
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
    counts = []
    for seed in range(5):
        ex2.learn(vectors(15, seed))
        counts.append(steps_taken(ex2))
    assert counts == [0, 0, 5, 5 + 3, 5 + 3 + 3]
    # That it is over is part of the state.
    other = EX2(VECTOR, CONTINUOUS, SMALL, seed=9)
    other.load_state_dict(ex2.state_dict())
    other.learn(vectors(15, 5))
    assert steps_taken(other) == 5 + 3 + 3 + 3


def test_the_past_is_older_than_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the batch itself among the negatives, pairs (x, x) would carry both labels."""
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
    old, new = vectors(30), vectors(25, seed=1)
    ex2.learn(old)
    sizes, draw = [], ex2.pool.draw

    def spy(n: int, generator: torch.Generator) -> Tensor:
        rows = draw(n, generator)
        assert (rows[:, None] == torch.as_tensor(old.obs)).all(2).any(1).all()
        sizes.append(len(ex2.pool))
        return rows

    monkeypatch.setattr(ex2.pool, "draw", spy)
    ex2.learn(new)
    assert sizes == [30]
    held = ex2.pool.rows
    assert torch.equal(held, torch.as_tensor(np.concatenate([old.obs, new.obs])))


def test_the_replay_forgets_the_oldest() -> None:
    ex2 = EX2(VECTOR, CONTINUOUS, dataclasses.replace(SMALL, replay_size=40))
    for seed in range(3):
        scalars = ex2.learn(vectors(25, seed))
    assert scalars["ex2/replay"] == len(ex2.pool) == 40
    last = np.concatenate([vectors(25, seed).obs for seed in range(3)])[-40:]
    order = lambda rows: rows[np.lexsort(rows.T)]  # noqa: E731
    np.testing.assert_array_equal(order(ex2.pool.rows.numpy()), order(last))


def test_each_step_draws_exemplars_pairs_and_noise_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emi.intrinsic.ex2.STEPS", 2)  # five steps in blocks of 2, 2 and 1
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
    old, new = vectors(30), vectors(6, seed=1)
    ex2.learn(old)
    draws = list(ex2._draws(new))
    assert len(draws) == 5
    for (exemplar, other), noise in draws:
        assert exemplar.shape == other.shape == (16, 4)
        assert noise.shape == (2, 16, 3)
        among = (other[:, None] == torch.as_tensor(new.obs)).all(2).any(1)
        assert among.tolist() == [True] * 8 + [False] * 8
        assert torch.equal(exemplar, other[:8].repeat(2, 1))  # (x, x), then (x, past)
    every = torch.stack([noise for _, noise in draws]).flatten()
    assert len(every.unique()) == len(every)  # none is used twice
    positives = torch.stack([rows[0, :8] for rows, _ in draws])
    assert len(positives.flatten(0, 1).unique(dim=0)) == 6  # all of the batch, many times


def test_the_scalars_are_those_of_the_steps() -> None:
    config = dataclasses.replace(SMALL, updates=2, first_updates=1, kl_weight=0.3)
    ex2, twin = (EX2(VECTOR, CONTINUOUS, config, seed=3) for _ in range(2))
    for method in (ex2, twin):
        method.learn(vectors(30))
    new = vectors(10, seed=1)
    ((rows, noise),) = twin._draws(new)
    bce, kl, logit = objective(Discriminator.of(twin.weights.detach(), twin.shapes), rows, noise)
    right = (logit[:8] > 0).sum() + (logit[8:] <= 0).sum()
    scalars = ex2.learn(new)  # one step, so that the mean is that step
    assert scalars["ex2/bce"] == pytest.approx(bce.item(), rel=1e-5)
    assert scalars["ex2/kl"] == pytest.approx(kl.item(), rel=1e-5)
    assert scalars["ex2/loss"] == pytest.approx((bce + 0.3 * kl).item(), rel=1e-5)
    assert scalars["ex2/accuracy"] == pytest.approx(right.item() / 16)


def test_the_odds_become_the_density_of_the_past() -> None:
    """p = (1 − D) / D: with few states, the share of the past that is in each."""
    share = np.array([0.6, 0.3, 0.1, 0.0])
    states = np.eye(4, dtype=np.float32)

    def batch(which: Any) -> Transitions:
        return Transitions(states[which], np.zeros((len(which), 3), np.float32), states[which])

    config = EX2Config(
        kl_weight=0.0,
        hidden=16,
        features=8,
        first_updates=500,
        minibatch=256,
        min_replay=10,
        learning_rate=5e-3,
    )
    ex2 = EX2(VECTOR, CONTINUOUS, config)
    ex2.learn(batch(np.repeat(np.arange(4), (share * 1000).astype(int))))
    every = batch(np.arange(4))
    ex2.learn(every)
    density = torch.exp(-ex2.logit(every.obs, every.action)).numpy()
    np.testing.assert_allclose(density, share, atol=0.08)
    bonus = ex2.reward(every)
    assert bonus.argsort().tolist() == [0, 1, 2, 3]  # the rarer, the larger


def test_a_large_kl_weight_gives_all_states_the_same_bonus() -> None:
    """The smoothing of the paper: codes without information cannot be distinguished."""
    spread = {}
    for kl_weight in (0.0, 10.0):
        config = EX2Config(
            kl_weight=kl_weight, first_updates=150, learning_rate=1e-2, min_replay=10, hidden=16
        )
        ex2 = EX2(VECTOR, CONTINUOUS, config)
        ex2.learn(vectors(500))
        new = vectors(200, seed=1)
        scalars = ex2.learn(new)
        spread[kl_weight] = ex2.reward(new).std().item()
    assert scalars["ex2/kl"] < 0.1
    assert spread[10.0] < 0.05 < 0.5 < spread[0.0]


def test_actions_are_used_only_with_use_actions() -> None:
    data = vectors(10, seed=1)
    other = dataclasses.replace(data, action=-np.asarray(data.action))
    for use_actions in (False, True):
        ex2 = EX2(VECTOR, CONTINUOUS, dataclasses.replace(SMALL, use_actions=use_actions))
        ex2.learn(vectors(30))
        ex2.learn(vectors(30))
        assert torch.equal(ex2.reward(data), ex2.reward(other)) is not use_actions
        assert ex2.pool.rows.shape[1] == (7 if use_actions else 4)
    # In the units of the network: the bounds are ±2.
    unit = torch.as_tensor(vectors(30).action).clamp(-2, 2) / 2
    torch.testing.assert_close(ex2.pool.rows[:30, 4:], unit)


def test_actions_as_sampled() -> None:
    data = vectors(30)
    data = dataclasses.replace(data, action=5 * np.asarray(data.action))
    config = dataclasses.replace(SMALL, use_actions=True, sampled_actions=True)
    ex2 = EX2(VECTOR, CONTINUOUS, config)
    assert ex2.wants_sampled_actions
    ex2.learn(data)
    unit = torch.as_tensor(data.action, dtype=torch.float32) / 2  # the bounds are ±2
    assert unit.abs().max() > 1
    torch.testing.assert_close(ex2.pool.rows[:30, 4:], unit)
    states_only = EX2(VECTOR, CONTINUOUS, dataclasses.replace(SMALL, sampled_actions=True))
    assert not states_only.wants_sampled_actions


def test_the_next_state_has_no_part_in_it() -> None:
    data = vectors(10, seed=1)
    ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
    ex2.learn(vectors(30))
    other = dataclasses.replace(data, next_obs=np.zeros((10, 4), np.float32))
    assert torch.equal(ex2.reward(data), ex2.reward(other))


def test_images_are_remembered_as_one_frame_of_bytes() -> None:
    ex2 = EX2(IMAGE, DISCRETE, SMALL)
    data = images(30)
    ex2.learn(data)
    assert ex2.pool.rows.dtype == torch.uint8
    assert torch.equal(ex2.pool.rows, torch.as_tensor(np.asarray(data.obs)[:, 3:]))
    older, newest = np.array(data.obs), np.array(data.obs)
    older[:, :3], newest[:, 3] = 0, 0
    again = dataclasses.replace(data, obs=older)
    assert torch.equal(ex2.reward(data), ex2.reward(again))
    assert not torch.equal(ex2.reward(data), ex2.reward(dataclasses.replace(data, obs=newest)))


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((36, 37), (1, 36, 37)), ((36, 37, 4), (1, 36, 37)), ((6, 36, 37), (3, 36, 37))],
)
def test_images_of_every_layout(shape: tuple[int, ...], kept: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (30, *shape), dtype=np.uint8)
    data = Transitions(obs, rng.integers(0, 5, 30), obs)
    ex2 = EX2(Box(0, 255, shape, np.uint8), DISCRETE, SMALL)
    for _ in range(2):
        ex2.learn(data)
    assert ex2.pool.rows.shape == (60, *kept)
    if shape == (36, 37):
        expected = obs[:, None]
    elif shape == (36, 37, 4):
        expected = obs[..., 3][:, None]
    else:
        expected = obs[:, 3:]
    assert torch.equal(ex2.pool.rows[:30], torch.as_tensor(expected))
    assert torch.isfinite(ex2.reward(data)).all()


def test_convolutions_learn_by_the_same_loss() -> None:
    """Two steps; the gradient is that of the second alone, nothing lingers from the first."""
    config = dataclasses.replace(SMALL, first_updates=2, learning_rate=1e-30)  # weights stay
    ex2, twin = (EX2(IMAGE, DISCRETE, config, seed=2) for _ in range(2))
    for method in (ex2, twin):
        method.learn(images(30))
    new = images(10, seed=1)
    _, (rows, noise) = twin._draws(new)
    x = torch.stack([net(side) for net, side in zip(twin.convolutions, rows, strict=True)])
    bce, kl, _ = objective(Discriminator.of(twin.weights, twin.shapes), x, noise)
    (bce + 0.1 * kl).backward()
    ex2.learn(new)
    for ours, theirs in zip(ex2.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)


def test_convolutions_take_their_steps() -> None:
    ex2 = EX2(IMAGE, DISCRETE, SMALL)
    ex2.learn(images(30))
    before = [p.detach().clone() for p in ex2.parameters()]
    ex2.learn(images(30, seed=1))
    assert all(not torch.equal(a, b) for a, b in zip(before, ex2.parameters(), strict=True))


def test_the_image_network_has_the_published_size() -> None:
    ex2 = EX2(Box(0, 255, (4, 52, 52), np.uint8), DISCRETE, EX2Config(hidden=64, features=32))
    # Full padding: 52 → 28 → 16, eight filters; then the hidden layers of all four branches.
    assert ex2.shapes == [(4, 16 * 16 * 8, 64), (4, 64, 32), (1, 64, 64), (1, 64, 1)]
    vector = EX2(VECTOR, CONTINUOUS)
    assert vector.shapes[:3] == [(2, 4, 32), (2, 32, 32), (4, 32, 32)]
    assert vector.shapes[3:] == [(4, 32, 16), (1, 32, 32), (1, 32, 1)]


def test_weights_begin_as_glorots_layer_by_layer() -> None:
    """Several layers lie side by side in one array; each has its own limit √(6 / (in + out))."""
    ex2 = EX2(VECTOR, CONTINUOUS)
    D = Discriminator.of(ex2.weights.detach(), ex2.shapes)
    for layer in leaves(D)[::2]:
        for W in layer:
            limit = math.sqrt(6 / sum(W.shape))
            assert 0.8 * limit < W.abs().max() <= limit
        assert len(layer.unique(dim=0)) == len(layer)  # each drawn for itself
    assert all(not b.any() for b in leaves(D)[1::2])


def test_new_states_have_a_larger_bonus_until_they_are_known() -> None:
    rng = np.random.default_rng(0)
    config = EX2Config(first_updates=150, updates=100, learning_rate=3e-3, min_replay=100)
    ex2 = EX2(VECTOR, CONTINUOUS, config)

    def cluster(n: int, centre: float) -> Any:
        return rng.normal(centre, 0.3, (n, 4)).astype(np.float32)

    def batch(obs: Any) -> Transitions:
        return Transitions(obs, np.zeros((len(obs), 3), np.float32), obs)

    for _ in range(2):
        ex2.learn(batch(cluster(400, -1.0)))
    mixed = batch(np.concatenate([cluster(350, -1.0), cluster(50, 1.0)]))
    ex2.learn(mixed)
    bonus = ex2.reward(mixed)
    assert (bonus[350:, None] > bonus[:350]).float().mean() > 0.95
    gaps = []
    for _ in range(3):
        ex2.learn(batch(np.concatenate([cluster(200, -1.0), cluster(200, 1.0)])))
        bonus = ex2.reward(mixed)
        gaps.append((bonus[350:].mean() - bonus[:350].mean()).item())
    assert gaps[0] > 1
    assert gaps[2] < 0.3 * gaps[0]


def test_the_model_learns_first() -> None:
    assert EX2(VECTOR, CONTINUOUS, SMALL).learns_first


def test_arrays_tensors_and_rows_give_the_same_bonus() -> None:
    data = vectors(30)
    obs, action, next_obs = map(torch.as_tensor, (data.obs, data.action, data.next_obs))
    tensors = Transitions(obs, action, next_obs)
    pool = np.concatenate([data.obs, data.next_obs])
    rows = Transitions(Rows(pool, np.arange(30)), data.action, Rows(pool, np.arange(30, 60)))
    results = []
    for batch in (data, tensors, rows):
        ex2 = EX2(VECTOR, CONTINUOUS, SMALL)
        ex2.learn(batch)
        scalars = ex2.learn(batch)
        results.append((scalars, ex2.reward(batch).tolist()))
    assert results[0] == results[1] == results[2]


def test_large_batches_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces = (EX2(VECTOR, CONTINUOUS, SMALL) for _ in range(2))
    whole.learn(vectors(61))
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 8)
    pieces.learn(vectors(61))
    assert torch.equal(whole.pool.rows, pieces.pool.rows)
    torch.testing.assert_close(whole.logit(*_columns(61)), pieces.logit(*_columns(61)))


def _columns(n: int) -> tuple[Any, Any]:
    data = vectors(n, seed=1)
    return data.obs, data.action


def test_wrong_settings_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="observations must be a Box"):
        EX2(Dict({"a": VECTOR}), DISCRETE)
    with pytest.raises(ValueError, match="actions must be a Box or Discrete"):
        EX2(VECTOR, Dict({"a": DISCRETE}))
    with pytest.raises(ValueError, match="use_actions needs vector observations"):
        EX2(IMAGE, DISCRETE, EX2Config(use_actions=True))
    with pytest.raises(ValueError, match="min_replay must be at most replay_size, 10, got 20"):
        EX2(VECTOR, DISCRETE, EX2Config(replay_size=10, min_replay=20))
