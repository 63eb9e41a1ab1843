"""Disagreement against a small NumPy version: ensemble, bonus, losses, and noise."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.batch import Rows, Transitions, of_both
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.disagreement import (
    Disagreement,
    DisagreementConfig,
    ForwardModels,
    disagreement,
    model_errors,
)

VECTOR, MOTORS, BUTTONS = Box(-np.inf, np.inf, (4,)), Box(-2, 2, (2,)), Discrete(3)
SMALL = DisagreementConfig(models=3, features=6, hidden=(8,), units=7, blocks=2)


def batch(n: int, seed: int = 0, envs: int = 1) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, n, 4)).astype(np.float32)
    action = rng.uniform(-2, 2, (n, 2)).astype(np.float32)
    return Transitions(obs, action, next_obs, np.arange(n) % envs)


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def predictions(models: ForwardModels, phi: np.ndarray, action: np.ndarray) -> np.ndarray:
    """[models, n, d], each model by itself: the action is appended before every layer."""
    found = []
    for k in range(len(models.first.weight)):

        def layer(part: torch.nn.Module, x: np.ndarray, k: int = k) -> np.ndarray:
            weight, bias = (p.detach().double().numpy()[k] for p in (part.weight, part.bias))
            return np.concatenate([x, action], 1) @ weight + bias

        x = leaky(layer(models.first, phi))
        for i in range(0, len(models.blocks), 2):
            x = x + layer(models.blocks[i + 1], leaky(layer(models.blocks[i], x)))
        found.append(layer(models.last, x))
    return np.stack(found)


def features(method: Disagreement, obs: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """φ of vectors that are normalised by the moments of `seen`, and clipped."""
    x = np.clip((obs - seen.mean(0)) / seen.std(0), -5, 5)
    for layer in method.phi:
        if isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.double().numpy().T + layer.bias.double().numpy()
        elif isinstance(layer, torch.nn.LeakyReLU):
            x = leaky(x)
    return x


def test_literal_variance_and_error() -> None:
    predicted = torch.tensor([[[0.0, 2.0]], [[4.0, 2.0]]])
    # Population variances 4 and 0, mean 2.
    assert disagreement(predicted).tolist() == [2.0]
    assert model_errors(predicted, torch.tensor([[1.0, 2.0]])).tolist() == [[0.5], [4.5]]
    assert disagreement(predicted[:1]).tolist() == [0.0]  # one model never disagrees


def test_the_bonus_is_the_variance_divided_by_the_scale_of_its_sums() -> None:
    method, rows = Disagreement(VECTOR, MOTORS, SMALL), batch(60, envs=2)
    rows.obs[3, 0] = 1e4  # 7.7 standard deviations
    variance = predictions(
        method.models, features(method, rows.obs, rows.obs), rows.action / 2
    ).var(0).mean(1)  # fmt: skip
    sums = [0.0]
    for env in range(2):
        total = 0.0
        for value in variance[env::2]:
            total = 0.99 * total + value
            sums.append(total)
    np.testing.assert_allclose(method.reward(rows), variance / np.std(sums), rtol=1e-4)
    bonus, scalars = score_and_learn(method, rows)
    np.testing.assert_allclose(bonus, variance / np.std(sums), rtol=1e-4)
    assert scalars["disagreement/variance"] == pytest.approx(variance.mean(), rel=1e-4)
    assert scalars["disagreement/bonus_scale"] == pytest.approx(np.std(sums), rel=1e-4)


def test_a_step_uses_the_rows_that_each_model_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    config = DisagreementConfig(
        models=3, features=6, hidden=(8,), units=7, blocks=2, epochs=1, minibatches=1
    )
    method, rows = Disagreement(VECTOR, MOTORS, config), batch(16)
    twin = copy.deepcopy(method)
    losses: list[float] = []
    monkeypatch.setattr(
        type(method.descent), "step", lambda self, loss: losses.append(float(loss.detach()))
    )
    scalars = method.learn(rows)

    rng = twin.descent.generator
    order = torch.randperm(16, generator=rng).numpy()
    kept = torch.rand(3, 16, generator=rng).numpy() < 0.8
    phi, phi_next = (features(twin, x[order], rows.obs) for x in (rows.obs, rows.next_obs))
    errors = (predictions(twin.models, phi, rows.action[order] / 2) - phi_next) ** 2
    expected = (errors.mean(2) * kept / 0.8).mean(1).sum()
    assert losses == pytest.approx([expected], rel=1e-4)
    assert scalars["disagreement/loss"] == pytest.approx(errors.mean(), rel=1e-4)
    assert 0 < kept.mean() < 1


def test_every_model_is_trained_by_every_minibatch_and_phi_by_none() -> None:
    method = Disagreement(VECTOR, MOTORS, SMALL)
    before = copy.deepcopy(method)
    method.learn(batch(64))
    moved = method.models.last.bias != before.models.last.bias
    assert moved.flatten(1).any(1).all()
    assert len({tuple(bias.tolist()) for bias in method.models.last.bias[:, 0]}) == 3
    steps = {int(s["step"]) for s in method.descent.optimizer.state.values()}
    assert steps == {SMALL.epochs * SMALL.minibatches}
    for ours, theirs in zip(method.phi.parameters(), before.phi.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_gradient_of_a_model_does_not_depend_on_the_others() -> None:
    models = ForwardModels(SMALL, 2, torch.Generator().manual_seed(0))
    phi, action, phi_next = torch.randn(3, 10, 6, generator=torch.Generator().manual_seed(1))
    errors = model_errors(models(phi, action[:, :2]), phi_next)
    errors.mean(1).sum().backward()
    together = models.first.weight.grad[1].clone()
    models.zero_grad()
    model_errors(models(phi, action[:, :2]), phi_next)[1].mean().backward()
    torch.testing.assert_close(models.first.weight.grad[1], together)
    assert models.first.weight.grad[0].abs().max() == 0


def test_noise_gives_no_lasting_bonus() -> None:
    """The successor is noise: its prediction error stays, the disagreement falls."""
    config = DisagreementConfig(features=8, hidden=(16,), units=32, blocks=0, learning_rate=3e-3)
    method = Disagreement(VECTOR, BUTTONS, config)
    rng, found = np.random.default_rng(0), []
    for _ in range(25):
        obs, next_obs = rng.normal(size=(2, 500, 4)).astype(np.float32)
        found.append(method.learn(Transitions(obs, rng.integers(0, 3, 500), next_obs)))
    assert found[-1]["disagreement/variance"] < 0.1 * found[0]["disagreement/variance"]
    assert found[-1]["disagreement/loss"] > 0.2 * found[0]["disagreement/loss"]


def test_rows_of_a_pool_are_computed_once() -> None:
    pool, seen = np.arange(10, dtype=np.float32)[:, None], []

    def count(rows: object) -> torch.Tensor:
        found = torch.as_tensor(np.asarray(rows))
        seen.append(len(found))
        return 2 * found[:, 0]

    first, second = Rows(pool, np.array([1, 2, 3])), Rows(pool, np.array([2, 3, 4]))
    for pair in ((first, second), (first[:], second[:])):
        a, b = of_both(count, *pair)
        assert (a.tolist(), b.tolist()) == ([2, 4, 6], [4, 6, 8])
    assert seen == [4, 6]
