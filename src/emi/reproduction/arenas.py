"""Starts and goals in environments whose positions are known, to measure planning."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array, BoolArray, Columns, FloatArray
from emi.envs import make_vec
from emi.envs.box_image import BOX, DOOR, KEEP_OFF, BoxImageVectorEnv
from emi.intrinsic.emi import EMI

NEAR = 2.0  # units of the box: a goal is reached at this distance
MAZE = "gym:PointMaze_UMaze-v3"


class Agent(Protocol):
    """A planner or a baseline."""

    def embed(self, obs: Columns) -> Tensor:
        """What `act_from` needs of goals, [n, *observation] to [n, …]."""
        ...

    def encode(self, obs: Columns) -> Any:
        """What `act_from` needs of the current observations [n, *observation]."""
        ...

    def act_from(self, state: Any, goal: Tensor) -> Array:
        """The next actions [n, *action]."""
        ...


class Arena(Protocol):
    """n environments with a start and a goal each."""

    obs: Array  # [n, *observation], current
    goal: Array  # [n, *observation]
    target: FloatArray  # [n, 2], the position of the goal
    shortest: FloatArray  # [n], the least number of steps; 0 if it is not known

    @property
    def position(self) -> FloatArray:
        """[n, 2]"""
        ...

    def step(self, actions: Array) -> BoolArray:
        """Take actions [n, *action]; returns whether each goal is reached now."""
        ...


def free_positions(rng: np.random.Generator, n: int, *, wall: bool) -> FloatArray:
    """Uniform positions [n, 2] of the box, none in the wall."""
    points = rng.uniform(0, BOX, (4 * n, 2))
    x, y = points.T
    free = (np.abs(x - BOX / 2) >= KEEP_OFF) | ((y >= DOOR[0]) & (y <= DOOR[1]))
    return points[free][:n] if wall else points[:n]


def steps_in_box(start: FloatArray, goal: FloatArray, *, wall: bool) -> FloatArray:
    """The least number of steps between positions [n, 2], before rounding up; [n].

    An action adds at most 1 to each coordinate, so that the distance is the larger difference.
    Behind the wall, the path has a corner on each side of the door.
    """
    straight = np.abs(goal - start).max(1)
    if not wall:
        return straight
    y = np.linspace(*DOOR, 25)
    left, right = BOX / 2 - KEEP_OFF, BOX / 2 + KEEP_OFF

    def through(a: FloatArray, b: FloatArray) -> FloatArray:
        """From a on the left of the door's far end, or in it, to b; [n]."""
        first = np.maximum(np.maximum(left - a[:, :1], 0), np.abs(a[:, 1:] - y))  # [n, 25]
        last = np.maximum(np.maximum(b[:, :1] - right, 0), np.abs(b[:, 1:] - y))
        width = np.minimum(b[:, 0], right) - np.maximum(a[:, 0], left)
        across = np.maximum(np.maximum(width, 0)[:, None, None], np.abs(y[:, None] - y))
        return (first[:, :, None] + across + last[:, None]).min((1, 2))

    zone = np.stack([np.digitize(p[:, 0], [left, right]) for p in (start, goal)])
    forward = np.where(zone[0] <= zone[1], through(start, goal), through(goal, start))
    return np.where(zone[0] == zone[1], straight, np.maximum(forward, straight))


class BoxArena:
    """BoxImage with uniform starts and goals."""

    def __init__(self, pairs: int, seed: int, *, wall: bool = False) -> None:
        rng = np.random.default_rng(seed)
        start, self.target = (free_positions(rng, pairs, wall=wall) for _ in range(2))
        self._envs = BoxImageVectorEnv(pairs, max_episode_steps=None, wall=wall)
        self._envs.reset(seed=seed)
        self.goal = self._envs.place(self.target)
        self.obs = self._envs.place(start)
        self.shortest = np.ceil(steps_in_box(start, self.target, wall=wall))

    @property
    def position(self) -> FloatArray:
        return self._envs.position

    def step(self, actions: Array) -> BoolArray:
        self.obs = self._envs.step(actions)[0]
        return np.linalg.norm(self.position - self.target, axis=1) <= NEAR


class MazeArena:
    """PointMaze with the starts and goals of its resets; the goal is a position at rest."""

    def __init__(self, pairs: int, seed: int) -> None:
        self._envs = make_vec(MAZE, pairs)
        flat, _ = self._envs.reset(seed=seed)  # achieved goal, desired goal, observation
        self.target, self.obs = flat[:, 2:4].copy(), flat[:, 4:]
        self.goal = np.concatenate([self.target, np.zeros_like(self.target)], 1)
        self.shortest = np.zeros(pairs)

    @property
    def position(self) -> FloatArray:
        return self.obs[:, :2].astype(np.float64)

    def step(self, actions: Array) -> BoolArray:
        flat, _, reached, truncated, _ = self._envs.step(actions)
        # An environment that ends starts anew: its last observation before that is kept.
        self.obs = np.where((reached | truncated)[:, None], self.obs, flat[:, 4:])
        return np.asarray(reached)


def play_to_goals(agent: Agent, arena: Arena, limit: int, emi: EMI, shown: int) -> dict[str, Array]:
    """Let an agent go to all goals; an environment stops when its goal is reached.

    Returns `steps` [n], −1 for goals not reached in `limit` steps, and for the first `shown`
    environments the paths of positions and of EMI's φ, `positions` and `phi` [shown, limit + 1, …].
    """
    goal = agent.embed(arena.goal)
    steps = np.full(len(arena.target), -1)
    positions, phi = [arena.position[:shown]], [emi.embed_state(arena.obs[:shown]).numpy()]
    actions = np.zeros((len(steps), emi.actions.size), np.float32)
    for step in range(1, limit + 1):
        active = np.flatnonzero(steps < 0)
        if len(active) == 0:
            break
        actions[:] = 0
        obs = arena.obs[active]
        actions[active] = agent.act_from(agent.encode(obs), goal[torch.from_numpy(active)])
        reached = arena.step(actions)
        # What happens after the goal does not count: some environments start anew.
        where = np.where((steps < 0)[:shown, None], arena.position[:shown], positions[-1])
        own = np.where(
            (steps < 0)[:shown, None], emi.embed_state(arena.obs[:shown]).numpy(), phi[-1]
        )
        positions.append(where)
        phi.append(own)
        steps[active] = np.where(reached[active], step, -1)
    return {
        "steps": steps,
        "positions": np.stack(positions, 1).astype(np.float32),
        "phi": np.stack(phi, 1).astype(np.float32),
    }
