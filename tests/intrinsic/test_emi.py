"""EMI against a small NumPy version, term by term, and the contract of an intrinsic reward."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Space

from emi.batch import Rows, Stacks, Transitions
from emi.images import FrameStack
from emi.intrinsic import emi as module
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.emi import EMIConfig, crowding, diversity, prediction_error

VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = FrameStack(Box(0, 255, (4, 52, 52), np.uint8), 4)
CONTINUOUS = Box(-1, 1, (3,))
DISCRETE = Discrete(5)
# Observations as they are: what is computed here by hand has no moments.
EMI = partial(module.EMI, normalize=False)
SPACES = [(o, a) for o in (VECTOR, IMAGE) for a in (CONTINUOUS, DISCRETE)]


def batch(obs_space: Box, action_space: Space, n: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)

    def draw(space: Space) -> np.ndarray:
        if isinstance(space, Discrete):
            return rng.integers(space.start, space.start + space.n, n)
        if isinstance(space, MultiDiscrete):
            return rng.integers(space.start, space.start + space.nvec, (n, *space.shape))
        if isinstance(space, MultiBinary):
            return rng.integers(0, 2, (n, *space.shape), np.int8)
        assert isinstance(space, Box)
        if space.dtype == np.uint8:
            return rng.integers(0, 256, (n, *space.shape), dtype=np.uint8)
        return rng.normal(size=(n, *space.shape)).astype(np.float32)

    return Transitions(draw(obs_space), draw(action_space), draw(obs_space))


def forward(net: Any, x: np.ndarray) -> np.ndarray:
    """A Sequential of Linear, Tanh and ReLU in plain NumPy."""
    for layer in net:
        name = type(layer).__name__
        if name == "Linear":
            w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
            x = x.astype(np.float64) @ w.T.astype(np.float64) + b
        elif name == "Tanh":
            x = np.tanh(x)
        elif name == "ReLU":
            x = np.maximum(x, 0)
        else:
            assert name == "Flat"
    return x


def sp(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


@pytest.mark.parametrize(
    ("kl_target", "action_layer"), [("action", False), ("state", False), ("state", True)]
)
def test_every_term_of_the_loss_against_numpy(kl_target: Any, action_layer: bool) -> None:
    m, half = 9, 4  # an odd minibatch: the last sample is in neither half
    config = EMIConfig(
        lambda_error=0.3,
        lambda_info=0.7,
        kl_weight=0.2,
        kl_target=kl_target,
        error_hidden=16,
        error_action_layer=action_layer,
    )
    emi = EMI(VECTOR, CONTINUOUS, config, seed=1)
    data = batch(VECTOR, CONTINUOUS, m)
    actions = emi.actions(torch.as_tensor(data.action))
    losses = emi.losses(torch.as_tensor(data.obs), actions, torch.as_tensor(data.next_obs))

    a = np.clip(data.action, -1, 1)
    phi, phi_next, psi = (
        forward(emi.phi, data.obs),
        forward(emi.phi, data.next_obs),
        forward(emi.psi, a),
    )
    in_S = forward([emi.S.action], a) if action_layer else a
    s = forward(emi.S.joint, np.concatenate([forward(emi.S.state, data.obs), in_S], 1))

    linear = np.mean(np.sum((phi_next - (phi + psi + s)) ** 2, 1))
    error = np.mean(np.sum(s**2, 1))

    def info(net: Any, marginal: np.ndarray) -> float:
        joint = np.concatenate([phi[:half], psi[:half], phi_next[:half]], 1)
        return float(np.mean(sp(-forward(net, joint))) + np.mean(sp(forward(net, marginal))))

    second = slice(half, 2 * half)
    loss_s = info(emi.T_S, np.concatenate([phi[:half], psi[:half], phi_next[second]], 1))
    loss_a = info(emi.T_A, np.concatenate([phi[:half], psi[second], phi_next[:half]], 1))

    x = psi if kl_target == "action" else phi
    covariance = np.cov(x.T)
    kl = 0.5 * (
        np.trace(covariance) + np.sum(x.mean(0) ** 2) - 2 - np.log(np.linalg.det(covariance))
    )

    assert losses.linear.item() == pytest.approx(linear, rel=1e-4)
    assert losses.error.item() == pytest.approx(error, rel=1e-4)
    assert losses.info.item() == pytest.approx(loss_s + loss_a, rel=1e-4)
    assert losses.bound_state.item() == pytest.approx(math.log(4) - loss_s, rel=1e-3)
    assert losses.bound_action.item() == pytest.approx(math.log(4) - loss_a, rel=1e-3)
    assert losses.kl.item() == pytest.approx(kl, rel=1e-3)
    total = linear + 0.3 * error + 0.7 * (loss_s + loss_a) + 0.2 * kl
    assert emi.objective(losses).item() == pytest.approx(total, rel=1e-4)
    reward = emi.reward(data).numpy()
    np.testing.assert_allclose(reward, np.sum((phi + psi + s - phi_next) ** 2, 1), rtol=1e-3)


def test_prediction_error_by_hand() -> None:
    phi, psi = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.0]])
    error, phi_next = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    assert prediction_error(phi, psi, error, phi_next).tolist() == [0.25 + 4.0]


def test_the_diversity_term_is_added_after_training() -> None:
    """bonus = r_e + w · r_d: r_e of the model before the batch, r_d of the model after it."""
    config, data = EMIConfig(minibatch=16, diversity_weight=100.0), batch(VECTOR, CONTINUOUS, 64)
    emi, plain = (EMI(VECTOR, CONTINUOUS, c, seed=2) for c in (config, EMIConfig(minibatch=16)))
    error = plain.reward(data)
    at_once = diversity(plain.embed_state(data.obs), plain.embed_state(data.next_obs), 5.0)
    torch.testing.assert_close(emi.reward(data), error + 100 * at_once)
    bonus, finish = emi.score(data)
    assert finish() == plain.learn(data)
    after = diversity(plain.embed_state(data.obs), plain.embed_state(data.next_obs), 5.0)
    assert not torch.allclose(at_once, after, rtol=1e-2)
    torch.testing.assert_close(bonus, error + 100 * after)


def test_crowding_and_diversity_by_hand() -> None:
    phi = torch.tensor([[0.0, 0.0], [3.0, 4.0]])  # 5 apart
    near = math.exp(-25 / (2 * 2.0**2))
    expected = torch.tensor([(1 + near) / 2, (1 + near) / 2])
    torch.testing.assert_close(crowding(phi, phi, 2.0), expected)
    far = torch.tensor([[1e3, 0.0], [3.0, 4.0]])
    # The first leaves the dense region entirely; the second does not move.
    out = diversity(phi, far, 2.0)
    assert out[0].item() == pytest.approx((1 + near) / 2)
    assert out[1].item() == 0


def test_crowding_in_pieces_is_crowding_at_once() -> None:
    phi = torch.randn(1100, 2, generator=torch.Generator().manual_seed(0))
    whole = torch.exp(-(torch.cdist(phi.double(), phi.double()) ** 2) / (2 * 5.0**2)).mean(1)
    torch.testing.assert_close(crowding(phi, phi, 5.0).double(), whole, rtol=1e-5, atol=1e-6)


def test_diversity_is_zero_where_phi_does_not_move() -> None:
    emi = EMI(VECTOR, CONTINUOUS, EMIConfig(reward="diversity"))
    data = batch(VECTOR, CONTINUOUS, 20)
    still = dataclasses.replace(data, next_obs=data.obs)
    np.testing.assert_array_equal(emi.reward(still).numpy(), np.zeros(20))


def test_the_error_model_takes_what_it_explains_out_of_the_bonus() -> None:
    emi = EMI(VECTOR, CONTINUOUS)
    data = batch(VECTOR, CONTINUOUS, 6)
    phi, phi_next = emi.embed_state(data.obs), emi.embed_state(data.next_obs)
    rest = phi_next - phi - emi.embed_action(data.action) - emi.error(data.obs, data.action)
    torch.testing.assert_close(emi.reward(data), rest.square().sum(1))


def test_ablations() -> None:
    data = batch(VECTOR, CONTINUOUS, 64)
    no_error = EMI(VECTOR, CONTINUOUS, EMIConfig(error_model=False))
    assert not no_error.error(data.obs, data.action).any()
    before = [p.clone() for p in no_error.S.parameters()]
    scalars = no_error.learn(data)
    assert scalars["emi/loss_error"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, no_error.S.parameters(), strict=True))

    no_info = EMI(VECTOR, CONTINUOUS, EMIConfig(information_term=False))
    before = [p.clone() for p in no_info.T_S.parameters()]
    scalars = no_info.learn(data)
    assert scalars["emi/loss_info"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, no_info.T_S.parameters(), strict=True))


def test_learning_raises_the_information_bounds_and_linearises() -> None:
    # Linear dynamics: s' = s + (a, 0).
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (2048, 4)).astype(np.float32)
    action = rng.uniform(-1, 1, (2048, 3)).astype(np.float32)
    data = Transitions(obs, action, obs + 0.5 * np.pad(action, ((0, 0), (0, 1))))
    emi = EMI(VECTOR, CONTINUOUS, EMIConfig(epochs=40, minibatch=256))
    first = emi.learn(data[:256])
    for _ in range(3):
        last = emi.learn(data)
    assert last["emi/bound_state"] > first["emi/bound_state"] + 0.2
    assert last["emi/bound_action"] > first["emi/bound_action"] + 0.2
    assert 0 < last["emi/bound_state"] < math.log(4)
    # The error is small compared with the transition.
    step = (emi.embed_state(data.next_obs) - emi.embed_state(data.obs)).square().sum(1).mean()
    assert emi.reward(data).mean() < 0.2 * step


@pytest.mark.parametrize(("obs_space", "action_space"), SPACES)
@pytest.mark.parametrize("kind", ["prediction_error", "diversity"])
def test_the_contract(obs_space: Box, action_space: Space, kind: Any) -> None:
    emi = EMI(obs_space, action_space, EMIConfig(reward=kind, minibatch=16), seed=3)
    data = batch(obs_space, action_space, 40)
    state = {k: v.clone() for k, v in emi.state_dict().items() if isinstance(v, torch.Tensor)}
    bonus = emi.reward(data)
    assert bonus.shape == (40,)
    assert torch.isfinite(bonus).all()
    # Pure: the same again, and nothing moved.
    assert torch.equal(bonus, emi.reward(data))
    assert all(torch.equal(v, emi.state_dict()[k]) for k, v in state.items())
    scalars = emi.learn(data)
    assert all(math.isfinite(v) for v in scalars.values())
    assert not torch.equal(bonus, emi.reward(data))
    assert emi.embed_state(data.obs).shape == (40, 2)
    assert emi.embed_action(data.action).shape == (40, 2)
    assert emi.error(data.obs, data.action).shape == (40, 2)
    # One transition is a batch too.
    assert torch.isfinite(emi.reward(data[:1])).all()
    assert all(math.isfinite(v) for v in emi.learn(data[:1]).values())


@pytest.mark.parametrize(("obs_space", "action_space"), SPACES)
def test_the_whole_state_round_trips(obs_space: Box, action_space: Space) -> None:
    config = EMIConfig(minibatch=8, kl_target="action", kl_weight=0.1)
    first = EMI(obs_space, action_space, config, seed=0)
    first.learn(batch(obs_space, action_space, 24))
    second = EMI(obs_space, action_space, config, seed=99)
    second.load_state_dict(first.state_dict())
    more = batch(obs_space, action_space, 24, seed=1)
    assert first.learn(more) == second.learn(more)
    assert torch.equal(first.reward(more), second.reward(more))


def test_the_seed_decides_everything() -> None:
    data = batch(VECTOR, DISCRETE, 50)
    torch.manual_seed(0)
    first = EMI(VECTOR, DISCRETE, EMIConfig(minibatch=16), seed=5)
    first.learn(data)
    torch.manual_seed(1)  # the global generator has no part in it
    second = EMI(VECTOR, DISCRETE, EMIConfig(minibatch=16), seed=5)
    second.learn(data)
    assert torch.equal(first.reward(data), second.reward(data))
    other = EMI(VECTOR, DISCRETE, EMIConfig(minibatch=16), seed=6)
    assert not torch.equal(first.reward(data), other.reward(data))


def test_construction_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    EMI(IMAGE, DISCRETE)
    assert torch.equal(before, torch.get_rng_state())


def test_arrays_tensors_and_rows_give_the_same_bonus() -> None:
    emi = EMI(VECTOR, DISCRETE)
    data = batch(VECTOR, DISCRETE, 10)
    tensors = Transitions(*(torch.as_tensor(x) for x in (data.obs, data.action, data.next_obs)))
    pool = np.concatenate([data.obs, data.next_obs])
    rows = Transitions(Rows(pool, np.arange(10)), data.action, Rows(pool, np.arange(10, 20)))
    assert torch.equal(emi.reward(data), emi.reward(tensors))
    assert torch.equal(emi.reward(data), emi.reward(rows))


def test_only_the_newest_frame_of_an_image_counts() -> None:
    emi = EMI(IMAGE, DISCRETE)
    data = batch(IMAGE, DISCRETE, 4)
    older = np.array(data.obs)
    older[:, :3] = 0
    newest = np.array(data.obs)
    newest[:, 3] = 0
    assert torch.equal(emi.embed_state(data.obs), emi.embed_state(older))
    assert not torch.equal(emi.embed_state(data.obs), emi.embed_state(newest))


def test_scoring_in_pieces_is_scoring_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emi, data = EMI(VECTOR, CONTINUOUS), batch(VECTOR, CONTINUOUS, 21)
    whole = emi.reward(data)
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 8)
    torch.testing.assert_close(emi.reward(data), whole)


def test_actions_are_scaled_by_the_bounds_of_their_space() -> None:
    wide = EMI(VECTOR, Box(-10, 30, (2,)))
    actions = wide.actions(torch.tensor([[-10.0, 30.0], [10.0, 1000.0]]))
    assert actions.tolist() == [[-1, 1], [0, 1]]
    free = EMI(VECTOR, Box(-np.inf, np.inf, (2,)))
    assert free.actions(torch.tensor([[-10.0, 30.0]])).tolist() == [[-10, 30]]
    shifted = EMI(VECTOR, Discrete(3, start=2))
    assert shifted.actions(torch.tensor([4, 2])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_an_epoch_is_the_batch_in_full_minibatches_reshuffled() -> None:
    emi = EMI(VECTOR, DISCRETE)
    parts = list(emi.descent.minibatches(1100, 512, 3))
    assert [len(part) for part in parts] == [512] * 6  # ⌊1100 / 512⌋ = 2, three times
    epochs = [np.concatenate(parts[i : i + 2]) for i in (0, 2, 4)]
    assert all(len(set(epoch.tolist())) == 1024 for epoch in epochs)
    assert (epochs[0] != epochs[1]).any()
    assert [len(part) for part in emi.descent.minibatches(100, 512, 3)] == [100] * 3


def test_surprise_is_scored_before_learning_and_diversity_after() -> None:
    data = batch(VECTOR, CONTINUOUS, 32)
    for kind in ("prediction_error", "diversity"):
        config = EMIConfig(reward=kind, minibatch=16)  # type: ignore[arg-type]
        emi, twin = EMI(VECTOR, CONTINUOUS, config), EMI(VECTOR, CONTINUOUS, config)
        bonus, scalars = score_and_learn(emi, data)
        if kind == "prediction_error":
            assert torch.equal(bonus, twin.reward(data))
            assert scalars == twin.learn(data)
        else:
            assert scalars == twin.learn(data)
            assert torch.equal(bonus, twin.reward(data))


def test_unsupported_spaces_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="type Graph cannot be read"):
        EMI(Graph(VECTOR, None), DISCRETE)
    with pytest.raises(
        ValueError, match="actions must be a Box, Discrete, MultiDiscrete or MultiBinary"
    ):
        EMI(VECTOR, Dict({"a": DISCRETE}))


def test_the_reported_norms_are_those_of_the_learnt_embedding() -> None:
    emi, data = EMI(VECTOR, CONTINUOUS), batch(VECTOR, CONTINUOUS, 30)
    scalars = emi.learn(data)  # one minibatch holds the whole batch
    for name, vectors in (
        ("state", emi.embed_state(data.obs)),
        ("action", emi.embed_action(data.action)),
        ("error", emi.error(data.obs, data.action)),
    ):
        expected = vectors.norm(dim=1).mean().item()
        assert scalars[f"emi/{name}_norm"] == pytest.approx(expected, rel=1e-4)


def bits(emi: EMI) -> dict[str, torch.Tensor]:
    """Parameters, gradients and Adam's state."""
    found = {}
    for name, p in emi.named_parameters():
        found[name] = p.detach()
        if p.grad is not None:
            found[f"{name} gradient"] = p.grad
        found |= {f"{name} {key}": v for key, v in emi.descent.optimizer.state[p].items()}
    return found


