"""An environment whose observation is (episode, t), in all three autoreset modes.

A transition that mixes episodes or skips a step is visible in the numbers.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

# Steps of a test in another trainer, of all environments. EMI_ORACLE_STEPS=100_000 takes minutes; a
# tenth of that is enough for every test run.
STEPS = int(os.environ.get("EMI_ORACLE_STEPS", "10_000"))


class OracleVectorEnv(VectorEnv):
    """obs = (episode, t); reward = t of the step; ends at random, by either flag or by both."""

    def __init__(self, num_envs: int, mode: AutoresetMode, *, mean_length: float = 6.0) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = num_envs
        self.mode = mode
        self.end_chance = 1 / mean_length
        self.single_observation_space = Box(-1, np.inf, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episodes = 0
        self.state = np.zeros((num_envs, 2))
        self.pending = np.zeros(num_envs, bool)
        self.rng = np.random.default_rng(0)

    def _begin(self, which: np.ndarray) -> None:
        for env in np.flatnonzero(which):
            self.episodes += 1
            self.state[env] = (self.episodes, 0)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._begin(mask)
        self.pending[mask] = False
        return self.state.astype(np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.mode is AutoresetMode.DISABLED:
            assert not self.pending.any(), "stepped after the end without a reset"
        resetting = self.pending.copy()
        reward = self.state[:, 1].copy()
        self.state[~resetting, 1] += 1
        draw = self.rng.random((2, self.num_envs)) < self.end_chance
        terminated, truncated = draw & ~resetting
        self._begin(resetting)
        reward[resetting] = -777.0  # must never be seen by a learner
        ended = terminated | truncated
        info: dict[str, Any] = {}
        if self.mode is AutoresetMode.SAME_STEP:
            if ended.any():
                final = np.empty(self.num_envs, object)
                for env in np.flatnonzero(ended):
                    final[env] = self.state[env].astype(np.float32)
                info = {"final_obs": final, "_final_obs": ended}
            self._begin(ended)
            self.pending[:] = False
        else:
            self.pending = ended
        return self.state.astype(np.float32), reward, terminated, truncated, info
