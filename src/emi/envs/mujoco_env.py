"""Environments that MuJoCo simulates: thread pool, simulator states, starts and rendering."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from mujoco.rollout import Rollout

from emi.envs.episodes import Array, EpisodicEnv, EpisodicVectorEnv
from emi.envs.rendering import Marker, OffscreenRenderer
from emi.envs.silent_mujoco import silence

POSITION_NOISE = 0.01
VELOCITY_NOISE = 0.1


class MujocoVectorEnv(EpisodicVectorEnv):
    """`num_envs` simulations of one model, stepped in MuJoCo's C++ thread pool.

    Results depend only on the seed and the actions, not on `threads`; an environment does not
    depend on the others. A row of `_state` is time, then positions, then velocities.
    """

    substeps: int  # simulation steps per action
    envs_per_thread: int  # at least; with fewer, the pool is smaller

    def __init__(
        self,
        model: mujoco.MjModel,
        num_envs: int,
        observation_space: spaces.Box,
        max_episode_steps: int | None,
        threads: int | None,
    ) -> None:
        """`threads` limits the pool (default: all cores)."""
        motors = spaces.Box(-1.0, 1.0, (model.nu,), np.float32)
        super().__init__(num_envs, observation_space, motors, max_episode_steps)
        self.model = model
        silence()
        pool = min(threads or os.cpu_count() or 1, num_envs // self.envs_per_thread)
        pool = pool if pool > 1 else 0  # 0: in the calling thread
        self._rollout = Rollout(nthread=pool)
        self._scratch = [mujoco.MjData(model) for _ in range(max(pool, 1))]
        self._models = [model] * num_envs
        # One environment at a time if each may have a thread: a thread that is delayed leaves the
        # rest to the others.
        self._chunk_size = 1 if self.envs_per_thread == 1 else math.ceil(num_envs / max(pool, 1))

        # Rollout writes all states [n, substeps, state]. It reads the row of an environment before,
        # so the output of a single step can be the input.
        self._state = np.zeros((num_envs, 1 + model.nq + model.nv))
        self._states = self._state[:, None]
        if self.substeps > 1:
            self._states = self._states.repeat(self.substeps, axis=1)
        self._no_sensors = np.zeros((num_envs, self.substeps, 0))

    def _start(self, index: int, stream: np.random.Generator) -> None:
        position = self.model.qpos0 + POSITION_NOISE * stream.standard_normal(self.model.nq)
        velocity = VELOCITY_NOISE * stream.standard_normal(self.model.nv)
        self._state[index] = np.concatenate([[0.0], position, velocity])

    def _simulate(self, controls: Array) -> None:
        """Simulate with controls [n, substeps, action], which the model's motors clip to ±1."""
        self._rollout.rollout(
            self._models,
            self._scratch,
            self._state,
            controls,
            skip_checks=True,
            nstep=self.substeps,
            state=self._states,
            sensordata=self._no_sensors,
            chunk_size=self._chunk_size,
        )

    def simulation(self, index: int) -> mujoco.MjData:
        """A copy of the simulation of one environment with all derived values, to render it."""
        data = mujoco.MjData(self.model)
        data.qpos, data.qvel = np.split(self._state[index, 1:], [self.model.nq])
        mujoco.mj_forward(self.model, data)
        return data

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the thread pool."""
        self._rollout.close()


class MujocoEnv(EpisodicEnv, ABC):
    """One simulation as a single Gymnasium environment that can be rendered."""

    frame_shape: tuple[int, int]  # height, width: multiples of 16, as video encoders require
    _envs: MujocoVectorEnv
    _renderer: OffscreenRenderer | None = None

    @abstractmethod
    def _view(self) -> tuple[mujoco.MjvCamera, Sequence[Marker]]:
        """The camera, and what is drawn besides the simulation."""

    def render(self) -> npt.NDArray[np.uint8] | None:
        """A picture [height, width, 3], or None without a render mode."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = OffscreenRenderer(self._envs.model, *self.frame_shape)
        return self._renderer.frame(self._envs.simulation(0), *self._view())

    def close(self) -> None:
        """Free the simulator and the renderer."""
        self._envs.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
