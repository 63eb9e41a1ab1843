"""Ours: a benchmark of exploration: sparse tasks, every method, the same trainer and tuning budget.

A task is scored from 0 to 1 by its return. The area under the curve of a run is the mean of its
score over the training, so that it rewards finding and keeping. Methods are ranked in every task by
their mean area.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emi.intrinsic.table import METHODS, order_of, title_of
from emi.report.first_reward import median_first_reward
from emi.report.load import Run
from emi.report.statistics import TAILS_95, Array
from emi.report.style import (
    GREY,
    INK,
    WIDTH,
    in_our_style,
    look_of,
    new_figure,
    save_figure,
    set_heading,
)
from emi.report.summary import LAST_ITERATIONS, Estimate, Rate
from emi.report.tables import estimate, rate_text, write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Arm, Experiment, Found
from emi.reproduction.tasks import SEEDS

REPLICATES = 2_000  # of the bootstrap of ranks


@dataclass(frozen=True)
class BenchmarkTask:
    """One sparse task; a return of `low` scores 0, a return of `high` scores 1."""

    title: str
    folder: str
    env: str
    steps: int
    low: float
    high: float
    solved: float  # a larger score counts as solved
    settings: tuple[str, ...] = ()  # of the trainer, the same for every method
    env_args: tuple[tuple[str, Any], ...] = ()

    def score(self, returns: Array) -> Array:
        return np.clip((returns - self.low) / (self.high - self.low), 0.0, 1.0)


def open_lake(side: int) -> tuple[tuple[str, Any], ...]:
    """A frozen lake without holes whose goal is exactly as far as an episode is long."""
    rows = ["S" + "F" * (side - 1), *["F" * side] * (side - 2), "F" * (side - 1) + "G"]
    limit = 2 * (side - 1)
    return (("desc", tuple(rows)), ("is_slippery", False), ("max_episode_steps", limit))


_MINIGRID = ("num_envs=4", "steps_per_iteration=2560", "policy.hidden=64,64", "value.hidden=64,64")
TASKS = (
    BenchmarkTask(
        "SparseHalfCheetah", "benchmark_cheetah", "SparseHalfCheetah", 1_000_000, 0, 500, 0.1
    ),
    BenchmarkTask(
        "DoorKey 8×8", "benchmark_door_key", "gym:MiniGrid-DoorKey-8x8-v0",
        150_000, 0, 1, 0.9, _MINIGRID,
    ),
    BenchmarkTask(
        "MultiRoom N4", "benchmark_multi_room", "gym:MiniGrid-MultiRoom-N4-S5-v1",
        300_000, 0, 1, 0.6, _MINIGRID,
    ),
    BenchmarkTask(
        "FrozenLake 8×8", "benchmark_lake_8", "gym:FrozenLake-v1", 194_000, 0, 1, 0.9,
        ("steps_per_iteration=2100", "num_envs=10"), open_lake(8),
    ),
    BenchmarkTask(
        "FrozenLake 12×12", "benchmark_lake_12", "gym:FrozenLake-v1", 786_000, 0, 1, 0.9,
        ("steps_per_iteration=2200", "num_envs=10"), open_lake(12),
    ),
    BenchmarkTask(
        "MountainCar", "benchmark_mountain_car", "gym:MountainCar-v0", 300_000, -200, -110, 0.5
    ),
    BenchmarkTask(
        "PointMaze U", "benchmark_point_maze", "gym:PointMaze_UMaze-v3", 300_000, 0, 1, 0.9
    ),
    BenchmarkTask(
        "CartPoleSwingUp", "benchmark_swing_up", "CartPoleSwingUp", 500_000, 0, 500, 0.1
    ),
)  # fmt: skip
# The same trainer for every method and task: two streams of reward, as in RND, and bonuses in units
# of their own scale.
COMMON = (
    "normalize_bonus=true",
    "gae_lambda=0.95",
    "discount=0.99",
    "streams.separate=true",
    "streams.discount=0.99",
    "streams.gae_lambda=0.95",
    "value.kind=network",
)
SEARCHED = (0.01, 0.1, 1.0)
SEARCH_SEEDS = (100, 101)  # none of the seeds that are reported
SEARCH_TASKS = ("FrozenLake 12×12", "DoorKey 8×8")
# Chosen by the search, see `search`; 0.1 where it has not been run.
ETA: Mapping[str, float] = {}
DEFAULT_ETA = 0.1
WITHOUT_A_BONUS = "trpo"
# EMI-D and AE-SimHash are variants; the benchmark has one of each kind.
COMPARED = tuple(name for name in METHODS if name not in ("emi-d", "ae-simhash"))


def _settings(task: BenchmarkTask, method: str, eta: float) -> tuple[str, ...]:
    own = COMMON if method != WITHOUT_A_BONUS else COMMON[1:]
    bonus = (f"eta={eta:g}",) if method != WITHOUT_A_BONUS else ()
    return (*own, "normalize_observations=true", *task.settings, *bonus)


def _arm(task: BenchmarkTask, method: str, eta: float, folder: str, seeds: Sequence[int]) -> Arm:
    settings = _settings(task, method, eta)
    return Arm(folder, task.env, method, tuple(seeds), task.steps, settings, env_args=task.env_args)


def _arms() -> Iterator[Arm]:
    for task in TASKS:
        for method in COMPARED:
            yield _arm(task, method, ETA.get(method, DEFAULT_ETA), task.folder, SEEDS)


def _search_arms() -> Iterator[Arm]:
    for task in TASKS:
        if task.title in SEARCH_TASKS:
            for eta in SEARCHED:
                for method in COMPARED:
                    if method != WITHOUT_A_BONUS:
                        yield _arm(task, method, eta, f"{task.folder}_eta_{eta:g}", SEARCH_SEEDS)


def area(run: Run, task: BenchmarkTask) -> float:
    """Mean score over the training; iterations in which no episode ended repeat the last score."""
    scores = task.score(run.metrics["return_mean"])
    known = np.where(np.isnan(scores), 0, np.arange(len(scores)))
    latest = scores[np.maximum.accumulate(known)]
    return float(np.nan_to_num(latest).mean())


def final_score(run: Run, task: BenchmarkTask) -> float:
    """Score of the mean return of the last ten iterations."""
    return float(np.nan_to_num(task.score(np.array(run.final_return(LAST_ITERATIONS)))))


def ranks(areas: Array) -> Array:
    """Ranks of methods by their areas [methods], 1 for the largest; equal ones share their mean.

    >>> ranks(np.array([0.2, 0.9, 0.2])).tolist()
    [2.5, 1.0, 2.5]
    """
    above = (areas[None, :] > areas[:, None]).sum(1)
    equal = (areas[None, :] == areas[:, None]).sum(1)
    rank: Array = above + (equal + 1) / 2
    return rank


def mean_ranks(
    tasks: Sequence[Sequence[Array]], replicates: int = REPLICATES, seed: int = 0
) -> tuple[Array, Array]:
    """Mean rank over tasks [methods], and its 95 % interval [2, methods].

    `tasks` holds, for each task, the areas of the runs of each method. Runs are resampled within
    their task and method.
    """
    rng = np.random.default_rng(seed)

    def mean_rank(draw: bool) -> Array:
        rows = []
        for methods in tasks:
            picked = (
                values[rng.integers(len(values), size=len(values))] if draw else values
                for values in methods
            )
            rows.append(ranks(np.array([values.mean() for values in picked])))
        mean: Array = np.mean(rows, axis=0)
        return mean

    drawn = np.array([mean_rank(True) for _ in range(replicates)])
    return mean_rank(False), np.percentile(drawn, TAILS_95, axis=0)


Grid = dict[str, dict[str, list[Run]]]  # runs by the title of the task and the method


def grid_of(found: Found) -> Grid:
    by_folder = {task.folder: task.title for task in TASKS}
    grid: Grid = {}
    for arm, runs in found.runs.items():
        grid.setdefault(by_folder[arm.folder], {})[arm.method] = runs
    return grid


def task_table(task: BenchmarkTask, methods: Mapping[str, Sequence[Run]]) -> str:
    """Markdown: one line per method, the largest area first."""
    lines = []
    order = sorted(methods, key=lambda m: -np.mean([area(run, task) for run in methods[m]]))
    for method in order:
        runs = methods[method]
        areas = np.array([area(run, task) for run in runs])
        finals = np.array([final_score(run, task) for run in runs])
        first = [run.first_reward for run in runs if run.first_reward is not None]
        median = median_first_reward(first) if first and task.low == 0 else None
        known = median is not None and np.isfinite(median)
        solved = Rate.of(int((finals > task.solved).sum()), len(runs))
        lines.append(
            {
                "method": title_of(method),
                "seeds": str(len(runs)),
                "area [95 % CI]": estimate(Estimate.of_mean(areas), len(runs), 2),
                "final score [95 % CI]": estimate(Estimate.of_mean(finals), len(runs), 2),
                f"solved (> {task.solved:g}) [95 % CI]": rate_text(solved),
                "first reward, median steps": f"{(median or 0) / 1e3:.0f}k" if known else "–",
            }
        )
    return f"### {task.title}, {task.steps:,} steps\n\n{table_of(lines)}"


def draw(found: Found, stem: Path) -> list[Path]:
    grid = grid_of(found)
    tasks = [task for task in TASKS if task.title in grid]
    rows: list[dict[str, object]] = [
        {
            "task": task.title,
            "method": method,
            "seed": run.seed,
            "area": area(run, task),
            "final_score": final_score(run, task),
        }
        for task in tasks
        for method, runs in grid[task.title].items()
        for run in runs
    ]
    page = "\n\n".join(task_table(task, grid[task.title]) for task in tasks)
    figure = draw_grid(grid, tasks, stem, found.scaled())
    return [figure, write_markdown(found, stem, page), write_csv(stem, rows)]


@in_our_style
def draw_grid(grid: Grid, tasks: Sequence[BenchmarkTask], stem: Path, title: str) -> Path:
    """Final scores of every task and method on the left, mean ranks on the right.

    Methods that lack a task are shown without a rank.
    """
    everywhere = [m for m in COMPARED if all(m in grid[task.title] for task in tasks)]
    known = sorted({m for methods in grid.values() for m in methods}, key=order_of)
    areas = [
        [np.array([area(run, task) for run in grid[task.title][m]]) for m in everywhere]
        for task in tasks
    ]
    mean, interval = mean_ranks(areas) if everywhere else (np.empty(0), np.empty((2, 0)))
    by_rank = [everywhere[k] for k in np.argsort(mean, kind="stable")]
    shown = by_rank + [method for method in known if method not in by_rank]
    scores = np.full((len(shown), len(tasks)), np.nan)
    for column, task in enumerate(tasks):
        for row, method in enumerate(shown):
            if runs := grid[task.title].get(method):
                scores[row, column] = np.mean([final_score(run, task) for run in runs])
    figure = new_figure(WIDTH, 0.24 * len(shown) + 1.5, title)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
    left.imshow(scores, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    for (row, column), score in np.ndenumerate(scores):
        if np.isfinite(score):
            colour = "white" if score < 0.6 else INK
            left.text(column, row, f"{score:.2f}", ha="center", va="center", color=colour, size=7)
    left.set_yticks(range(len(shown)), [title_of(method) for method in shown])
    left.set_xticks(range(len(tasks)), [task.title for task in tasks], rotation=35, ha="right")
    left.grid(visible=False)
    set_heading(left, "Final score", "mean over seeds; 1 is best")
    places = np.arange(len(by_rank))
    order = [everywhere.index(method) for method in by_rank]
    right.hlines(places, interval[0][order], interval[1][order], color=GREY, linewidth=1)
    colours = [look_of(method).colour for method in by_rank]
    right.scatter(mean[order], places, color=colours, s=18, zorder=3)
    right.set_xlabel(f"mean rank of {len(everywhere)} (95 % interval)")
    set_heading(right, "Rank by area under the curve")
    return save_figure(figure, stem)


def draw_search(found: Found, stem: Path) -> list[Path]:
    """Mean area over the search tasks for each method and coefficient, the largest in bold."""
    tasks = {task.folder: task for task in TASKS}
    areas: dict[str, dict[float, list[float]]] = {}
    for arm, runs in found.runs.items():
        folder, _, coefficient = arm.folder.rpartition("_eta_")
        of_eta = areas.setdefault(arm.method, {}).setdefault(float(coefficient), [])
        of_eta += [area(run, tasks[folder]) for run in runs]
    lines: list[dict[str, str]] = []
    rows: list[dict[str, object]] = []
    for method in sorted(areas, key=order_of):
        means = {eta: float(np.mean(values)) for eta, values in areas[method].items()}
        best = max(means, key=lambda eta: (round(means[eta], 3), -eta))
        line = {"method": title_of(method)}
        for eta in SEARCHED:
            cell = f"{means[eta]:.3f} ({len(areas[method][eta])})" if eta in means else "–"
            line[f"η = {eta:g}"] = f"**{cell}**" if eta == best else cell
            if eta in means:
                rows.append({"method": method, "eta": eta, "area": means[eta]})
        lines.append(line)
    note = (
        f"Mean area under the curve on {' and '.join(SEARCH_TASKS)}, seeds "
        f"{', '.join(map(str, SEARCH_SEEDS))}, and the number of runs. The chosen coefficient "
        "(bold) has the largest mean, the smaller of two equal ones."
    )
    return [write_markdown(found, stem, f"{note}\n\n{table_of(lines)}"), write_csv(stem, rows)]


EXPERIMENT = Experiment(
    name="benchmark",
    question="Which exploration methods find and keep the reward of eight sparse tasks, with the "
    "same trainer and the same tuning budget?",
    paper="compares seven methods on eight other tasks.",
    draw=draw,
    arms=tuple(_arms()),
)
SEARCH_EXPERIMENT = Experiment(
    name="benchmark_search",
    question="Which coefficient η does each method need in the benchmark of exploration?",
    paper="has no such benchmark.",
    draw=draw_search,
    arms=tuple(_search_arms()),
)
