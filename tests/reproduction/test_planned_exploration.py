"""Exploration by the planner: legs to landmarks and beyond, and the transitions they leave."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from emi.batch import Transitions
from emi.envs.box_image import BoxImageVectorEnv
from emi.intrinsic.emi import EMI, EMIConfig
from emi.planning.landmarks import LandmarkGraph, paths_of
from emi.planning.planner import Planner
from emi.reproduction import planned_exploration
from emi.reproduction.planned_exploration import Legs, explore_by_planning
from tests.planning.test_planner import exact


def walks(seed: int = 0) -> Transitions:
    draw = np.random.default_rng(seed)
    action = draw.uniform(-1, 1, (300, 2)).astype(np.float32)
    path = np.cumsum(np.concatenate([np.zeros((1, 2), np.float32), action]), 0)
    return Transitions(path[:-1], action, path[1:])


def test_a_leg_reaches_its_landmark_and_goes_on_in_one_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planned_exploration, "BEYOND", 5)
    planner = Planner(exact(spaces.Box(-1, 1, (2,)), torch.eye(2)))
    graph = LandmarkGraph(planner, walks(), landmarks=30)
    legs = Legs(graph, 1, np.random.default_rng(1))
    position, visited, actions = np.zeros((1, 2), np.float32), [], []
    for _ in range(400):
        visited.append(position)
        actions.append(legs(position)[0])
        position = position + actions[-1]
    assert np.abs(actions).max() <= 1 + 1e-6
    # The legs beyond: the same action five times. Each begins within a step of a landmark.
    same = [np.ptp(actions[i : i + 5], axis=0).max() == 0 for i in range(396)]
    starts = [i for i in range(1, 396) if same[i] and not same[i - 1]]
    beyond = [i for i in starts if np.abs(actions[i]).max() == pytest.approx(1, abs=1e-6)]
    gaps = [float((graph.phi - torch.from_numpy(visited[i])).norm(dim=1).min()) for i in beyond]
    assert len(beyond) > 5
    assert np.mean(np.array(gaps) <= 2**0.5) > 0.8
    directions = np.array([actions[i] for i in beyond])
    assert np.ptp(directions, axis=0).min() > 1  # they differ


def test_a_landmark_that_cannot_be_reached_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_exploration, "LONGEST", 10)
    monkeypatch.setattr(planned_exploration, "BEYOND", 3)
    planner = Planner(exact(spaces.Box(-1, 1, (2,)), torch.eye(2)))
    graph = LandmarkGraph(planner, walks(), landmarks=30)
    legs = Legs(graph, 2, np.random.default_rng(0))
    far = np.full((2, 2), 500, np.float32)  # and it does not move
    goals = []
    for _ in range(26):
        legs(far)
        goals.append(legs._goal.clone())
    assert all(torch.equal(goal, goals[0]) for goal in goals[:13])
    assert not torch.equal(goals[13], goals[0])
    assert all(torch.equal(goal, goals[13]) for goal in goals[13:])


def test_transitions_are_whole_paths_of_the_environment() -> None:
    envs = BoxImageVectorEnv(4, max_episode_steps=20)
    method = EMI(
        envs.single_observation_space, envs.single_action_space, EMIConfig(kl_target="action")
    )
    draw = np.random.default_rng(0)
    envs.reset(seed=0)
    position = draw.uniform(10, 90, (60, 2))
    images = np.concatenate([envs.place(part).copy() for part in np.split(position, 15)])
    batch = Transitions(images[:-1], np.zeros((59, 2), np.float32), images[1:])
    graph = LandmarkGraph(Planner(method, use_error=False), batch, landmarks=10)
    found = explore_by_planning(envs, graph, 118, np.random.default_rng(1))
    assert len(found) == 120  # 30 steps of each environment
    order, path = paths_of(found)
    assert np.bincount(path).tolist() == [20, 10] * 4
    obs, next_obs = np.asarray(found.obs)[order], np.asarray(found.next_obs)[order]
    same = path[1:] == path[:-1]
    np.testing.assert_array_equal(obs[1:][same], next_obs[:-1][same])
    assert np.abs(found.action).max() <= 1
    again = explore_by_planning(envs, graph, 118, np.random.default_rng(1))
    np.testing.assert_array_equal(found.action, again.action)
