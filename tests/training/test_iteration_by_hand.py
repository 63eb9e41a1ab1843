"""One iteration in an environment whose every number is known: returns, advantages, rewards.

Two kinds of episodes alternate: two steps with the rewards 5 and −3, then termination; three steps
with the rewards 4, 1 and 1, then truncation. An observation is 10 · episode + clock.
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
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.training.presets import resolve
from emi.training.trainer import Trainer

REWARDS = ((5.0, -3.0), (4.0, 1.0, 1.0))


class Alternating(gymnasium.Env):
    observation_space, action_space = Box(0, 1e6, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.clock = 0
        return self._obs(), {}

    def _obs(self) -> np.ndarray:
        return np.array([10.0 * self.episode + self.clock], np.float32)

    def step(self, action: Any) -> Any:
        rewards = REWARDS[self.episode % 2]
        reward, self.clock = rewards[self.clock], self.clock + 1
        over = self.clock == len(rewards)
        terminated = over and self.episode % 2 == 0
        return self._obs(), reward, terminated, over and not terminated, {}


gymnasium.register("Alternating-v0", Alternating)


def trainer(
    method: Any = "trpo", settings: dict[str, Any] | None = None, steps: int = 10
) -> Trainer:
    sizes = {"steps_per_iteration": steps, "num_envs": 1, "steps": 3 * steps, "threads": 1}
    config = resolve("gym:Alternating-v0", method, sizes | (settings or {}))
    return Trainer(config, None if isinstance(method, str) else method)


def path(steps: int) -> list[tuple[float, float, float, bool, bool]]:
    """(s, r, s', terminated, truncated) of the first steps after a seeded reset."""
    rows = []
    episode = clock = 0
    for _ in range(steps):
        rewards = REWARDS[episode % 2]
        over = clock + 1 == len(rewards)
        ends = over and episode % 2 == 0
        here = 10.0 * episode + clock
        rows.append((here, rewards[clock], here + 1, ends, over and not ends))
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
    settings = {"discount": 0.5, "gae_lambda": lam, "bootstrap_timeouts": bootstrap}
    made = trainer("trpo", settings, steps)
    made.value.predict_after = lambda obs: np.array(  # type: ignore[method-assign]
        [value_of(s) for s in np.asarray(obs[:])[:, 0]]
    )
    made.value.predict = lambda obs, clock: made.value.predict_after(obs)  # type: ignore[method-assign]
    rollout = made.collector.batch(0)
    np.testing.assert_array_equal(rollout.flat(rollout.reward), [r for _, r, *_ in path(steps)])
    advantage, value, target, cut = made.estimate(rollout, rollout.reward)
    assert cut == (steps == 9 or bootstrap)
    np.testing.assert_allclose(advantage, by_hand(steps, 0.5, lam, bootstrap), rtol=1e-12)
    np.testing.assert_allclose(value, [value_of(s) for s, *_ in path(steps)])
    # The value function is fitted to returns, independently of the λ of the advantages.
    np.testing.assert_allclose(target - value, by_hand(steps, 0.5, 1.0, bootstrap), rtol=1e-12)


def test_two_advantages_as_literals() -> None:
    """5 − 3/2 − V(0); and with a time-out, 1 + V(13)/2 − V(12) or 1 − V(12)."""
    assert by_hand(10, 0.5, 1.0, False)[:2] == [2.5, -4.25]
    assert by_hand(10, 0.5, 1.0, False)[4] == -3.0
    assert by_hand(10, 0.5, 1.0, True)[4] == -0.875


def test_returns_are_those_of_whole_episodes_raw() -> None:
    metrics = trainer("trpo", {"clip_rewards": True}).iterate().metrics
    assert metrics["episodes"] == 4
    assert (metrics["return_mean"], metrics["return_std"], metrics["return_max"]) == (4, 2, 6)
    metrics = trainer(steps=9).iterate().metrics  # the last episode is cut off
    assert metrics["episodes"] == 3
    assert metrics["return_mean"] == pytest.approx(10 / 3)
    assert metrics["return_std"] == pytest.approx(np.std([2, 6, 2]))


class ConstantBonus(IntrinsicReward):
    """A bonus of 7 for every transition."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def reward(self, batch: Transitions) -> torch.Tensor:
        return torch.full((len(batch),), 7.0)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return {}


def learned_rewards(settings: dict[str, Any]) -> np.ndarray:
    """The rewards [n] that the advantages of one iteration are computed from."""
    made = trainer(ConstantBonus, {"eta": 0.25, **settings})
    seen: list[np.ndarray] = []
    estimate = made.estimate

    def recorded(rollout: Rollout, reward: np.ndarray, values: np.ndarray) -> Any:
        seen.append(rollout.flat(reward))
        return estimate(rollout, reward, values)

    made.estimate = recorded  # type: ignore[method-assign]
    report = made.iterate()
    assert report.metrics["return_mean"] == 4  # raw, whatever is learned from
    return seen[0]


@pytest.mark.parametrize("clip", [True, False])
def test_the_agent_learns_from_the_clamped_reward_plus_the_bonus(clip: bool) -> None:
    raw = np.array([r for _, r, *_ in path(10)])
    expected = np.clip(raw, -1, 1) if clip else raw
    np.testing.assert_array_equal(learned_rewards({"clip_rewards": clip}), expected + 1.75)


def test_without_a_reward_the_agent_learns_from_the_bonus_alone() -> None:
    np.testing.assert_array_equal(learned_rewards({"reward": "none"}), np.full(10, 1.75))
    with pytest.raises(UserError, match="nothing to learn without a reward"):
        trainer("trpo", {"reward": "none"})


def test_the_entropy_and_the_explained_variance_of_a_report() -> None:
    made = trainer("trpo", {"discount": 0.5})
    made.iterate()
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    estimate = made.estimate

    def remembered(rollout: Rollout, reward: np.ndarray, values: np.ndarray) -> Any:
        found = estimate(rollout, reward, values)
        obs = torch.as_tensor(np.asarray(rollout.observations()[:]))
        with torch.no_grad():
            entropy.append(made.policy.entropy(made.policy(obs)).mean().item())
        kept.append(found[1:])
        return found

    entropy: list[float] = []
    made.estimate = remembered  # type: ignore[method-assign]
    metrics = made.iterate().metrics
    ((value, target, _),) = kept
    assert metrics["explained_variance"] == pytest.approx(
        1 - np.var(target - value) / np.var(target)
    )
    assert abs(metrics["explained_variance"] - (1 - np.var(target - value) / np.var(value))) > 1e-3
    assert metrics["entropy"] == pytest.approx(entropy[0])
