"""One iteration in a world whose every number is known: returns, advantages, what is learnt from.

Episodes take turns: two steps that pay 5 and −3 and end for good, three that pay 4, 1 and 1 and end
because the time is over. An observation is 10 · episode + clock.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.agent.rollout import Rollout
from emi.batch import Transitions
from emi.training import trainer as train_module
from emi.training.config import resolve
from emi.training.trainer import Trainer

PAID = ((5.0, -3.0), (4.0, 1.0, 1.0))


class Turns(gymnasium.Env):
    observation_space, action_space = Box(0, 1e6, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.clock = 0
        return self._obs(), {}

    def _obs(self) -> np.ndarray:
        return np.array([10.0 * self.episode + self.clock], np.float32)

    def step(self, action: Any) -> Any:
        rewards = PAID[self.episode % 2]
        reward, self.clock = rewards[self.clock], self.clock + 1
        over = self.clock == len(rewards)
        terminated = over and self.episode % 2 == 0
        return self._obs(), reward, terminated, over and not terminated, {}


gymnasium.register("Turns-v0", Turns)


def trainer(method: str = "trpo", *overrides: str, steps: int = 10, envs: int = 1) -> Trainer:
    sizes = (f"steps_per_iteration={steps}", f"num_envs={envs}", f"steps={3 * steps}")
    return Trainer(resolve("gym:Turns-v0", method, threads=1, overrides=[*sizes, *overrides]))


def path(steps: int) -> list[tuple[float, float, float, bool, bool]]:
    """(s, r, s', terminated, truncated) of the first steps after a seeded reset."""
    rows = []
    episode = clock = 0
    for _ in range(steps):
        paid = PAID[episode % 2]
        over = clock + 1 == len(paid)
        ends = over and episode % 2 == 0
        here = 10.0 * episode + clock
        rows.append((here, paid[clock], here + 1, ends, over and not ends))
        episode, clock = (episode + 1, 0) if over else (episode, clock + 1)
    return rows


def value_of(s: float) -> float:
    return 1.0 + 0.25 * s


def by_hand(steps: int, discount: float, lam: float, bootstrap: bool) -> list[float]:
    """Advantages, from the last step to the first."""
    out: list[float] = []
    for s, r, after, terminated, truncated in reversed(path(steps)):
        known = not terminated and (bootstrap or not truncated)
        delta = r + discount * value_of(after) * known - value_of(s)
        beyond = out[-1] if out and not (terminated or truncated) else 0.0
        out.append(delta + discount * lam * beyond)
    return out[::-1]


# The last step of 9 is in the middle of an episode, that of 10 at its end.
@pytest.mark.parametrize("steps", [9, 10])
@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_advantages_values_and_targets(steps: int, bootstrap: bool, lam: float) -> None:
    made = trainer(
        "trpo",
        "discount=0.5",
        f"gae_lambda={lam}",
        f"bootstrap_timeouts={str(bootstrap).lower()}",
        steps=steps,
    )
    made.value.predict = lambda obs, clock: np.array(  # type: ignore[method-assign]
        [value_of(s) for s in np.asarray(obs[:])[:, 0]]
    )
    rollout = made._next_rollout()
    np.testing.assert_array_equal(rollout.flat(rollout.reward), [r for _, r, *_ in path(steps)])
    advantage, value, target = made._advantage(rollout, rollout.reward)
    np.testing.assert_allclose(advantage, by_hand(steps, 0.5, lam, bootstrap), rtol=1e-12)
    np.testing.assert_allclose(value, [value_of(s) for s, *_ in path(steps)])
    # The value function is fitted to returns, whatever λ the advantages have.
    np.testing.assert_allclose(target - value, by_hand(steps, 0.5, 1.0, bootstrap), rtol=1e-12)


def test_two_advantages_as_literals() -> None:
    """5 − 3/2 − V(0); and with a time-out, 1 + V(13)/2 − V(12) or 1 − V(12)."""
    assert by_hand(10, 0.5, 1.0, False)[:2] == [2.5, -4.25]
    assert by_hand(10, 0.5, 1.0, False)[4] == -3.0
    assert by_hand(10, 0.5, 1.0, True)[4] == -0.875


def test_returns_are_those_of_whole_episodes_raw() -> None:
    metrics = trainer("trpo", "clip_rewards=true").iterate().metrics
    assert metrics["episodes"] == 4
    assert (metrics["return_mean"], metrics["return_std"], metrics["return_max"]) == (4, 2, 6)
    metrics = trainer(steps=9).iterate().metrics  # the last episode is cut off
    assert metrics["episodes"] == 3
    assert metrics["return_mean"] == pytest.approx(10 / 3)
    assert metrics["return_std"] == pytest.approx(np.std([2, 6, 2]))


class Pays(torch.nn.Module):
    """A bonus of 7 for every transition."""

    learns_first = False

    def reward(self, batch: Transitions) -> torch.Tensor:
        return torch.full((len(batch),), 7.0)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("clamped", [True, False])
def test_what_is_learnt_from_is_the_reward_clamped_and_then_the_bonus(
    clamped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "make_intrinsic", lambda *_: Pays())
    made = trainer("emi", "eta=0.25", f"clip_rewards={str(clamped).lower()}")
    seen: list[np.ndarray] = []
    advantage = made._advantage

    def kept(rollout: Rollout, reward: np.ndarray) -> Any:
        seen.append(rollout.flat(reward))
        return advantage(rollout, reward)

    made._advantage = kept  # type: ignore[method-assign]
    made.iterate()
    raw = np.array([r for _, r, *_ in path(10)])
    expected = np.clip(raw, -1, 1) if clamped else raw
    np.testing.assert_array_equal(seen[0], expected + 1.75)


def test_the_entropy_and_the_explained_variance_of_a_report() -> None:
    made = trainer("trpo", "discount=0.5")
    made.iterate()
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    advantage = made._advantage

    def remembered(rollout: Rollout, reward: np.ndarray) -> Any:
        found = advantage(rollout, reward)
        obs = torch.as_tensor(np.asarray(rollout.observations()[:]))
        with torch.no_grad():
            entropy.append(made.policy.entropy(made.policy(obs)).mean().item())
        kept.append(found[1:])
        return found

    entropy: list[float] = []
    made._advantage = remembered  # type: ignore[method-assign]
    metrics = made.iterate().metrics
    ((value, target),) = kept
    assert metrics["explained_variance"] == pytest.approx(
        1 - np.var(target - value) / np.var(target)
    )
    assert abs(metrics["explained_variance"] - (1 - np.var(target - value) / np.var(value))) > 1e-3
    assert metrics["entropy"] == pytest.approx(entropy[0])


def test_the_sample_of_an_embedding_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three environments: every column belongs to the same transitions."""
    monkeypatch.setattr(train_module, "EMBEDDING_SAMPLE", 20)
    made = trainer("emi", steps=30, envs=3)
    made.iterate()
    assert made._last is not None
    rollout, bonus = made._last
    sample = made.embedding_sample()
    rows = [(t, e) for t in range(len(rollout.index)) for e in range(2) if rollout.valid[t, e]]
    assert len(rows) == len(sample["phi"]) == 20
    flat = rollout.grid(bonus)
    method = made.intrinsic
    assert isinstance(method, torch.nn.Module)
    for k, (t, e) in enumerate(rows):
        s, after = (rollout.pool[i[t, e]][None] for i in (rollout.index, rollout.next_index))
        action = made.policy.to_env(rollout.action[t, e][None])
        for name, expected in {
            "obs": s,
            "phi": method.embed_state(s),
            "phi_next": method.embed_state(after),
            "psi": method.embed_action(action),
            "error": method.error(s, action),
            "bonus": flat[t, e],
            "reward": rollout.reward[t, e],
            "clock": rollout.clock[t, e],
            "ended": rollout.ended[t, e],
            "env": e,
        }.items():
            got = np.atleast_1d(np.squeeze(sample[name][k].numpy()))
            wanted = np.atleast_1d(np.squeeze(np.asarray(expected)))
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    assert rollout.truncated.any()  # an end that is no termination is among them


def test_a_diagnosis_takes_some_environments_and_moves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train_module, "DIAGNOSIS_SAMPLE", 40)
    asked, plain = (trainer("emi", steps=60, envs=3) for _ in range(2))
    given: dict[str, Any] = {}

    def diagnose(method: Any, transitions: Transitions, **words: Any) -> Any:
        given.update(words, transitions=transitions)
        return None

    monkeypatch.setattr(train_module, "diagnose", diagnose)
    asked.diagnose()
    assert len(given["transitions"]) == len(given["reward"]) == 40
    assert set(given["transitions"].env) == {0, 1}
    # In the order of time, environment by environment the path that is known.
    for env in range(2):
        mine = given["transitions"].env == env
        assert given["reward"][mine].tolist() == [r for _, r, *_ in path(20)]
    # Advantages are those of the same rows: a reward in one row moves those before it in its
    # episode, in its environment, and no other.
    nothing = given["advantages"](np.zeros(40))
    one = np.zeros(40)
    place = np.flatnonzero(given["transitions"].env == 1)[
        3
    ]  # the second step of the second episode
    one[place] = 1.0
    moved = np.flatnonzero(given["advantages"](one) != nothing)
    assert moved.tolist() == np.flatnonzero(given["transitions"].env == 1)[2:4].tolist()
    first, second = asked.iterate().metrics, plain.iterate().metrics
    assert {k: v for k, v in first.items() if v == v} == {k: v for k, v in second.items() if v == v}
