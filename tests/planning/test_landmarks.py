"""The landmark graph on mazes whose shortest paths are known."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from emi.batch import Transitions
from emi.errors import UserError
from emi.planning.landmarks import LandmarkGraph, joined, paths_of, shortest_paths, spread_out
from emi.planning.planner import Planner
from tests.planning.test_planner import exact

MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
MAZE = [  # a wall between two corridors, open on the right
    "#######",
    "#.....#",
    "#####.#",
    "#.....#",
    "#######",
]


def maze_step(position: np.ndarray, action: int) -> np.ndarray:
    x, y = (position + MOVES[action]).astype(int)
    return position if MAZE[y][x] == "#" else position + MOVES[action]


def random_walk(steps: int) -> Transitions:
    draw, rows = np.random.default_rng(0), []
    position = np.array([1, 1], np.float32)
    for _ in range(steps):
        action = int(draw.integers(4))
        after = maze_step(position, action)
        rows.append((position, action, after))
        position = after
    obs, action, next_obs = map(np.stack, zip(*rows, strict=True))
    return Transitions(obs, action, next_obs)


def test_the_graph_finds_the_shortest_path_of_a_maze() -> None:
    space, moves = spaces.Discrete(4), torch.from_numpy(MOVES)
    planner = Planner(exact(space, torch.eye(2), moves), horizon=1)
    graph = LandmarkGraph(planner, random_walk(2_000), landmarks=50, window=1, detour=1)
    assert len(graph.phi) == 11  # every cell of the maze
    goal = planner.embed(np.array([[1, 3]], np.float32))
    position, steps = np.array([1, 1], np.float32), 0
    while not np.array_equal(position, [1, 3]) and steps < 20:
        position = maze_step(position, int(graph.act(position[None], goal)[0]))
        steps += 1
    assert steps == 10  # the straight line is two steps, through the wall
    corner = planner.embed(np.array([[1, 1]], np.float32))
    path = graph.path(corner[0], goal[0]).tolist()
    assert path == [[1, 1], [5, 1], [5, 3], [1, 3]]  # its corners
    # Alone, the planner stays in front of the wall.
    alone = np.array([1, 1], np.float32)
    for _ in range(20):
        alone = maze_step(alone, int(planner.act(alone[None], goal)[0]))
    assert alone.tolist() == [1, 1]


def test_places_that_no_path_joins_can_be_reached() -> None:
    planner = Planner(exact(spaces.Discrete(4), torch.eye(2), torch.from_numpy(MOVES)))
    obs = np.array([[0, 0], [1, 0], [0, 3], [1, 3]], np.float32)
    right, ended = np.zeros(4, np.int64), np.array([False, True, False, True])
    batch = Transitions(obs, right, obs + MOVES[0], np.zeros(4, np.int64), ended)
    graph = LandmarkGraph(planner, batch, landmarks=4)
    start, goal = (planner.embed(np.array([p], np.float32)) for p in ([0, 0], [1, 3]))
    assert np.isfinite(graph.distance).all()
    # The line between the two paths is the only way, and costs 30 times its steps.
    assert graph.distance[graph.cell(start)[0], graph.cell(goal)[0]] > 30 * 2
    assert torch.equal(graph.path(start[0], goal[0])[-1], goal[0])


def test_a_batch_of_goals_equals_one_by_one() -> None:
    planner = Planner(exact(spaces.Discrete(4), torch.eye(2), torch.from_numpy(MOVES)))
    graph = LandmarkGraph(planner, random_walk(500), landmarks=50, window=2)
    obs = np.array([[1, 1], [5, 2], [3, 3]], np.float32)
    goals = planner.embed(np.array([[1, 3], [1, 1], [5, 1]], np.float32))
    alone = [graph.act(obs[i : i + 1], goals[i : i + 1])[0] for i in range(3)]
    assert graph.act(obs, goals).tolist() == alone


def test_shortest_paths() -> None:
    inf = np.inf
    cost = np.array([[inf, 1, 9, inf], [inf, inf, 2, 9], [inf, inf, inf, 3], [inf] * 4])
    expected = [[0, 1, 3, 6], [inf, 0, 2, 5], [inf, inf, 0, 3], [inf, inf, inf, 0]]
    assert shortest_paths(cost).tolist() == expected


def test_spread_out_points_are_far_from_each_other() -> None:
    phi = torch.tensor([[0.0], [0.1], [1.0], [0.9], [0.5]])
    assert spread_out(phi, 3).tolist() == [0, 2, 4]
    assert len(spread_out(torch.zeros(5, 2), 3)) == 1  # all are the same point


def test_paths_are_split_at_ends_and_by_environment() -> None:
    zeros = np.zeros((5, 1))
    ended = np.array([False, False, True, False, False])
    batch = Transitions(zeros, zeros, zeros, np.array([0, 1, 0, 1, 0]), ended)
    order, path = paths_of(batch)
    assert order.tolist() == [0, 2, 4, 1, 3]
    assert path.tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(UserError, match="in time order"):
        paths_of(Transitions(zeros, zeros, zeros, np.full(5, -1)))


def test_joined_cells_are_those_of_one_path() -> None:
    cell, path = np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1])
    after = np.array([1, 2, 3, 0])
    one = joined(cell, after, path, 4, window=1)
    assert np.argwhere(one & ~np.eye(4, dtype=bool)).tolist() == [[0, 1], [1, 2], [2, 3], [3, 0]]
    two = joined(cell, after, path, 4, window=2)
    assert (two[0, 2], two[2, 0], two[1, 3]) == (True, True, False)
