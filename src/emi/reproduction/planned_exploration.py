"""Exploration by the planner itself: go to places that are rare in the data, and beyond them.

A policy that learns from EMI's bonus goes where actions have no effect, since the linear model is
wrong there: along walls, and into corners. Much of the space between is hardly visited, and an
embedding is only known where there are data. Landmarks are spread evenly over the embedding of all
visited states. Paths between random landmarks are therefore spread evenly too, and a leg in a
constant random direction at the end of each path leads out of what was visited.
"""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from emi.agent.acting import BoxActions
from emi.agent.observations import make_keeper
from emi.agent.play import play
from emi.agent.rollout import rollout_of
from emi.batch import Array, Transitions
from emi.planning.landmarks import LandmarkGraph

LONGEST = 100  # steps towards a landmark: what is not reached then is given up
BEYOND = 20  # steps in a constant direction after that
ARRIVED = 1.0  # steps in the linear model


class Legs:
    """Actions of n environments: to a random landmark, on in a random direction, and again."""

    def __init__(self, graph: LandmarkGraph, n: int, rng: np.random.Generator) -> None:
        self.graph = graph
        self._rng = rng
        self._left = np.zeros(n, np.int64)  # steps of the leg
        self._goal = graph.phi[np.zeros(n, np.int64)]  # [n, d]
        self._direction = np.zeros((n, graph.planner.emi.actions.size), np.float32)

    @torch.no_grad()
    def __call__(self, obs: Array) -> Array:
        """Action vectors [n, size] for observations [n, *observation]."""
        graph, rng = self.graph, self._rng
        state = graph.encode(obs)
        new = self._left <= 0
        self._goal[torch.from_numpy(new)] = graph.phi[
            torch.from_numpy(rng.integers(len(graph.phi), size=int(new.sum())))
        ]
        # Directions are those of the corners and edges of the box: full steps.
        direction = rng.uniform(-1, 1, (int(new.sum()), self._direction.shape[1]))
        self._direction[new] = direction / np.abs(direction).max(1, keepdims=True)
        self._left[new] = LONGEST + BEYOND
        near = graph.array_steps((self._goal - state.phi).cpu().numpy()) <= ARRIVED
        self._left[near] = np.minimum(self._left[near], BEYOND)
        self._left -= 1
        actions = graph.act_from(state, self._goal)
        towards = graph.planner.emi.actions(torch.from_numpy(actions)).numpy()
        return np.where((self._left >= BEYOND)[:, None], towards, self._direction)


def explore_by_planning(
    envs: VectorEnv, graph: LandmarkGraph, steps: int, rng: np.random.Generator
) -> Transitions:
    """At least `steps` transitions from a reset, with continuous actions."""
    n, space = envs.num_envs, graph.planner.emi.actions.space
    if not isinstance(space, gymnasium.spaces.Box):
        raise TypeError(f"legs have a direction: the actions must be a Box, got {space}")
    length, actions = math.ceil(steps / n), BoxActions(space)
    obs, _ = envs.reset(seed=int(rng.integers(2**31)))
    keeper = make_keeper(envs.single_observation_space, (length + 1) * n)
    noise = np.zeros((length, n, actions.size), np.float32)
    trace = play(envs, Legs(graph, n, rng), actions, noise, obs, keeper)
    return rollout_of(keeper.pool(), trace).transitions(actions.to_env)
