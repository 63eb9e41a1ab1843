"""Where an agent is: `info["position"]` of an environment, and the map that the positions lie on.

An environment of yours says where it is by returning `info["position"]`, one or two numbers, from
`reset` and `step`. `SayPosition` does this for families that do not do it themselves: one function
each below, tried in the order of `FAMILIES`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv, VectorWrapper

from emi.errors import UserError, check_finite

Array = npt.NDArray[np.float64]
PARTS = 3  # a cell of a maze is shown as 3 × 3


@dataclass(frozen=True)
class Map:
    """The cells of an environment whose plan is known; the first axis is x, to the right."""

    low: tuple[float, float]  # the corner of cell (0, 0)
    cell: tuple[float, float]  # width and height of a cell
    free: npt.NDArray[np.bool_]  # [x, y], cells that are not walls
    names: tuple[str, str] = ("x", "y")


class Located(NamedTuple):
    """How the position [2] follows from an observation, and the map as it is now."""

    position: Callable[[Any], Array]
    map: Callable[[], Map]


def _minigrid(env: gymnasium.Env) -> Located | None:
    """MiniGrid and BabyAI: the cell of the agent, counted from below as in pictures."""
    if "minigrid" not in sys.modules:
        return None
    from minigrid.minigrid_env import MiniGridEnv

    grid: Any = env.unwrapped
    if not isinstance(grid, MiniGridEnv):
        return None

    def plan() -> Map:
        cells = [[grid.grid.get(x, y) for y in range(grid.height)] for x in range(grid.width)]
        walls = [[cell is not None and cell.type == "wall" for cell in row] for row in cells]
        return Map((0.0, 0.0), (1.0, 1.0), ~np.array(walls)[:, ::-1])

    def position(_: Any) -> Array:
        x, y = grid.agent_pos
        return np.array([x, grid.height - 1 - y], np.float64)

    return Located(position, plan)


def _maze(env: gymnasium.Env) -> Located | None:
    """PointMaze and AntMaze: the goal that is achieved, on the map of the maze."""
    if "gymnasium_robotics" not in sys.modules:
        return None
    from gymnasium_robotics.envs.maze.maze_v4 import MazeEnv

    if not isinstance(env.unwrapped, MazeEnv):
        return None
    maze = env.unwrapped.maze

    def plan() -> Map:
        free = np.array([[cell != 1 for cell in row] for row in maze.maze_map])
        low = (-maze.x_map_center, maze.y_map_center - len(free) * maze.maze_size_scaling)
        width = maze.maze_size_scaling / PARTS
        fine = free[::-1].T.repeat(PARTS, axis=0).repeat(PARTS, axis=1)
        return Map(low, (width, width), fine)

    return Located(lambda obs: np.asarray(obs["achieved_goal"], np.float64)[:2], plan)


def _discrete(env: gymnasium.Env) -> Located | None:
    """A state with a number, as in FrozenLake: rows of √n cells, the first row above."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        return None
    n, start = int(space.n), int(space.start)
    side = math.isqrt(n - 1) + 1
    rows = -(-n // side)

    def position(obs: Any) -> Array:
        row, column = divmod(int(obs) - start, side)
        return np.array([column, rows - 1 - row], np.float64)

    def plan() -> Map:
        free = (np.arange(rows * side) < n).reshape(rows, side)[::-1].T
        return Map((0.0, 0.0), (1.0, 1.0), free, ("state number in its row", "row"))

    return Located(position, plan)


FAMILIES: tuple[Callable[[gymnasium.Env], Located | None], ...] = (_minigrid, _maze, _discrete)


class SayPosition(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds `info["position"]` to an environment of a known family that has none."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        found = (family(env) for family in FAMILIES)
        self._located = next((located for located in found if located is not None), None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._with_position(obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._with_position(obs, info)

    def _with_position(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        if self._located is None or "position" in info:
            return info
        return {**info, "position": self._located.position(obs)}

    def map(self) -> Map | None:
        """The map of the current episode; None if there is none."""
        return None if self._located is None else self._located.map()


class RecordPositions(VectorWrapper[Any, Any, Any, Any, Any]):
    """Keeps the position after every step: at the end of an episode, that of the last state."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self._taken: list[Array] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset; unless only some environments are reset, a new record begins."""
        if "reset_mask" not in (options or {}):
            self._taken = []
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        info = result[4]
        if "position" in info:
            self._taken.append(_after_step(info))
        return result

    def taken(self, length: int) -> Array | None:
        """Positions [time, env, 1 or 2] of the last `length` steps; None if there are none.

        UserError if there are some, and not one of every step.
        """
        taken, self._taken = self._taken, []
        if not taken:
            return None
        if len(taken) != length:
            raise UserError(
                f"the environment gave info['position'] in {len(taken)} of {length} steps: give it "
                "in every step and reset"
            )
        positions = np.stack(taken)
        positions = positions.reshape(*positions.shape[:2], -1)[:, :, :2]
        check_finite("position", positions)
        return positions

    def map(self) -> Map | None:
        """The map of the environments: a cell is free if it is so in any current episode."""
        own = getattr(self.env, "map", None)
        if own is not None:
            return own()
        wrapped = (_say_position(env) for env in getattr(self.env, "envs", ()))
        maps = [found for env in wrapped if env is not None and (found := env.map()) is not None]
        if not maps or any(found.free.shape != maps[0].free.shape for found in maps):
            return None
        free = np.logical_or.reduce([found.free for found in maps])
        return Map(maps[0].low, maps[0].cell, free, maps[0].names)


def _say_position(env: Any) -> SayPosition | None:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, SayPosition):
            return env
        env = env.env
    return None


def _after_step(info: dict[str, Any]) -> Array:
    """Positions [env, ...] of the states that a step reached, before any reset within it."""
    position = np.array(info["position"], np.float64)
    last = info.get("final_info", {}).get("position")
    if last is not None:
        ended = np.asarray(info["_final_info"], bool)
        position[ended] = np.asarray(last, np.float64)[ended]
    return position
