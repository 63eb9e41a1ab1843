"""ICM against a small NumPy version, term by term, and what its bonus promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Space

from emi.batch import Rows, Transitions
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.gradients.elu_convolutions import Workspace
from emi.intrinsic.icm import ICM, ICMConfig, Losses, forward_error, squared_error, surprisal

VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = Box(0, 255, (4, 36, 37), np.uint8)
SCALAR = Box(-1, 1, (1,))
CONTINUOUS = Box(-1, 1, (3,))
DISCRETE = Discrete(5, start=2)
ACTIONS = [SCALAR, CONTINUOUS, DISCRETE]


def batch(obs_space: Box, action_space: Space, n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)

    def draw(space: Space) -> np.ndarray:
        if isinstance(space, Discrete):
            return rng.integers(space.start, space.start + space.n, n)
        assert isinstance(space, Box)
        if space.dtype == np.uint8:
            return rng.integers(0, 256, (n, *space.shape), dtype=np.uint8)
        return rng.normal(size=(n, *space.shape)).astype(np.float32)

    return Transitions(draw(obs_space), draw(action_space), draw(obs_space))


def losses(icm: ICM, data: Transitions) -> Losses:
    obs, action, next_obs = (torch.as_tensor(x) for x in (data.obs, data.action, data.next_obs))
    return icm.losses(obs, icm.actions(action), next_obs)


def dense(net: Any, x: np.ndarray) -> np.ndarray:
    """Linear layers in plain NumPy, an activation between them and where the net ends in one."""
    for layer in net:
        name = type(layer).__name__
        if name == "Linear":
            x = x @ layer.weight.detach().numpy().T.astype(np.float64) + layer.bias.detach().numpy()
        elif name == "Tanh":
            x = np.tanh(x)
        elif name == "ReLU":
            x = np.maximum(x, 0)
        else:
            assert name == "Flat"
    return x


def convolved(net: Any, frame: np.ndarray) -> np.ndarray:
    """[n, H, W] bytes through 3×3 convolutions of stride 2 with a border of one zero, ELU.

    Biases are zero at the start.
    """
    x = frame[:, None].astype(np.float64) * 2 / 255 - 1
    for layer in net:
        if type(layer).__name__ == "Conv2d":
            w = layer.weight.detach().numpy().astype(np.float64)
            border = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(border, (3, 3), (2, 3))
            x = np.einsum("nchwij,fcij->nfhw", windows[:, :, ::2, ::2], w)
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return x.transpose(0, 2, 3, 1).reshape(len(x), -1)


def vectors(action: Any, space: Space) -> np.ndarray:
    if isinstance(space, Discrete):
        return np.eye(space.n)[action - space.start]
    return np.clip(action, -1, 1)


@pytest.mark.parametrize("obs_space", [VECTOR, IMAGE])
@pytest.mark.parametrize("action_space", ACTIONS)
def test_every_term_and_the_bonus_against_numpy(obs_space: Box, action_space: Space) -> None:
    icm = ICM(obs_space, action_space, ICMConfig(beta=0.3), seed=1)
    data = batch(obs_space, action_space, 7)

    def phi_of(obs: Any) -> np.ndarray:
        return dense(icm.phi, obs) if obs_space is VECTOR else convolved(icm.phi, obs[:, 3])

    phi, phi_next = phi_of(data.obs), phi_of(data.next_obs)
    a = vectors(data.action, action_space)
    guess = dense(icm.g, np.concatenate([phi, phi_next], 1))
    if isinstance(action_space, Discrete):
        p = np.exp(guess) / np.exp(guess).sum(1, keepdims=True)
        inverse = -np.log((p * a).sum(1)).mean()
        accuracy = np.mean(guess.argmax(1) + action_space.start == data.action)
    else:
        inverse, accuracy = np.sum((guess - a) ** 2, 1).mean(), 0.0
    bonus = 0.5 * np.sum((dense(icm.f, np.concatenate([phi, a], 1)) - phi_next) ** 2, 1)

    found = losses(icm, data)
    np.testing.assert_allclose(icm.embed_state(data.obs), phi, rtol=1e-4, atol=1e-5)
    assert found.inverse.item() == pytest.approx(inverse, rel=1e-4)
    assert found.forward.item() == pytest.approx(bonus.mean(), rel=1e-4)
    assert found.accuracy.item() == pytest.approx(accuracy)
    total = 0.7 * inverse + 0.3 * bonus.mean()
    assert icm.objective(found).item() == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(icm.reward(data), bonus, rtol=1e-4)


def test_the_errors_by_hand() -> None:
    foreseen, phi_next = (
        torch.tensor([[1.0, 2.0], [0.0, 0.0]]),
        torch.tensor([[0.0, 4.0], [0.0, 3]]),
    )
    assert forward_error(foreseen, phi_next).tolist() == [2.5, 4.5]
    # Summed over the dimensions of an action.
    guess, action = (
        torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]]),
        torch.tensor([[0.0, 0, 1]] * 2),
    )
    assert squared_error(guess, action).tolist() == [5.0, 0.75]
    # One dimension: each guess against its own action, and no other.
    guess, action = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [0.0]])
    assert squared_error(guess, action).tolist() == [0.0, 9.0]
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])  # p = (1/2, 1/2) and (3/4, 1/4)
    nats = surprisal(logits, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(nats, torch.tensor([math.log(2), math.log(4 / 3)]))


@pytest.mark.parametrize("action_space", ACTIONS)
def test_losses_are_means_over_the_batch(action_space: Space) -> None:
    """A loss [n, 1] against [n] would broadcast to [n, n], and [n, 3] against [n] would fail."""
    icm, data = ICM(VECTOR, action_space), batch(VECTOR, action_space, 6)
    once = losses(icm, data)
    twice = losses(icm, data[np.tile(np.arange(6), 2)])
    single = [losses(icm, data[i : i + 1]) for i in range(6)]
    for found, again, *parts in zip(once, twice, *single, strict=True):
        assert found.shape == ()
        assert again.item() == pytest.approx(found.item(), rel=1e-5)
        assert np.mean([part.item() for part in parts]) == pytest.approx(found.item(), rel=1e-5)


def test_a_guess_of_nothing_costs_the_size_of_the_action() -> None:
    icm = ICM(VECTOR, CONTINUOUS)
    torch.nn.init.zeros_(icm.g[2].weight)  # type: ignore[arg-type]
    data = replace(batch(VECTOR, CONTINUOUS, 4), action=np.full((4, 3), 0.5, np.float32))
    assert losses(icm, data).inverse.item() == pytest.approx(0.75)
    chance = ICM(VECTOR, DISCRETE)
    torch.nn.init.zeros_(chance.g[2].weight)  # type: ignore[arg-type]
    assert losses(chance, batch(VECTOR, DISCRETE, 4)).inverse.item() == pytest.approx(math.log(5))


@pytest.mark.parametrize("obs_space", [VECTOR, IMAGE])
@pytest.mark.parametrize("stop_gradient", [False, True])
def test_which_losses_train_the_features(obs_space: Box, stop_gradient: bool) -> None:
    icm = ICM(obs_space, DISCRETE, ICMConfig(stop_gradient=stop_gradient))
    found = losses(icm, batch(obs_space, DISCRETE, 8))

    def moved(loss: torch.Tensor, net: Any) -> bool:
        grads = torch.autograd.grad(
            loss, list(net.parameters()), retain_graph=True, allow_unused=True
        )
        return all(g is not None and bool(g.any()) for g in grads)

    assert moved(found.inverse, icm.phi)
    assert moved(found.inverse, icm.g)
    assert moved(found.forward, icm.f)
    assert moved(found.forward, icm.phi) is not stop_gradient


def test_both_losses_reach_both_ends_of_a_transition() -> None:
    data = batch(VECTOR, CONTINUOUS, 8)
    for stop_gradient in (False, True):
        icm = ICM(VECTOR, CONTINUOUS, ICMConfig(stop_gradient=stop_gradient))
        ends = [torch.tensor(x, requires_grad=True) for x in (data.obs, data.next_obs)]
        found = icm.losses(ends[0], icm.actions(torch.as_tensor(data.action)), ends[1])
        for loss, stopped in ((found.inverse, False), (found.forward, stop_gradient)):
            slopes = torch.autograd.grad(loss, ends, retain_graph=True, allow_unused=True)
            reached = [slope is not None and bool(slope.any()) for slope in slopes]
            assert reached == [not stopped] * 2


def test_the_features_of_images_are_those_of_the_original() -> None:
    for side, width in ((42, 288), (52, 512), (84, 1152)):
        icm = ICM(Box(0, 255, (4, side, side), np.uint8), DISCRETE)
        phi = icm.embed_state(batch(Box(0, 255, (4, side, side), np.uint8), DISCRETE, 2).obs)
        assert phi.shape == (2, width)
        assert -1 < phi.min() < 0  # ELU, and nothing linear behind it
    names = [type(layer).__name__ for layer in icm.phi]
    assert names == ["Pixels", *["Conv2d", "ELU"] * 4, "FlatImages"]


def test_the_features_of_vectors_end_in_tanh() -> None:
    phi = ICM(VECTOR, DISCRETE).embed_state(1e4 * np.eye(4, dtype=np.float32))
    assert phi.shape == (4, 32)
    assert -1 <= phi.min() < -0.9
    assert 0.9 < phi.max() <= 1
    # Without layers, φ is the observation.
    data = batch(VECTOR, DISCRETE, 3)
    plain = ICM(VECTOR, DISCRETE, ICMConfig(hidden=()))
    np.testing.assert_array_equal(plain.embed_state(data.obs), data.obs)


def test_the_bonus_of_a_transition_is_its_own() -> None:
    """Scaled by its batch, a bonus would depend on its neighbours and never fade."""
    icm, data = ICM(VECTOR, CONTINUOUS), batch(VECTOR, CONTINUOUS, 20)
    alone = torch.cat([icm.reward(data[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(alone, icm.reward(data))
    before = alone.mean()
    for _ in range(60):
        icm.learn(data)
    assert icm.reward(data).mean() < before / 2


def test_each_transition_is_scored_with_its_own_successor_and_action() -> None:
    icm, data = ICM(VECTOR, CONTINUOUS), batch(VECTOR, CONTINUOUS, 10)
    other = batch(VECTOR, CONTINUOUS, 10, seed=1)
    bonus = icm.reward(data)
    for name in ("obs", "action", "next_obs"):
        column = np.array(getattr(data, name))
        column[4] = getattr(other, name)[4]
        changed = icm.reward(replace(data, **{name: column})) != bonus
        assert changed.nonzero().flatten().tolist() == [4]


def test_scored_before_it_is_learnt() -> None:
    data = batch(VECTOR, CONTINUOUS, 32)
    icm, twin = ICM(VECTOR, CONTINUOUS), ICM(VECTOR, CONTINUOUS)
    bonus, scalars = score_and_learn(icm, data)
    assert torch.equal(bonus, twin.reward(data))
    assert scalars == twin.learn(data)


def test_scoring_in_pieces_is_scoring_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    icm, data = ICM(IMAGE, DISCRETE), batch(IMAGE, DISCRETE, 21)
    whole = icm.reward(data)
    seen = []
    icm.phi.register_forward_hook(lambda net, x, out: seen.append(len(out)))
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 8)
    pool = np.concatenate([np.asarray(data.obs), np.asarray(data.next_obs)])
    rows = Transitions(Rows(pool, np.arange(21)), data.action, Rows(pool, np.arange(21, 42)))
    torch.testing.assert_close(icm.reward(rows), whole)
    assert max(seen) == 8


def test_the_units_of_the_action_do_not_matter() -> None:
    data, unit = batch(VECTOR, CONTINUOUS, 16), np.linspace(-1, 1, 48).reshape(16, 3)
    data, wide = replace(data, action=unit), replace(data, action=10 + 20 * unit)
    icm, other = ICM(VECTOR, CONTINUOUS), ICM(VECTOR, Box(-10, 30, (3,)))
    torch.testing.assert_close(other.reward(wide), icm.reward(data))
    assert losses(other, wide).inverse.item() == pytest.approx(losses(icm, data).inverse.item())


@pytest.mark.parametrize("obs_space", [VECTOR, IMAGE])
def test_learning_is_adam_on_every_part(obs_space: Box) -> None:
    icm = ICM(obs_space, DISCRETE, ICMConfig(epochs=1, learning_rate=0.01))
    before = [p.detach().clone() for p in icm.parameters()]
    icm.learn(batch(obs_space, DISCRETE, 30))
    # Adam's first step is the learning rate wherever the gradient is not tiny.
    for old, new in zip(before, icm.parameters(), strict=True):
        assert (new - old).abs().max().item() == pytest.approx(0.01, rel=1e-3)


def test_how_often_it_learns() -> None:
    icm = ICM(VECTOR, DISCRETE, ICMConfig(epochs=4, minibatch=10))
    icm.learn(batch(VECTOR, DISCRETE, 25))
    state = icm.descent.optimizer.state
    assert {int(entry["step"]) for entry in state.values()} == {4 * 2}


def test_the_defaults_are_the_documented_ones() -> None:
    assert ICMConfig() == ICMConfig(
        beta=0.2,
        stop_gradient=False,
        hidden=(64, 32),
        learning_rate=1e-4,
        epochs=3,
        minibatch=512,
    )
    icm = ICM(VECTOR, CONTINUOUS)
    for net in (icm.f, icm.g):
        assert [type(layer).__name__ for layer in net] == ["Linear", "ReLU", "Linear"]
        assert net[0].out_features == 256
    assert not icm.learns_first


@pytest.mark.parametrize("action_space", ACTIONS)
def test_the_scalars_mean_what_they_say(action_space: Space) -> None:
    config, data = ICMConfig(epochs=2), batch(VECTOR, action_space, 30)
    icm, twin = ICM(VECTOR, action_space, config), ICM(VECTOR, action_space, config)
    before = losses(icm, data)
    scalars = icm.learn(data)  # two steps, each on the whole batch
    twin.config = replace(config, epochs=1)
    twin.learn(data)
    between = losses(twin, data)
    names = {"inverse": "loss_inverse", "forward": "loss_forward"}
    if isinstance(action_space, Discrete):
        names["accuracy"] = "inverse_accuracy"
    for field, name in names.items():
        mean = (getattr(before, field).item() + getattr(between, field).item()) / 2
        assert scalars[f"icm/{name}"] == pytest.approx(mean, rel=1e-5)
    norm = np.linalg.norm(icm.embed_state(data.obs).numpy(), axis=1).mean()
    assert scalars["icm/feature_norm"] == pytest.approx(norm, rel=1e-5)
    assert set(scalars) == {f"icm/{name}" for name in [*names.values(), "feature_norm"]}


def test_features_keep_what_actions_move_and_drop_the_rest() -> None:
    """Half of the observation follows the action, half is noise as large."""
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (256, 2)).astype(np.float32)
    place, noise, next_noise = rng.normal(size=(3, 256, 2)).astype(np.float32)
    data = Transitions(np.hstack([place, noise]), action, np.hstack([place + action, next_noise]))
    icm = ICM(VECTOR, Box(-1, 1, (2,)), ICMConfig(learning_rate=1e-3, epochs=40))
    first, last = icm.learn(data), icm.learn(data)
    assert last["icm/loss_inverse"] < first["icm/loss_inverse"] / 2
    obs = torch.tensor(data.obs, requires_grad=True)
    slopes = [torch.autograd.grad(y, obs, retain_graph=True)[0] for y in icm.phi(obs).sum(0)]
    by_column = torch.stack(slopes).square().sum(0).mean(0)  # [4]
    assert by_column[:2].min() > 4 * by_column[2:].max()


def test_unknown_transitions_have_a_larger_bonus() -> None:
    """The same dynamics on two sides of the origin, one of them never seen."""
    rng = np.random.default_rng(0)

    def visit(side: float, n: int) -> Transitions:
        obs = (side * rng.uniform(0, 1, (n, 4))).astype(np.float32)
        action = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
        return Transitions(obs, action, obs + 0.5 * np.pad(action, ((0, 0), (0, 1))))

    icm = ICM(VECTOR, CONTINUOUS, ICMConfig(minibatch=128))
    for _ in range(10):
        icm.learn(visit(-1, 512))
    known, unknown = (icm.reward(visit(side, 200)).numpy() for side in (-1, 1))
    assert np.mean(unknown[:, None] > known) > 0.9


def test_unsupported_spaces_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="observations must be a Box"):
        ICM(Dict({"a": VECTOR}), DISCRETE)
    with pytest.raises(ValueError, match="actions must be a Box or Discrete"):
        ICM(VECTOR, Dict({"a": DISCRETE}))


@pytest.mark.parametrize("n", [64, 40])
def test_convolutions_by_hand_are_those_of_autograd_bit_for_bit(n: int) -> None:
    icm = ICM(Box(0, 255, (4, 52, 52), np.uint8), Discrete(5))
    rng = np.random.default_rng(0)
    obs, next_obs = (
        torch.from_numpy(rng.integers(0, 256, (n, 4, 52, 52), dtype=np.uint8)) for _ in range(2)
    )
    action = icm.actions(torch.from_numpy(rng.integers(0, 5, n)))
    space, found = Workspace(), []
    for given in (None, space, space):  # the second time, the memory holds other numbers
        icm.zero_grad()
        losses = icm.losses(obs, action, next_obs, given)
        icm.objective(losses).backward()  # type: ignore[no-untyped-call]
        found.append([*losses, *(p.grad for p in icm.parameters())])
    for expected, first, second in zip(*found, strict=True):
        assert torch.equal(first, expected)
        assert torch.equal(second, expected)


def test_images_in_two_transitions_are_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    icm = ICM(Box(0, 255, (4, 52, 52), np.uint8), Discrete(5))
    rng = np.random.default_rng(0)
    pool, n = rng.integers(0, 256, (70, 4, 52, 52), dtype=np.uint8), np.arange(60)
    action = rng.integers(0, 5, 60)
    apart = icm.reward(Transitions(pool[n], action, pool[n + 10]))
    embedded: list[int] = []
    embed = ICM._embed

    def counted(self: ICM, obs: torch.Tensor) -> torch.Tensor:
        embedded.append(len(obs))
        return embed(self, obs)

    monkeypatch.setattr(ICM, "_embed", counted)
    shared = icm.reward(Transitions(Rows(pool, n), action, Rows(pool, n + 10)))
    assert sum(embedded) == 70  # instead of 120
    torch.testing.assert_close(shared, apart)