@pytest.mark.parametrize("m", [1, 9, 64])  # no pair for the information term, an odd number, even
@pytest.mark.parametrize("kl_target", ["none", "action", "state"])
@pytest.mark.parametrize("information_term", [True, False])
@pytest.mark.parametrize("error_model", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "leaky_relu"])
def test_steps_by_hand_are_autograds(
    m: int, kl_target: Any, information_term: bool, error_model: bool, activation: Any
) -> None:
    config = EMIConfig(
        lambda_error=0.3,
        lambda_info=0.7,
        kl_target=kl_target,
        kl_weight=0.2,
        information_term=information_term,
        error_model=error_model,
        state_activation=activation,
    )
    assert_steps_are_equal(config, CONTINUOUS, m)


@pytest.mark.parametrize(
    "action_space", [CONTINUOUS, DISCRETE, MultiDiscrete([2, 3], start=[1, 0]), MultiBinary(3)]
)
@pytest.mark.parametrize(
    "config",
    [
        EMIConfig(),
        EMIConfig(state_hidden=()),
        EMIConfig(state_hidden=(8,), embedding_dim=1),
        EMIConfig(embedding_dim=5, information_hidden=(16,), action_hidden=7, error_hidden=9),
        EMIConfig(lambda_error=0, lambda_info=0),
    ],
)
def test_steps_by_hand_are_autograds_for_all_sizes(config: EMIConfig, action_space: Space) -> None:
    assert_steps_are_equal(config, action_space, 32)


