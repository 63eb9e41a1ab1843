"""RND against a small NumPy version: whitening, error, discounted sums, scale and training."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from emi.batch import Rows, Transitions
from emi.intrinsic.bonus_scale import discounted_sums
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.gradients.distillation import dense_layers, write_gradient
from emi.intrinsic.moments import Moments
from emi.intrinsic.rnd import RND, RNDConfig, distillation_error, whiten

VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = Box(0, 255, (4, 52, 52), np.uint8)
ACTIONS = Discrete(5)
SMALL = RNDConfig(features=16, hidden=(8, 8))


def vectors(n: int, seed: int = 0, envs: int = 1, shift: float = 0.0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = (rng.normal(shift, 1, (n, 4)).astype(np.float32) for _ in range(2))
    return Transitions(obs, rng.integers(0, 5, n), next_obs, np.arange(n) % envs)


def images(n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = (rng.integers(0, 256, (n, 4, 52, 52), dtype=np.uint8) for _ in range(2))
    return Transitions(obs, rng.integers(0, 5, n), next_obs)


def forward(net: Any, x: np.ndarray) -> np.ndarray:
    """Linear layers, leaky ReLU of slope 0.2 and ReLU in plain NumPy."""
    for layer in net:
        name = type(layer).__name__
        if name == "Linear":
            w, b = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
            x = x @ w.T + b
        elif name == "LeakyReLU":
            x = np.where(x > 0, x, 0.2 * x)
        else:
            assert name == "ReLU"
            x = np.maximum(x, 0)
    return x


def error_of(rnd: RND, next_obs: Any, seen: np.ndarray) -> np.ndarray:
    """Mean over the features of the squared error, whitened by all that has been `seen`."""
    x = np.clip((next_obs.astype(np.float64) - seen.mean(0)) / seen.std(0), -5, 5)
    return np.mean((forward(rnd.predictor, x) - forward(rnd.target, x)) ** 2, 1)


@pytest.mark.parametrize("n", [37, 256])
def test_the_gradient_by_hand_is_that_of_autograd_bit_for_bit(n: int) -> None:
    rnd = RND(VECTOR, ACTIONS, SMALL)
    x, target = torch.randn(n, 4), torch.randn(n, 16)
    expected = distillation_error(rnd.predictor(x), target).mean()
    expected.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in rnd.predictor.parameters()]
    layers = dense_layers(list(rnd.predictor))
    assert layers is not None
    loss = write_gradient(layers, x, target)
    assert torch.equal(loss, expected.detach())
    for p, gradient in zip(rnd.predictor.parameters(), gradients, strict=True):
        assert p.grad is not gradient
        assert torch.equal(p.grad, gradient)


def test_convolutions_are_left_to_autograd() -> None:
    assert dense_layers(list(RND(IMAGE, ACTIONS, SMALL).predictor)) is None


def test_a_copy_has_its_own_layers() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(40)
    before = [p.clone() for p in rnd.parameters()]
    copy.deepcopy(rnd).learn(data)
    assert all(torch.equal(a, b) for a, b in zip(rnd.parameters(), before, strict=True))


def test_whitening_by_hand() -> None:
    moments = Moments(*(torch.tensor(v, dtype=torch.float64) for v in (9.0, [1.0, 0.0], [4.0, 1])))
    x = torch.tensor([[3.0, 4.0], [100.0, -100.0], [1.0, 0.0]])
    before = x.clone()
    out = whiten(x, moments)
    assert out.tolist() == [[1, 4], [5, -5], [0, 0]]
    assert out.dtype == torch.float32
    assert torch.equal(x, before)


def test_an_entry_that_never_moved_is_zero_and_then_clipped() -> None:
    """Its standard deviation is 0: the result is neither NaN nor unbounded."""
    moments = Moments.of(torch.full((50, 1), 0.1))
    out = whiten(torch.tensor([[0.1], [0.2], [-3.0]]), moments)
    assert out.flatten().tolist() == [0, 5, -5]


def test_the_error_is_the_mean_over_features() -> None:
    """Not the sum, and not half of it."""
    predicted = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    target = torch.tensor([[1.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
    assert distillation_error(predicted, target).tolist() == [5, 1]


def test_discounted_sums_by_hand() -> None:
    """Through time within an environment, though rows of environments alternate."""
    bonus = np.array([1.0, 10.0, 2.0, 20.0, 3.0])
    env, last = np.array([0, 1, 0, 1, 0]), np.array([4.0])
    sums, after = discounted_sums(bonus, env, last, 0.5)
    assert sums.tolist() == [3, 10, 3.5, 25, 4.75]
    assert after.tolist() == [4.75, 25]
    assert last.tolist() == [4]  # untouched
    # An environment without rows keeps what it had; one more than ever before begins at 0.
    sums, after = discounted_sums(np.array([8.0, 1.0]), np.array([1, 3]), after, 0.5)
    assert sums.tolist() == [20.5, 1]
    assert after.tolist() == [4.75, 20.5, 0, 1]


def test_discounted_sums_in_parts_are_those_at_once() -> None:
    rng = np.random.default_rng(0)
    bonus, env = rng.random(60), rng.integers(0, 4, 60)
    whole, after = discounted_sums(bonus, env, np.zeros(1), 0.9)
    last, parts = np.zeros(1), []
    for rows in (slice(0, 7), slice(7, 8), slice(8, 60)):
        part, last = discounted_sums(bonus[rows], env[rows], last, 0.9)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts), whole)
    np.testing.assert_allclose(last, after)


def test_bonuses_of_three_batches_against_numpy() -> None:
    config = dataclasses.replace(SMALL, learning_rate=1e-2, discount=0.8)
    rnd = RND(VECTOR, ACTIONS, config, seed=1)
    seen = np.empty((0, 4))
    reached, every = np.zeros(3), [0.0]  # R_0 = 0 is a value as well
    for i, envs in enumerate((1, 3, 2)):  # environments come and go
        data = vectors(24, seed=i, envs=envs, shift=i)
        next_obs = np.asarray(data.next_obs, dtype=np.float64)
        # The moments that scored are those before this batch; for the first, its own.
        error = error_of(rnd, data.next_obs, seen if i else next_obs)
        for e, r in zip(np.asarray(data.env_index), error, strict=True):
            reached[e] = 0.8 * reached[e] + r
            every.append(reached[e])
        # All n sums count, not one for each environment or step.
        scale = np.std(every)
        np.testing.assert_allclose(rnd.reward(data).numpy(), error / scale, rtol=1e-4)
        scalars = rnd.learn(data)
        assert scalars["rnd/bonus_scale"] == pytest.approx(scale, rel=1e-5)
        assert rnd.sums.count.item() == len(every) == 1 + 24 * (i + 1)
        seen = np.concatenate([seen, next_obs])
        np.testing.assert_allclose(rnd.observed.mean.numpy(), seen.mean(0))
        np.testing.assert_allclose(rnd.observed.variance.numpy(), seen.var(0))


def test_the_predictor_learns_with_the_new_moments() -> None:
    config = dataclasses.replace(SMALL, epochs=1, minibatches=1)
    rnd, first, second = RND(VECTOR, ACTIONS, config), vectors(20), vectors(30, 1, shift=3)
    rnd.learn(first)
    before = copy.deepcopy(rnd)
    scalars = rnd.learn(second)
    both = np.concatenate([first.next_obs, second.next_obs]).astype(np.float64)
    # One step on the whole batch: the loss is the mean error just before it.
    expected = error_of(before, second.next_obs, both).mean()
    old = error_of(before, second.next_obs, np.asarray(first.next_obs, np.float64)).mean()
    assert scalars["rnd/loss"] == pytest.approx(expected, rel=1e-4)
    assert abs(old / expected - 1) > 0.1  # the two are well apart


def test_the_first_step_is_adams_on_the_mean_error() -> None:
    config = dataclasses.replace(SMALL, epochs=1, minibatches=1, learning_rate=1e-3)
    rnd, data = RND(VECTOR, ACTIONS, config), vectors(20)
    before = copy.deepcopy(rnd)
    rnd.learn(data)
    x = whiten(torch.as_tensor(data.next_obs), rnd.observed)
    distillation_error(before.predictor(x), before.target(x)).mean().backward()
    for p, q in zip(before.predictor.parameters(), rnd.predictor.parameters(), strict=True):
        assert p.grad is not None
        step = 1e-3 * p.grad / (p.grad.abs() + 1e-8)
        torch.testing.assert_close(q, p - step, rtol=0, atol=1e-5)


def test_equal_errors_have_equal_bonuses() -> None:
    """The discounted sums only measure a scale: they do not take the place of the bonus."""
    rnd = RND(VECTOR, ACTIONS, SMALL)
    rnd.learn(vectors(20))
    same = vectors(1, seed=5)[np.zeros(40, np.int64)]
    bonus = rnd.reward(same)
    torch.testing.assert_close(bonus, bonus[:1].expand(40))
    assert bonus[0] > 0


def test_nothing_is_subtracted_from_the_bonus() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(50)
    ratio = rnd.error(data.next_obs) / rnd.reward(data)
    torch.testing.assert_close(ratio, ratio[:1].expand(50))
    assert rnd.learn(data)["rnd/bonus_scale"] == pytest.approx(ratio[0].item(), rel=1e-5)


def test_scoring_stores_neither_moments_nor_sums() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(30, envs=3)
    for _ in range(2):  # without moments, and with
        before = copy.deepcopy(rnd.state_dict())
        rnd.reward(data)
        for key in ("observed.count", "observed.mean", "sums.count", "sums.variance"):
            assert torch.equal(rnd.state_dict()[key], before[key])
        assert torch.equal(rnd.get_extra_state()["last"], before["_extra_state"]["last"])
        rnd.learn(data)
    assert len(rnd.get_extra_state()["last"]) == 3


def test_without_moments_a_batch_is_whitened_by_itself() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(40)
    expected = error_of(rnd, data.next_obs, np.asarray(data.next_obs, np.float64))
    np.testing.assert_allclose(rnd.error(data.next_obs).numpy(), expected, rtol=1e-4)
    # So the units of an observation do not matter, from the start on.
    moved = dataclasses.replace(data, next_obs=np.asarray(data.next_obs) * 1000 - 7)
    torch.testing.assert_close(rnd.reward(moved), rnd.reward(data), rtol=1e-3, atol=1e-4)


def test_one_transition_at_a_time() -> None:
    """A variance over the count less one would be NaN at once."""
    rnd = RND(VECTOR, ACTIONS, SMALL)
    data = vectors(6)
    # The first row is its own mean: both networks read zeros and agree.
    bonus, scalars = score_and_learn(rnd, data[:1])
    assert bonus.tolist() == [0]
    assert scalars == {"rnd/loss": 0, "rnd/bonus_scale": 0, "rnd/clipped": 0}
    # Sums so far: 0, 0, R. Their standard deviation is R · √2/3.
    bonus, scalars = score_and_learn(rnd, data[1:2])
    assert bonus.tolist() == pytest.approx([3 / math.sqrt(2)])
    for i in range(2, 6):
        bonus, scalars = score_and_learn(rnd, data[i : i + 1])
        assert 0 < bonus.item() < 10
        assert all(math.isfinite(v) for v in scalars.values())


def test_a_first_value_has_a_deviation() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(30)
    rnd.observed.update(torch.as_tensor(data.next_obs))
    assert rnd.reward(data[:1]).tolist() == pytest.approx([2])  # sums 0 and R: R / (R / 2)


def test_the_target_never_moves() -> None:
    rnd = RND(VECTOR, ACTIONS, dataclasses.replace(SMALL, learning_rate=0.1))
    target, predictor = (copy.deepcopy(n.state_dict()) for n in (rnd.target, rnd.predictor))
    rnd.learn(vectors(20))
    assert all(torch.equal(v, target[k]) for k, v in rnd.target.state_dict().items())
    assert not any(torch.equal(v, predictor[k]) for k, v in rnd.predictor.state_dict().items())
    assert not any(p.requires_grad for p in rnd.target.parameters())
    (group,) = rnd.descent.optimizer.param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in rnd.predictor.parameters()]
    assert set(rnd.state_dict()) >= {f"target.{k}" for k in target}


def test_the_settings_are_the_originals() -> None:
    config = RNDConfig()
    assert (config.features, config.discount, config.learning_rate) == (512, 0.99, 1e-4)
    assert (config.epochs, config.minibatches) == (4, 4)
    assert not RND(VECTOR, ACTIONS, SMALL).learns_first


def test_the_networks_are_the_originals() -> None:
    rnd = RND(IMAGE, ACTIONS)
    convolutions = [(32, 1, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    shapes = [tuple(p.shape) for p in rnd.target.parameters() if p.ndim > 1]
    assert shapes == [*convolutions, (512, 576)]
    shapes = [tuple(p.shape) for p in rnd.predictor.parameters() if p.ndim > 1]
    assert shapes == [*convolutions, (512, 576), (512, 512), (512, 512)]
    names = [type(layer).__name__ for layer in rnd.predictor]
    assert names == ["Conv2d", "LeakyReLU"] * 3 + ["FlatImages"] + ["Linear", "ReLU"] * 2 + [
        "Linear"
    ]
    assert {layer.negative_slope for layer in rnd.target if hasattr(layer, "negative_slope")} == {
        0.2
    }
    for net in (rnd.target, rnd.predictor):
        for p in net.parameters():
            if p.ndim == 1:
                assert not p.any()
            else:  # orthogonal with the gain √2
                w = p.detach().flatten(1)
                gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
                torch.testing.assert_close(gram, 2 * torch.eye(len(gram)), rtol=0, atol=1e-4)
    rnd = RND(VECTOR, ACTIONS)
    shapes = [tuple(p.shape) for p in rnd.target.parameters() if p.ndim > 1]
    assert shapes == [(128, 4), (128, 128), (512, 128)]
    names = [type(layer).__name__ for layer in rnd.predictor]
    assert names == ["Linear", "LeakyReLU"] * 2 + ["Linear", "ReLU"] * 2 + ["Linear"]


@pytest.mark.parametrize(("n", "sizes"), [(20, [5] * 4), (7, [2, 2, 2, 1]), (3, [1] * 3)])
def test_a_pass_is_the_whole_batch_in_four_parts(
    n: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[torch.Tensor] = []
    step = RND._step

    def recorded(self: RND, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        parts.append(x)
        torch.testing.assert_close(target, self.target(x))
        return step(self, x, target)

    monkeypatch.setattr(RND, "_step", recorded)
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(n)
    rnd.learn(data)
    whitened = whiten(torch.as_tensor(data.next_obs), rnd.observed)
    assert [len(part) for part in parts] == sizes * 4
    passes = [torch.cat(parts[i : i + len(sizes)]) for i in range(0, len(parts), len(sizes))]
    for rows in passes:
        assert sorted(rows[:, 0].tolist()) == sorted(whitened[:, 0].tolist())
    assert not torch.equal(passes[0], passes[1])  # in a new order
    steps = {int(s["step"]) for s in rnd.descent.optimizer.state_dict()["state"].values()}
    assert steps == {4 * len(sizes)}


def test_every_row_is_held_against_its_own_target() -> None:
    """Targets are computed once in the order of the batch; training shuffles them."""
    config = dataclasses.replace(SMALL, learning_rate=1e-9)
    rnd, data = RND(VECTOR, ACTIONS, config), vectors(40)
    loss = rnd.learn(data)["rnd/loss"]  # of a predictor that as good as never moved
    assert loss == pytest.approx(rnd.error(data.next_obs).mean().item(), rel=1e-4)


def test_the_clipped_share_is_that_of_entries() -> None:
    rnd = RND(VECTOR, ACTIONS, SMALL)
    next_obs = np.zeros((100, 4), np.float32)
    next_obs[7, 2] = 1.0  # (1 − 1/100) / √(99/100²) ≈ 9.9 standard deviations
    next_obs[8, 3] = -1.0
    data = dataclasses.replace(vectors(100), next_obs=next_obs)
    assert rnd.learn(data)["rnd/clipped"] == 2 / 400


def test_only_the_next_observation_is_read() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(10)
    other = Transitions(
        np.asarray(data.obs) + 1, np.zeros(10, np.int64), data.next_obs, data.env_index
    )
    assert torch.equal(rnd.reward(data), rnd.reward(other))
    assert rnd.learn(data) == RND(VECTOR, ACTIONS, SMALL).learn(other)


def test_only_the_newest_frame_counts() -> None:
    rnd, data = RND(IMAGE, ACTIONS), images(4)
    older, newest = np.array(data.next_obs), np.array(data.next_obs)
    older[:, :3] = 0
    newest[:, 3, :8] = 0
    assert torch.equal(rnd.error(data.next_obs), rnd.error(older))
    assert not torch.equal(rnd.error(data.next_obs), rnd.error(newest))
    assert rnd.observed.mean.shape == (1, 52, 52)  # one mean for each pixel


def test_images_are_whitened_pixel_by_pixel() -> None:
    rnd, data = RND(IMAGE, ACTIONS), images(6)
    rnd.learn(data)
    frames = np.asarray(data.next_obs)[:, 3:].astype(np.float64) / 127.5 - 1
    np.testing.assert_allclose(rnd.observed.mean.numpy(), frames.mean(0), atol=1e-6)
    x = np.clip((frames - frames.mean(0)) / frames.std(0), -5, 5)
    with torch.no_grad():
        raw = torch.as_tensor(x, dtype=torch.float32)
        expected = (rnd.predictor(raw) - rnd.target(raw)).square().mean(1)
    torch.testing.assert_close(rnd.error(data.next_obs), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("space", [VECTOR, IMAGE])
def test_in_pieces_is_at_once(space: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    data = vectors(21) if space is VECTOR else images(5)
    # Rows that are gathered lazily, as from a trainer.
    rows = dataclasses.replace(data, next_obs=Rows(np.asarray(data.next_obs), np.arange(len(data))))
    whole = RND(space, ACTIONS, SMALL)
    bonus, scalars = score_and_learn(whole, data)
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 2)
    parts = RND(space, ACTIONS, SMALL)
    bonus_parts, scalars_parts = score_and_learn(parts, rows)
    torch.testing.assert_close(bonus, bonus_parts, rtol=1e-4, atol=1e-5)
    assert scalars == pytest.approx(scalars_parts, rel=1e-4)
    torch.testing.assert_close(whole.observed.variance, parts.observed.variance)
    assert whole.observed.count.item() == parts.observed.count.item() == len(data)


def test_without_environments_all_rows_are_one_stream() -> None:
    rnd, data = RND(VECTOR, ACTIONS, SMALL), vectors(30)
    assert torch.equal(rnd.reward(data), rnd.reward(dataclasses.replace(data, env_index=None)))
    assert not torch.equal(rnd.reward(data), rnd.reward(vectors(30, envs=3)))


def test_the_bonus_of_what_is_known_shrinks_and_the_unknown_stands_out() -> None:
    """Scaling each batch by its own range would hide that states become known."""
    config = RNDConfig(features=32, hidden=(32, 32), learning_rate=1e-3)
    rnd, known, unknown = RND(VECTOR, ACTIONS, config), vectors(256), vectors(256, 1, shift=2)
    first = rnd.reward(known).mean()
    for _ in range(20):
        rnd.learn(known)
    again, new = rnd.reward(known), rnd.reward(unknown)
    assert again.mean() < 0.3 * first
    assert (new[:, None] > again[None]).float().mean() > 0.9


def test_the_state_carries_sums_of_many_environments() -> None:
    first, second = RND(VECTOR, ACTIONS, SMALL, seed=0), RND(VECTOR, ACTIONS, SMALL, seed=9)
    first.learn(vectors(24, envs=6))
    saved = copy.deepcopy(first.state_dict())
    state = first.state_dict()
    second.load_state_dict(state)
    more = vectors(24, seed=1, envs=8)
    assert torch.equal(first.reward(more), second.reward(more))
    assert first.learn(more) == second.learn(more)
    assert torch.equal(first.get_extra_state()["last"], second.get_extra_state()["last"])
    # What was handed out stays as it was.
    assert torch.equal(state["_extra_state"]["last"], saved["_extra_state"]["last"])


def test_unsupported_observations_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="observations must be a Box"):
        RND(Dict({"a": VECTOR}), ACTIONS)


def test_score_and_learn_computes_the_error_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the bits of `reward` and `learn`, which compute it twice."""
    calls: list[int] = []
    error = RND.error

    def counted(rnd: RND, obs: np.ndarray) -> torch.Tensor:
        calls.append(len(obs))
        return error(rnd, obs)

    monkeypatch.setattr(RND, "error", counted)
    shared, apart = RND(VECTOR, ACTIONS, SMALL), RND(VECTOR, ACTIONS, SMALL)
    for k in range(3):
        data = vectors(24, seed=k, envs=3)
        bonus, scalars = score_and_learn(shared, data)
        assert calls == [24]
        assert torch.equal(bonus, apart.reward(data))
        assert scalars == apart.learn(data)
        assert calls == [24] * 3
        calls.clear()
    for (name, ours), theirs in zip(shared.named_parameters(), apart.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    assert torch.equal(shared.sums.variance, apart.sums.variance)
