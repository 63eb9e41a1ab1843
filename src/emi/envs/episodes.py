"""Episodes of our own environments: how they start and end, and the infos about both.

An environment defines its starts, its dynamics and its observations. Everything else is the same
for all of them and is implemented here: random streams, time limits, partial resets, the reset
within the step that ended an episode, and the check of actions.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]

NEVER = np.iinfo(np.int64).max


class Outcome(NamedTuple):
    """The result of one action in every environment, before any new episode starts."""

    obs: AnyArray  # [n, *observation]
    reward: Array  # [n]
    terminated: Mask  # [n]
    info: dict[str, AnyArray]  # infos of the step and of the state after it; each [n, ...]


def last_of(ended: Mask, obs: AnyArray, info: dict[str, Any]) -> dict[str, Any]:
    """Gymnasium's infos about episodes that `ended` [n], if the next ones start in the same step.

    `obs` [n, *observation] and `info` are the last ones of the ended episodes.
    """
    final_obs = np.full(len(ended), None, dtype=object)
    for i in np.flatnonzero(ended):
        final_obs[i] = obs[i]
    return {
        "final_obs": final_obs,
        "_final_obs": ended.copy(),
        "final_info": info,
        "_final_info": ended.copy(),
    }


class EpisodicVectorEnv(VectorEnv[AnyArray, AnyArray, Any], ABC):
    """`num_envs` copies of an environment; a subclass defines `_start`, `_advance`, `_observe`.

    An environment that ends is reset within the same step: the returned observation is the first
    of the next episode, and `info["final_obs"][i]` is the last of the ended one.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Box,
        action_space: spaces.Box | spaces.Discrete,
        max_episode_steps: int | None,
    ) -> None:
        """The spaces are those of one environment; `max_episode_steps=None`: no time limit."""
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._everywhere = np.ones(num_envs, dtype=np.bool_)
        self._streams: list[np.random.Generator] = []

        # Comparing two numbers shows whether any episode reaches its time limit.
        self._max_episode_steps = max_episode_steps
        self._clock = 0
        self._deadlines = np.full(num_envs, NEVER)
        self._next_deadline = NEVER

    @abstractmethod
    def _start(self, index: int, stream: np.random.Generator) -> None:
        """Start an episode of one environment, drawn from its random stream."""

    @abstractmethod
    def _advance(self, actions: Array) -> Outcome:
        """Move all environments by one action each; actions [n, *action] hold no NaN."""

    @abstractmethod
    def _observe(self) -> AnyArray:
        """Observations [n, *observation] of the current state."""

    def _state_info(self, where: Mask) -> dict[str, AnyArray]:
        """Infos about the current state; none by default.

        In Gymnasium's format: an array [n, ...] that is 0 except `where` [n], and that mask under
        the same name with an underscore in front.
        """
        return {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start new episodes, in all environments or where `options["reset_mask"]` is true.

        A seed gives every environment a random stream of its own, which does not depend on
        `num_envs`. Without a seed the streams continue. With `options["first"] = k`, environment i
        gets the stream of environment k + i: these are then a part of a larger vector.
        """
        super().reset(seed=seed)
        if seed is not None or not self._streams:
            first = (options or {}).get("first", 0)
            children = np.random.SeedSequence(seed).spawn(first + self.num_envs)[first:]
            self._streams = [np.random.default_rng(child) for child in children]
        mask = (options or {}).get("reset_mask", self._everywhere)
        if np.shape(mask) != (self.num_envs,):
            raise ValueError(
                f"reset_mask needs one boolean per environment ({self.num_envs}), "
                f"got shape {np.shape(mask)}."
            )
        self._start_episodes(mask)
        return self._observe(), self._state_info(self._everywhere)

    def step(self, actions: AnyArray) -> tuple[AnyArray, Array, Mask, Mask, dict[str, Any]]:
        """Advance all environments by one action each; continuous ones are clipped to ±1."""
        obs, reward, terminated, info = self.advance(actions)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        self._clock += 1
        if self._clock >= self._next_deadline or np.count_nonzero(terminated):
            truncated = (self._deadlines <= self._clock) & ~terminated
            ended = terminated | truncated
            before = {name: value.copy() for name, value in info.items()}
            info |= last_of(ended, obs, before | self._state_info(ended))
            self._start_episodes(ended)
            obs = self._observe()
            info |= self._state_info(self._everywhere)
        return obs, reward, terminated, truncated, info

    def advance(self, actions: AnyArray) -> Outcome:
        """The part of `step` without time limits and resets."""
        if not self._streams:
            raise gym.error.ResetNeeded("call reset() before the first step().")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(
                f"actions must have shape {self.action_space.shape}, got {actions.shape}."
            )
        actions = actions.astype(np.float64, order="C")
        # A sum of squares is NaN only if an entry is; np.isnan takes three times as long.
        if math.isnan(np.vdot(actions, actions)):
            raise ValueError("actions must be numbers, got NaN.")
        return self._advance(actions)

    def _start_episodes(self, where: Mask) -> None:
        indices = np.flatnonzero(where)
        for i in indices.tolist():
            self._start(i, self._streams[i])
        if self._max_episode_steps is not None:
            self._deadlines[indices] = self._clock + self._max_episode_steps
            self._next_deadline = int(self._deadlines.min())


class EpisodicEnv(gym.Env[AnyArray, AnyArray]):
    """A vector of one environment with Gymnasium's interface for single environments.

    It equals environment 0 of a larger vector with the same seed, bit for bit. It has no time limit
    of its own: `gymnasium.make` adds the registered one, or the `max_episode_steps` it is given.
    """

    def __init__(self, envs: EpisodicVectorEnv, render_mode: str | None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
        self.render_mode = render_mode
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self._envs = envs

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start a new episode; a seed also starts a new random stream."""
        super().reset(seed=seed)
        obs, info = self._envs.reset(seed=seed)
        return obs[0], _first(info)

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Advance by one action [*action]; a continuous one is clipped to ±1."""
        # Not `step`, which would start the next episode: that is left to reset().
        outcome = self._envs.advance(np.asarray(action)[None])
        reward, terminated = float(outcome.reward[0]), bool(outcome.terminated[0])
        return outcome.obs[0], reward, terminated, False, _first(outcome.info)


def _first(info: dict[str, AnyArray]) -> dict[str, Any]:
    """The infos of environment 0, numbers or arrays, without the masks."""
    values = {name: value[0] for name, value in info.items() if not name.startswith("_")}
    return {name: x if x.ndim else x.item() for name, x in values.items()}
