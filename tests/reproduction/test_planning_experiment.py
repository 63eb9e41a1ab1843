"""The planning experiments: arenas, baselines, files and drawings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from emi.batch import Transitions
from emi.envs.box_image import DOOR, KEEP_OFF
from emi.errors import UserError
from emi.intrinsic.emi import EMI, EMIConfig
from emi.reproduction import planning
from emi.reproduction.arenas import BoxArena, free_positions, play_to_goals, steps_in_box
from emi.reproduction.experiment import Budget, find
from emi.reproduction.planning_baselines import CEM, Cloning, RandomActions
from tests.planning.test_planner import exact


class TestShortestPaths:
    def test_without_a_wall_it_is_the_larger_difference(self) -> None:
        start, goal = np.array([[0.0, 0.0]]), np.array([[30.0, 70.0]])
        assert steps_in_box(start, goal, wall=False).tolist() == [70]

    def test_the_wall_makes_a_path_through_the_door(self) -> None:
        left, right = 50 - KEEP_OFF, 50 + KEEP_OFF
        start = np.array([[left, 60.0], [left, 20.0], [10.0, 90.0], [50.0, 20.0], [right, 60.0]])
        goal = np.array([[right, 60.0], [right, 20.0], [30.0, 10.0], [right, 40.0], [left, 60.0]])
        down, across = 60 - DOOR[1], 2 * KEEP_OFF
        expected = [2 * down + across, across, 80, KEEP_OFF + 40 - DOOR[1], 2 * down + across]
        found = steps_in_box(start, goal, wall=True)
        np.testing.assert_allclose(found, expected, atol=0.6)  # corners on a grid of 0.5

    def test_positions_are_free(self) -> None:
        points = free_positions(np.random.default_rng(0), 500, wall=True)
        assert len(points) == 500
        x, y = points.T
        assert not ((np.abs(x - 50) < KEEP_OFF) & ((y < DOOR[0]) | (y > DOOR[1]))).any()


class Compass:
    """An agent that reads the true positions of its arena."""

    def __init__(self, arena: BoxArena) -> None:
        self.arena = arena

    def embed(self, obs: np.ndarray) -> torch.Tensor:
        return torch.arange(len(obs))[:, None]

    def encode(self, obs: np.ndarray) -> None:
        return None

    def act_from(self, state: None, goal: torch.Tensor) -> np.ndarray:
        rows = goal[:, 0].numpy()
        return (self.arena.target - self.arena.position)[rows].clip(-1, 1).astype(np.float32)


def image_emi() -> EMI:
    box = spaces.Box(0, 255, (1, 52, 52), np.uint8)
    return EMI(box, spaces.Box(-1, 1, (2,), np.float32), EMIConfig())


def test_an_optimal_agent_takes_the_shortest_number_of_steps() -> None:
    arena = BoxArena(20, seed=0)
    found = play_to_goals(Compass(arena), arena, 120, image_emi(), shown=3)
    assert (found["steps"] >= 0).all()
    assert (found["steps"] <= arena.shortest).all()
    assert (found["steps"] >= arena.shortest - 2).all()  # within 2 units
    assert found["positions"].shape[::2] == (3, 2)
    end = found["positions"][:, -1]
    assert (np.linalg.norm(end - arena.target[:3], axis=1) <= 2).all()
    found |= {"shortest": arena.shortest, "seconds": np.zeros(2)}
    assert (planning.reached(found), planning.in_time(found)) == (1, 1)


def test_cem_goes_towards_the_goal() -> None:
    agent = CEM(exact(spaces.Box(-1, 1, (2,)), torch.eye(2)), seed=0)
    goals = torch.tensor([[30.0, -30.0], [0.0, 0.0]])
    found = agent.act_from(torch.zeros(2, 2), goals)
    assert found[0, 0] > 0.9
    assert found[0, 1] < -0.9
    assert np.abs(found).max() <= 1
    many = agent.act_from(torch.zeros(21, 2), goals[:1].repeat(21, 1))
    assert many.shape == (21, 2)
    assert (many[:, 0] > 0.9).all()  # also with several parts


def test_cloning_learns_the_direction_of_paths() -> None:
    draw = np.random.default_rng(0)
    moves = draw.choice([-1.0, 1.0], (200, 1)).repeat(10, 0).astype(np.float32)  # 200 paths of 10
    obs = np.concatenate([0.1 * m * np.arange(10)[:, None] for m in moves[::10]]).astype(np.float32)
    ended = np.arange(2_000) % 10 == 9
    batch = Transitions(obs, moves, obs + 0.1 * moves, np.zeros(2_000, int), ended)
    agent = Cloning(spaces.Box(-2, 2, (1,)), spaces.Box(-1, 1, (1,)), seed=0)
    assert agent.learn(batch, steps=300) < 0.1
    start, goals = np.zeros((2, 1), np.float32), np.array([[0.5], [-0.5]], np.float32)
    found = agent.act_from(agent.encode(start), agent.embed(goals))
    assert found[0, 0] > 0.8
    assert found[1, 0] < -0.8


def test_random_actions_are_in_the_box() -> None:
    space = spaces.Box(np.float32(2), np.float32(5), (2,))
    agent, obs = RandomActions(space, 0), np.zeros((50, 2))
    found = agent.act_from(agent.encode(obs), agent.embed(obs))
    assert all(map(space.contains, found))


class Ticking:
    """An agent that needs 3 s and 2 s per state to encode them, and 5 s and 1 s to act."""

    def __init__(self) -> None:
        self.now = 0.0

    def embed(self, obs: np.ndarray) -> torch.Tensor:
        return torch.zeros(len(obs), 1)

    def encode(self, obs: np.ndarray) -> torch.Tensor:
        self.now += 3 + 2 * len(obs)
        return torch.zeros(len(obs), 1)

    def act_from(self, phi: torch.Tensor, goal: torch.Tensor) -> np.ndarray:
        assert len(phi) == len(goal)
        self.now += 5 + len(phi)
        return np.zeros((len(phi), 2), np.float32)


def test_the_time_of_a_decision_is_that_of_one_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, arena = Ticking(), BoxArena(4, seed=0)
    monkeypatch.setattr(planning.time, "perf_counter", lambda: agent.now)
    alone = planning.decision_seconds(agent, arena, 1, 7)
    together = planning.decision_seconds(agent, arena, 4, 2)
    assert alone.tolist() == [11, 5]
    assert together.tolist() == [20 / 4, 11 / 4]
    found = {"seconds": alone, "seconds_together": together}
    assert planning.planning_seconds(found, "seconds") == 6
    assert planning.planning_seconds(found, "seconds_together") == 9 / 4


def test_the_table_compares_times_with_those_of_cem() -> None:
    def arrays(decision: float, together: float) -> dict[str, np.ndarray]:
        return {
            "steps": np.array([3, -1]),
            "shortest": np.array([3.0, 3.0]),
            "seconds": np.array([decision + 1e-3, 1e-3]),
            "seconds_together": np.array([together + 1e-3, 1e-3]),
        }

    cells = {("straight", 0): arrays(2e-5, 5e-7), ("cem", 0): arrays(4e-3, 3e-3)}
    lines = planning._table(cells).splitlines()
    straight = [entry.strip() for entry in lines[2].split("|")[-6:-1]]
    assert straight == ["1.02", "20", "200", "0.5", "6,000"]
    del cells["straight", 0]["seconds_together"]  # of an earlier version
    assert planning._table(cells).splitlines()[2].split("|")[-3:-1] == [" – ", " – "]


TINY = replace(planning.BOX, pairs=2, limit=3, settings={"steps_per_iteration": 1_000}, passes=1)


def test_files_are_made_read_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "KEPT", 300)
    monkeypatch.setattr(planning, "SHOWN", 2)
    monkeypatch.setattr(planning, "TIMED", 2)
    (tmp_path / TINY.folder).mkdir()
    cells = [("straight", 0), ("graph", 0), ("random", 0)]
    planning.make(tmp_path, cells, 1_000, Budget(), TINY)
    assert planning.sizes(tmp_path, TINY) == dict.fromkeys(cells, 1_000)
    copied = planning.copy(tmp_path, tmp_path / "other", cells[:1], TINY)
    assert [path.name for path in copied] == ["straight-seed0.safetensors"]
    found = find(planning.experiment(TINY), tmp_path)
    written = planning.draw(found, tmp_path / "figure", TINY)
    assert [path.suffix for path in written] == [".png", ".md", ".csv"]
    text = written[1].read_text()
    assert "SCALED: 1,000 of 300,000 steps" in text
    assert "| EMI, landmark graph | 1 |" in text
    copied[0].write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"straight-seed0.safetensors is damaged"):
        planning.read(tmp_path / "other", TINY)