def test_steps_by_hand_are_autograds_with_the_papers_sizes() -> None:
    """Large products are computed by another library."""
    space, actions = Box(-np.inf, np.inf, (17,), np.float32), Box(-1, 1, (6,), np.float32)
    assert_steps_are_equal(EMIConfig(), actions, 512, space)


def assert_steps_are_equal(
    config: EMIConfig, action_space: Space, m: int, space: Space = VECTOR
) -> None:
    """Losses and all bits after two blocks of three steps each."""
    ours, autograd = (EMI(space, action_space, config, seed=1) for _ in range(2))
    for block in range(2):  # Adam's state exists from the second on
        with ours._steps(m) as step:
            for k in range(3):
                data = batch(space, action_space, m, seed=3 * block + k)
                obs, action, next_obs = (
                    torch.as_tensor(c) for c in (data.obs, data.action, data.next_obs)
                )
                minibatch = obs, ours.actions(action), next_obs
                assert torch.equal(step(*minibatch), autograd.step(*minibatch))
        found, expected = bits(ours), bits(autograd)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(found[name], value), name


def test_states_that_are_s_and_successor_are_embedded_once() -> None:
    emi, n = EMI(VECTOR, CONTINUOUS), 600
    pool = np.random.default_rng(0).normal(size=(n + 20, 4)).astype(np.float32)
    obs, next_obs = np.arange(n), np.arange(n) + 2
    next_obs[::50] = np.arange(n + 2, n + 14)  # last observations of episodes
    action = np.zeros((n, 3), np.float32)
    shared = Transitions(Rows(pool, obs), action, Rows(pool, next_obs))
    rows = []
    emi.phi.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    bonus = emi.reward(shared)
    assert rows == [n + 14]
    apart = Transitions(pool[obs], action, pool[next_obs])
    torch.testing.assert_close(bonus, emi.reward(apart), rtol=1e-4, atol=1e-6)
    assert rows[1:] == [n, n]


def test_older_frames_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    emi, data = EMI(IMAGE, DISCRETE, EMIConfig(minibatch=8)), batch(IMAGE, DISCRETE, 16)
    frames = np.array(data.obs).reshape(-1, 52, 52)
    stacks = Stacks(frames, np.arange(64).reshape(16, 4))
    lazy = Transitions(
        Rows(stacks, np.arange(15)), data.action[:15], Rows(stacks, np.arange(1, 16))
    )
    whole = Transitions(*(np.asarray(c) for c in (lazy.obs, lazy.action, lazy.next_obs)))
    twin = EMI(IMAGE, DISCRETE, EMIConfig(minibatch=8))
    gathered = set()
    get = Stacks.__getitem__

    def spy(self: Stacks, which: Any) -> Any:
        found = get(self, which)
        gathered.add(found.shape[1])
        return found

    monkeypatch.setattr(Stacks, "__getitem__", spy)
    assert emi.learn(lazy) == twin.learn(whole)
    assert torch.equal(emi.reward(lazy), twin.reward(whole))
    assert gathered == {1}
