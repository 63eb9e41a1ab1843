"""Where the agent is: the position of the state that a step reached, also if the episode ended."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracle import OracleVectorEnv

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.envs import make_vec
from emi.envs.positions import RecordPositions, SayPosition
from emi.errors import UserError


class Oracle(OracleVectorEnv):
    """The oracle, whose position is its true state (episode, t)."""

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = super().reset(**options)
        return obs, {**info, "position": obs}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(actions)
        info["position"] = obs
        if "final_obs" in info:
            last = np.zeros_like(obs)
            for i in np.flatnonzero(info["_final_obs"]):
                last[i] = info["final_obs"][i]
            info |= {"final_info": {"position": last}, "_final_info": info["_final_obs"]}
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", AutoresetMode)
def test_positions_are_those_of_the_reached_states(mode: AutoresetMode) -> None:
    envs = RecordPositions(Oracle(7, mode))
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(*spaces, PolicyConfig(hidden=(2,)), torch.Generator().manual_seed(0))
    rollout = collect(envs, policy, 3_000, np.random.default_rng(0), 0)
    position = envs.taken(len(rollout.index))
    assert position is not None
    reached = rollout.transitions(lambda action: action).next_obs[:]
    np.testing.assert_array_equal(rollout.flat(position), reached)
    assert rollout.ended.sum() > 300


class Corridor(gymnasium.Env):
    """Cells 0 to 3; every step moves one to the right, and the episode ends in cell 3."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.cell = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell += 1
        return self.cell, 0.0, self.cell == 3, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_last_cell_of_an_episode_is_visited(mode: AutoresetMode) -> None:
    envs = RecordPositions(SyncVectorEnv([lambda: SayPosition(Corridor())], autoreset_mode=mode))
    envs.reset(seed=0)
    for _ in range(4):
        envs.step(np.zeros(1, int))
    position = envs.taken(4)
    assert position is not None
    # Rows of √4 = 2 cells: 1 is right of 0, 2 and 3 are below them.
    again = [1, 1] if mode is AutoresetMode.SAME_STEP else [0, 1]
    assert position[:, 0].tolist() == [[1, 1], [0, 0], [1, 0], again]
    found = envs.map()
    assert found is not None
    assert found.free.all()
    assert found.free.shape == (2, 2)


def test_minigrid_has_its_map() -> None:
    envs = RecordPositions(make_vec("gym:MiniGrid-Empty-5x5-v0", 2, positions=True))
    envs.reset(seed=0)
    envs.step(np.array([2, 1]))  # forward to the right, and a turn
    position = envs.taken(1)
    assert position is not None
    # MiniGrid counts from above: its cell (1, 1) is the upper left one of the 3 × 3 grid.
    assert position.tolist() == [[[2, 3], [1, 3]]]
    found = envs.map()
    assert found is not None
    assert found.free.sum() == 9
    assert found.free[1:4, 1:4].all()
    envs.close()


def test_a_maze_has_its_map() -> None:
    envs = RecordPositions(make_vec("gym:PointMaze_UMaze-v3", positions=True))
    envs.reset(seed=0)
    envs.step(np.zeros((1, 2), np.float32))
    found, position = envs.map(), envs.taken(1)
    assert found is not None
    assert position is not None
    assert found.free.sum() == 7 * 9  # 7 cells of 3 × 3 parts
    assert found.low == (-2.5, -2.5)
    x, y = ((position[0, 0] - found.low) / found.cell).astype(int)
    assert found.free[x, y]
    # From above: three cells, then one at the right, then three.
    rows = found.free[1::3, 1::3].T[::-1]
    assert rows.astype(int).tolist() == [
        [0, 0, 0, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 0, 1, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0],
    ]
    envs.close()


def test_some_steps_without_a_position_are_an_error() -> None:
    class Sometimes(Oracle):
        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            result = super().step(actions)
            if self.state[0, 1] > 2:
                result[4].pop("position")
            return result

    envs = RecordPositions(Sometimes(1, AutoresetMode.NEXT_STEP))
    envs.reset(seed=0)
    for _ in range(20):
        envs.step(np.zeros(1, int))
    with pytest.raises(UserError, match=r"gave info\['position'\] in \d+ of 20 steps: give it"):
        envs.taken(20)


def test_an_environment_without_positions() -> None:
    envs = RecordPositions(make_vec("gym:MountainCarContinuous-v0", 2, positions=True))
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.float32))
    assert envs.taken(1) is None
    assert envs.map() is None
    envs.close()
