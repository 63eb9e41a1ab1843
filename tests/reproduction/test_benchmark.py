"""The benchmark of exploration: scores, ranks, and the arms of its grid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emi.intrinsic.table import METHODS
from emi.reproduction import benchmark
from emi.reproduction.benchmark import COMPARED, EXPERIMENT, SEARCH_EXPERIMENT, TASKS, area, ranks

CAR = next(task for task in TASKS if task.title == "MountainCar")
LAKE = next(task for task in TASKS if task.title == "FrozenLake 12×12")


def run_of(returns: list[float]) -> Any:
    known = [value for value in returns if not np.isnan(value)]
    last = known[-1] if known else np.nan
    return SimpleNamespace(
        metrics={"return_mean": np.array(returns)}, final_return=lambda iterations: last
    )


def test_scores_lie_between_the_worst_and_the_best_return() -> None:
    scores = CAR.score(np.array([-250.0, -200.0, -155.0, -110.0, -90.0]))
    assert scores.tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([0.0, 1.0], 0.5),
        ([np.nan, 1.0, np.nan, 0.0], 0.5),  # 0, 1, 1, 0: no episode ended in two iterations
        ([np.nan, np.nan], 0.0),
    ],
)
def test_the_area_is_the_mean_score_over_the_training(
    returns: list[float], expected: float
) -> None:
    assert area(run_of(returns), LAKE) == expected


def test_mean_ranks_of_known_areas() -> None:
    """The first method is always best, the others swap: 1, 2.5, 2.5."""
    tasks = [
        [np.array([0.9, 0.8]), np.array([0.5, 0.5]), np.array([0.1, 0.1])],
        [np.array([0.9, 0.9]), np.array([0.1, 0.1]), np.array([0.5, 0.5])],
    ]
    mean, interval = benchmark.mean_ranks(tasks, replicates=50)
    assert mean.tolist() == [1.0, 2.5, 2.5]
    assert interval.tolist() == [[1.0, 2.5, 2.5], [1.0, 2.5, 2.5]]


def test_the_interval_of_a_rank_covers_what_the_seeds_leave_open() -> None:
    even = [np.array([0.0, 1.0]), np.array([0.5, 0.5])]
    mean, interval = benchmark.mean_ranks([even], replicates=200)
    assert mean.tolist() == [1.5, 1.5]
    assert interval.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_ranks_sum_up_to_the_same_with_ties() -> None:
    for areas in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.3, 0.3], [0.0] * 4):
        assert ranks(np.array(areas)).sum() == 10


def test_every_method_has_the_same_trainer_and_the_same_tuning_budget() -> None:
    assert len(EXPERIMENT.arms) == len(TASKS) * len(COMPARED)
    for task in TASKS:
        own = [arm for arm in EXPERIMENT.arms if arm.folder == task.folder]
        agents = {
            (str(c.policy), str(c.value), str(c.trpo), str(c.streams), c.num_envs, c.discount)
            for c in (arm.config for arm in own)
        }
        assert len(agents) == 1, task.title
        assert {arm.method for arm in own} == set(COMPARED)
    searched = [arm.method for arm in SEARCH_EXPERIMENT.arms]
    assert {searched.count(method) for method in COMPARED if method != "trpo"} == {6}
    assert set(COMPARED) < set(METHODS)
    reported = {seed for arm in EXPERIMENT.arms for seed in arm.seeds}
    assert reported.isdisjoint(benchmark.SEARCH_SEEDS)


def test_the_goal_of_an_open_lake_is_as_far_as_an_episode_is_long() -> None:
    import gymnasium

    env = gymnasium.make("FrozenLake-v1", **dict(LAKE.env_args))
    env.reset(seed=0)
    for step in range(22):  # 11 times down, 11 times right
        _, reward, terminated, _, _ = env.step(1 if step < 11 else 2)
    assert (reward, terminated) == (1, True)


def test_a_figure_is_drawn_of_what_there_is(tmp_path: Path) -> None:
    grid: Any = {
        LAKE.title: {"emi": [run_of([0.0, 1.0])] * 2, "rnd": [run_of([0.0, 0.0])]},
        CAR.title: {"emi": [run_of([-200.0, -100.0])]},
    }
    path = benchmark.draw_grid(grid, [LAKE, CAR], tmp_path / "benchmark", "")
    assert path.read_bytes()[:4] == b"\x89PNG"
