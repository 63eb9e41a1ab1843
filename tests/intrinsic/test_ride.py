"""RIDE against a few lines of NumPy: features, both losses, and the discount by visits."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.batch import Transitions, as_tensor
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.gradients.elu_convolutions import Workspace
from emi.intrinsic.ride import RIDE, RIDEConfig, impact

GRID, FLOATS = Box(0, 9, (2,), np.int64), Box(-np.inf, np.inf, (2,))
BUTTONS, MOTORS = Discrete(3), Box(-2, 2, (2,))
IMAGE = Box(0, 255, (36, 36, 1), np.uint8)
SMALL = RIDEConfig(hidden=(5, 4), minibatch=1_000, epochs=1)


def batch(n: int, seed: int = 0, states: int = 4) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.integers(0, states, (2, n, 2))
    action, ended = rng.integers(0, 3, n), rng.random(n) < 0.1
    return Transitions(obs, action, next_obs, np.arange(n) % 2, ended)


def forward(net: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        elif isinstance(layer, torch.nn.Tanh):
            x = np.tanh(x)
        elif isinstance(layer, torch.nn.ReLU):
            x = np.maximum(x, 0)
    return x


def features(method: RIDE, states: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return forward(method.phi, (states - seen.mean(0)) / seen.std(0))


def visit_counts(rows: Transitions) -> np.ndarray:
    seen: dict[int, list[tuple[int, ...]]] = {}
    counts = []
    for state, env, ended in zip(rows.next_obs, rows.env_index, rows.ended, strict=True):
        visited = seen.setdefault(int(env), [])
        visited.append(tuple(state))
        counts.append(visited.count(tuple(state)))
        if ended:
            visited.clear()
    return np.array(counts)


def test_literal_impact() -> None:
    assert impact(torch.tensor([[0.0, 1.0]]), torch.tensor([[3.0, 5.0]])).tolist() == [5.0]


def test_the_bonus_is_the_impact_over_the_root_of_the_visits() -> None:
    method, rows = RIDE(GRID, BUTTONS, SMALL), batch(100)
    counts = visit_counts(rows)
    assert counts.max() > 3
    phi, phi_next = (features(method, x, rows.obs) for x in (rows.obs, rows.next_obs))
    change = np.linalg.norm(phi_next - phi, axis=1)
    np.testing.assert_allclose(method.reward(rows), change / np.sqrt(counts), rtol=1e-4)
    bonus, scalars = score_and_learn(method, rows)
    np.testing.assert_allclose(bonus, change / np.sqrt(counts), rtol=1e-4)
    assert scalars["ride/impact"] == pytest.approx(change.mean(), rel=1e-4)
    assert scalars["ride/visits"] == pytest.approx(counts.mean())


def test_the_visits_continue_in_the_next_batch() -> None:
    method, rows = RIDE(GRID, BUTTONS, SMALL), batch(1)
    rows = dataclasses.replace(rows, ended=np.zeros(1, bool))
    for visits in (1, 2, 3):
        assert method.learn(rows)["ride/visits"] == visits
    method.learn(dataclasses.replace(rows, ended=np.ones(1, bool)))
    assert method.learn(rows)["ride/visits"] == 1


@pytest.mark.parametrize("actions", [BUTTONS, MOTORS], ids=["discrete", "continuous"])
def test_both_losses(actions: Discrete | Box, monkeypatch: pytest.MonkeyPatch) -> None:
    method, rows = RIDE(GRID, actions, SMALL), batch(50)
    if isinstance(actions, Box):
        motors = np.random.default_rng(1).uniform(-2, 2, (50, 2)).astype(np.float32)
        rows = dataclasses.replace(rows, action=motors)
    twin, steps = copy.deepcopy(method), []
    monkeypatch.setattr(
        type(method.descent), "step", lambda self, loss: steps.append(loss.detach().item())
    )
    scalars = method.learn(rows)

    phi, phi_next = (features(twin, x, rows.obs) for x in (rows.obs, rows.next_obs))
    guess = forward(twin.g, np.concatenate([phi, phi_next], 1))
    if isinstance(actions, Discrete):
        vectors = np.eye(3)[rows.action]
        logp = guess - np.log(np.exp(guess).sum(1, keepdims=True))
        inverse = -(logp * vectors).sum(1)
    else:
        vectors = rows.action / 2
        inverse = ((guess - vectors) ** 2).sum(1)
    error = forward(twin.f, np.concatenate([phi, vectors], 1)) - phi_next
    loss = np.linalg.norm(error, axis=1).mean()
    assert scalars["ride/loss_forward"] == pytest.approx(loss, rel=1e-4)
    assert scalars["ride/loss_inverse"] == pytest.approx(inverse.mean(), rel=1e-4)
    assert steps == pytest.approx([10 * loss + 0.1 * inverse.mean()], rel=1e-4)


def test_the_forward_loss_trains_the_features_of_both_states() -> None:
    config = dataclasses.replace(SMALL, inverse_weight=0.0)
    method = RIDE(GRID, BUTTONS, config)
    before = copy.deepcopy(method)
    method.learn(batch(50))
    assert not torch.equal(method.phi[1].weight, before.phi[1].weight)
    assert torch.equal(method.g[0].weight, before.g[0].weight)


def test_images_by_hand_written_convolutions() -> None:
    """The same losses and gradients as by autograd."""
    method = RIDE(IMAGE, BUTTONS)
    rng = np.random.default_rng(0)
    obs, next_obs = (
        as_tensor(rng.integers(0, 256, (6, 36, 36, 1), dtype=np.uint8)) for _ in range(2)
    )
    action = method.actions(torch.tensor([0, 1, 2, 0, 1, 2]))
    found = []
    for space in (None, Workspace()):
        method.zero_grad()
        losses = method.losses(obs, action, next_obs, space)
        (losses.forward + losses.inverse).backward()
        grads = [p.grad.clone() for p in method.parameters() if p.grad is not None]
        found.append([torch.stack(losses).detach(), *grads])
    assert len(found[0]) == 1 + 8 + 4 + 4
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_memory_is_empty_on_the_first_step_of_every_episode(mode: AutoresetMode) -> None:
    """Through our rollout: a step that leads to one state always is discounted by √t, from 1."""
    envs = OracleVectorEnv(3, mode)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(*spaces, PolicyConfig(hidden=(2,)), torch.Generator().manual_seed(0))
    method = RIDE(*spaces, SMALL)
    for number in range(3):
        rollout = collect(envs, policy, 90, np.random.default_rng(number), seed=number)
        rows = rollout.transitions(lambda action: action)
        t = rows.next_obs[:][:, 1]
        n = len(t)
        one, zero = np.ones((n, 2), np.float32), np.zeros((n, 2), np.float32)
        same = dataclasses.replace(rows, obs=zero, next_obs=one)
        bonus = method.reward(same)
        full = float(bonus[0]) * np.sqrt(t[0])
        np.testing.assert_allclose(bonus, full / np.sqrt(t), rtol=1e-5)
        method.learn(same)


def test_a_familiar_environment_keeps_its_bonus() -> None:
    """Unlike a prediction error: the impact of an action does not vanish with training."""
    rng, method = np.random.default_rng(0), RIDE(FLOATS, MOTORS, RIDEConfig(learning_rate=1e-3))
    found = []
    for _ in range(15):
        obs = rng.normal(size=(500, 2)).astype(np.float32)
        action = rng.uniform(-2, 2, (500, 2)).astype(np.float32)
        ended = np.ones(500, bool)
        rows = Transitions(obs, action, obs + action, np.zeros(500, np.int64), ended)
        found.append(method.learn(rows))
    assert found[-1]["ride/loss_inverse"] < 0.5 * found[0]["ride/loss_inverse"]
    still = dataclasses.replace(rows, next_obs=obs)
    assert method.reward(rows).mean() > 10 * method.reward(still).mean()
    assert (method.reward(still) == 0).all()
