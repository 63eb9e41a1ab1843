"""E3B against NumPy: the inverse covariance, the bonus, the inverse model and EMI's features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from known_unknown import DISCRETE, IMAGE, VECTOR, transitions

from emi.batch import Transitions
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.e3b import E3B, E3BConfig, elliptical_bonuses, visit
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.episodes import EpisodicMemory, Streams
from emi.intrinsic.inverse import InverseDynamics

CPU = torch.device("cpu")


def test_two_visits_by_hand() -> None:
    inverse = torch.eye(2, dtype=torch.float64)[None] / 0.1
    east, one = torch.tensor([[1.0, 0.0]]).double(), torch.ones(1)
    assert visit(inverse, east, one).item() == pytest.approx(10)  # 1 / λ
    assert visit(inverse, east, one).item() == pytest.approx(1 / 1.1)
    assert visit(inverse, torch.tensor([[0.0, 2.0]]).double(), 0 * one).item() == pytest.approx(40)
    # C = diag(2.1, 0.1): the last state was scored, but not visited.
    np.testing.assert_allclose(inverse[0], np.diag([1 / 2.1, 10]), rtol=1e-12)


def test_the_inverse_covariance_over_ten_thousand_steps_with_random_ends() -> None:
    rng, d, steps, envs, ridge = np.random.default_rng(0), 16, 10_000, 3, 0.1
    phi = rng.normal(size=(steps * envs, d)) * rng.uniform(0.1, 3, d)
    start = rng.normal(size=(steps * envs, d))
    ended = rng.random(steps * envs) < rng.choice([0.0002, 0.01], steps * envs)
    batch = Transitions(phi, np.zeros(len(phi)), phi, np.arange(len(phi)) % envs, ended)

    memory = EpisodicMemory(
        inverse=torch.eye(d, dtype=torch.float64) / ridge, fresh=torch.tensor(True)
    )
    streams, rows = Streams.of(batch, CPU), memory.rows(envs)
    grids = streams.grid(torch.from_numpy(start)), streams.grid(torch.from_numpy(phi))
    bonus = streams.flat(elliptical_bonuses(memory, rows, streams, *grids)).numpy()

    checked = rng.choice(len(phi), 300, replace=False)
    for e in range(envs):
        covariance, fresh = ridge * np.eye(d), True
        for i in range(e, len(phi), envs):
            if fresh:
                covariance += np.outer(start[i], start[i])
            if i in checked:
                expected = phi[i] @ np.linalg.inv(covariance) @ phi[i]
                assert bonus[i] == pytest.approx(expected, rel=1e-6)
            covariance += np.outer(phi[i], phi[i])
            if fresh := bool(ended[i]):
                covariance = ridge * np.eye(d)
        inverse = np.linalg.inv(covariance)
        np.testing.assert_allclose(rows["inverse"][e], inverse, atol=1e-6 * abs(inverse).max())


def walk(n: int, envs: int, seed: int = 0) -> Transitions:
    """Rows in which every s is the s' before it, except after an end."""
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(n // envs + 1, envs, 4)).cumsum(0).astype(np.float32)
    ended = rng.random(n) < 0.1
    obs, next_obs = place[:-1].reshape(n, 4), place[1:].reshape(n, 4)
    obs[envs:][ended[:-envs]] = rng.normal(size=(int(ended[:-envs].sum()), 4))
    return Transitions(obs, rng.integers(0, 4, n), next_obs, np.arange(n) % envs, ended)


@pytest.mark.parametrize("features", ["inverse", "emi"])
def test_the_bonus_against_numpy(features: str) -> None:
    """Over two batches: the memory is carried from one to the next, the features change."""
    config = E3BConfig(features=features, width=5, ridge=0.3, minibatch=32)  # type: ignore[arg-type]
    method = E3B(VECTOR, DISCRETE, config, seed=3)
    method.learn(walk(60, 1, 9))
    method.forget([0])
    covariance, fresh = np.tile(0.3 * np.eye(5), (2, 1, 1)), [True, True]
    for k in range(2):
        batch = walk(80, 2, k)
        obs, after = (method.embed_state(x).double().numpy() for x in (batch.obs, batch.next_obs))
        bonus, _ = score_and_learn(method, batch)
        for i, ended in enumerate(np.asarray(batch.ended)):
            e = i % 2
            covariance[e] += fresh[e] * np.outer(obs[i], obs[i])
            expected = after[i] @ np.linalg.solve(covariance[e], after[i])
            assert bonus[i].item() == pytest.approx(expected, rel=1e-4)
            covariance[e] += np.outer(after[i], after[i])
            fresh[e] = bool(ended)
            if ended:
                covariance[e] = 0.3 * np.eye(5)


def test_a_discrete_state_is_worth_one_over_its_visits() -> None:
    """With one-hot features: 1 / (n + λ) at the visit after n others."""
    memory = EpisodicMemory(inverse=torch.eye(3).double() / 0.1, fresh=torch.tensor(True))
    states = [0, 1, 1, 0, 1, 2]
    batch = Transitions(np.zeros((6, 1)), np.zeros(6), np.zeros((6, 1)))
    streams, rows = Streams.of(batch, CPU), memory.rows(1)
    after = torch.eye(3).double()[states][:, None]
    start = torch.zeros(6, 1, 3).double()
    start[0, 0, 2] = 1  # the episode begins in state 2
    bonus = elliptical_bonuses(memory, rows, streams, start, after)[:, 0]
    visits = [0, 0, 1, 1, 2, 1]
    np.testing.assert_allclose(bonus, [1 / (n + 0.1) for n in visits])


def test_the_inverse_model_against_numpy() -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = {"width": 3, "hidden": (6,), "learning_rate": 1e-3, "epochs": 1, "minibatch": 50}
    for actions in (Discrete(4), Box(-2, 2, (2,))):
        model = InverseDynamics(VECTOR, actions, rng, normalize=False, **sizes)  # type: ignore[arg-type]
        batch = transitions(VECTOR, actions, 50, 0)
        weights = {name: value.detach().numpy() for name, value in model.named_parameters()}

        def phi(x: np.ndarray, weights: dict[str, np.ndarray] = weights) -> np.ndarray:
            hidden = np.tanh(x @ weights["body.1.weight"].T + weights["body.1.bias"])
            return hidden @ weights["top.weight"].T + weights["top.bias"]

        np.testing.assert_allclose(
            model.embed_state(batch.obs), phi(batch.obs), rtol=1e-4, atol=1e-6
        )
        both = np.concatenate([phi(batch.obs), phi(batch.next_obs)], 1)
        hidden = np.maximum(both @ weights["g.0.weight"].T + weights["g.0.bias"], 0)
        guess = hidden @ weights["g.2.weight"].T + weights["g.2.bias"]
        if isinstance(actions, Discrete):
            chosen = guess[np.arange(50), batch.action]
            expected = (np.log(np.exp(guess).sum(1)) - chosen).mean()
            accuracy = (guess.argmax(1) == batch.action).mean()
        else:
            expected = ((guess - batch.action / 2) ** 2).sum(1).mean()  # scaled to [−1, 1]
        scalars = model.learn(batch)
        assert scalars["loss_inverse"] == pytest.approx(expected, rel=1e-4)
        if isinstance(actions, Discrete):
            assert scalars["inverse_accuracy"] == pytest.approx(accuracy)


def test_the_inverse_model_learns() -> None:
    method = E3B(VECTOR, DISCRETE, E3BConfig(learning_rate=3e-3, minibatch=64))
    fits = [method.learn(transitions(VECTOR, DISCRETE, 500, k)) for k in range(15)]
    assert fits[-1]["e3b/loss_inverse"] < 0.3 < fits[0]["e3b/loss_inverse"]
    assert fits[-1]["e3b/inverse_accuracy"] > 0.9


def test_features_of_emi_are_those_that_emi_learns() -> None:
    method = E3B(VECTOR, DISCRETE, E3BConfig(features="emi", width=4), seed=5)
    emi = EMI(VECTOR, DISCRETE, EMIConfig(embedding_dim=4), seed=5)
    batch = transitions(VECTOR, DISCRETE, 600, 0)
    scalars = method.learn(batch)
    assert emi.learn(batch).items() <= scalars.items()
    assert torch.equal(method.embed_state(batch.obs), emi.embed_state(batch.obs))
    images = E3B(IMAGE, DISCRETE, E3BConfig(features="emi")).encoder
    assert isinstance(images, EMI)
    assert (images.config.lambda_error, images.config.kl_target) == (100, "action")
