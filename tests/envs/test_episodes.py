"""Episodes: random streams, time limits, partial resets, both kinds of ends, and their infos.

The smallest environment serves: a number to which the action is added; it ends at 3.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from emi.envs.episodes import EpisodicEnv, EpisodicVectorEnv, Outcome, last_of


class Counter(EpisodicVectorEnv):
    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = 5) -> None:
        observed, added = spaces.Box(-9, 9, (1,)), spaces.Box(-1, 1, (1,))
        super().__init__(num_envs, observed, added, max_episode_steps)
        self.value = np.zeros(num_envs)
        self.drawn: list[list[float]] = [[] for _ in range(num_envs)]

    def _start(self, index: int, stream: np.random.Generator) -> None:
        self.drawn[index].append(stream.random())
        self.value[index] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        added = np.clip(actions[:, 0], -1, 1)
        self.value += added
        info = {"added": added.astype(np.int64)} | self._state_info(self._everywhere)
        return Outcome(self._observe(), self.value.copy(), self.value >= 3, info)

    def _observe(self) -> np.ndarray:
        return self.value[:, None].astype(np.float32)

    def _state_info(self, where: np.ndarray) -> dict[str, np.ndarray]:
        return {"value": np.where(where, self.value, 0.0), "_value": where.copy()}


def test_an_environment_must_define_start_advance_and_observe() -> None:
    with pytest.raises(TypeError, match="_advance"):
        EpisodicVectorEnv(1, spaces.Box(0, 1), spaces.Box(0, 1), None)  # type: ignore[abstract]


def test_both_kinds_of_ends_and_their_infos() -> None:
    env = Counter(num_envs=3, max_episode_steps=3)
    obs, info = env.reset(seed=0)
    assert obs.tolist() == [[0], [0], [0]]
    assert {name: value.tolist() for name, value in info.items()} == {
        "value": [0, 0, 0],
        "_value": [True] * 3,
    }
    env.step([[1], [1], [0]])
    env.reset(options={"reset_mask": [0, 0, 1]})
    env.step([[1], [1], [1]])
    # The first reaches 3 in the last step of its time limit: it is terminated, not truncated.
    obs, reward, terminated, truncated, info = env.step([[1], [0], [1]])
    assert obs.tolist() == [[0], [0], [2]]
    assert reward.tolist() == [3, 2, 2]
    assert terminated.tolist() == [True, False, False]
    assert truncated.tolist() == [False, True, False]
    assert info["added"].tolist() == [1, 0, 1]  # of the step, also where it was the last
    assert info["value"].tolist() == [0, 0, 2]  # of the observation
    assert info["_value"].tolist() == [True, True, True]
    assert [None if last is None else last.tolist() for last in info["final_obs"]] == [
        [3],
        [2],
        None,
    ]
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [True, True, False]
    final = {name: value.tolist() for name, value in info["final_info"].items()}
    assert final == {"added": [1, 0, 1], "value": [3, 2, 0], "_value": [True, True, False]}
    assert [len(starts) for starts in env.drawn] == [2, 2, 2]
    # The third was started one step after the others.
    assert env.step([[0], [0], [0]])[3].tolist() == [False, False, True]


def test_termination_restarts_the_time_limit() -> None:
    env = Counter(num_envs=1, max_episode_steps=5)
    env.reset(seed=0)
    ends = []
    for t, action in enumerate([1, 1, 1, 0, 0, 0, 0, 0, 0]):
        _, _, terminated, truncated, _ = env.step([[action]])
        if terminated or truncated:
            ends.append((t, bool(terminated[0]), bool(truncated[0])))
    assert ends == [(2, True, False), (7, False, True)]


def test_without_a_time_limit_only_termination_ends_an_episode() -> None:
    env = Counter(num_envs=2, max_episode_steps=None)
    env.reset(seed=0)
    for _ in range(50):
        assert not env.step(np.zeros((2, 1)))[3].any()
    env.value[1] = 2
    assert env.step(np.ones((2, 1)))[2].tolist() == [False, True]


def test_streams_are_the_children_of_the_seed() -> None:
    env = Counter(num_envs=3)
    env.reset(seed=7)
    env.reset()
    children = np.random.SeedSequence(7).spawn(3)
    assert env.drawn == [np.random.default_rng(child).random(2).tolist() for child in children]
    env.reset(seed=7)
    assert [starts[0] for starts in env.drawn] == [starts[2] for starts in env.drawn]
    fewer = Counter(num_envs=2)
    fewer.reset(seed=7)
    assert [starts[0] for starts in fewer.drawn] == [starts[0] for starts in env.drawn[:2]]


def test_wrong_input_is_refused_and_changes_nothing() -> None:
    env = Counter(num_envs=2)
    for act in (env.step, env.advance):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"^call reset\(\) before the first"):
            act(np.zeros((2, 1)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"^actions must have shape \(2, 1\), got \(2,\)\.$"):
        env.step(np.ones(2))
    with pytest.raises(ValueError, match=r"^actions must be numbers, got NaN\.$"):
        env.step(np.array([[1.0], [np.nan]]))
    with pytest.raises(ValueError, match=r"per environment \(2\), got shape \(1,\)\.$"):
        env.reset(options={"reset_mask": [True]})
    assert env.value.tolist() == [0, 0]
    env.step(np.array([[1e200], [-np.inf]]))  # large is no NaN, and no warning either
    assert env.value.tolist() == [1, -1]


def test_a_single_environment_starts_no_episode_on_its_own() -> None:
    envs = Counter()
    env = EpisodicEnv(envs, None)
    assert env.reset(seed=3)[1] == {"value": 0.0}
    for action in (1, 1, 0):
        assert env.step([action])[2:4] == (False, False)
    assert env.step([1]) == (np.float32([3]), 3.0, True, False, {"added": 1, "value": 3.0})
    assert len(envs.drawn[0]) == 1
    env.reset()
    assert not any(env.step([0])[3] for _ in range(10))  # gymnasium.make adds the time-out
    with pytest.raises(ValueError, match=r"^render_mode must be None or 'rgb_array', got 'human'"):
        EpisodicEnv(envs, "human")


def test_last_of_returns_copies() -> None:
    ended = np.array([False, True])
    info = last_of(ended, np.array([[1], [2]]), {"x": 1})
    ended[:] = True
    assert info["final_obs"][0] is None
    assert info["final_obs"][1].tolist() == [2]
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [False, True]
    assert info["final_info"] == {"x": 1}
