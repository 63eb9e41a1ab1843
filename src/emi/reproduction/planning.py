"""Ours, the paper's future work: plans in the embedding, and the paths they give.

EMI explores without a reward, and for the last 30 % of the steps by planning. The embedding is
then trained on a part of what was visited. Planners and baselines use the same data and go to the
same goals. "Straight" is the first action of the shortest plan in the linear model, "greedy" its
one-step version, "graph" goes over landmarks.

BoxImage: 200 uniform pairs of start and goal. BoxImageWall: the same, outside the wall. PointMaze:
100 resets of its own. A goal of the boxes is reached within 2 units, one of the maze within the
maze's own 0.45.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from safetensors import SafetensorError
from safetensors.numpy import load, save

from emi.batch import Array, Transitions
from emi.durable_file import write_durably
from emi.envs.box_image import BOX as BOX_SIDE
from emi.envs.box_image import DOOR, KEEP_OFF
from emi.errors import UserError
from emi.intrinsic.emi import EMI
from emi.intrinsic.icm import ICM
from emi.planning.fit import fit
from emi.planning.landmarks import LandmarkGraph
from emi.planning.planner import Planner
from emi.report.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    VERMILION,
    WIDTH,
    in_our_style,
    new_figure,
    save_figure,
    set_heading,
)
from emi.report.summary import Estimate
from emi.report.tables import estimate, write_csv
from emi.reproduction.arenas import MAZE, Agent, Arena, BoxArena, MazeArena, play_to_goals
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found
from emi.reproduction.planned_exploration import explore_by_planning
from emi.reproduction.planning_baselines import CEM, Cloning, ForwardICM, RandomActions
from emi.training.exploration import explore, one_batch
from emi.training.presets import resolve
from emi.training.trainer import Trainer
from emi.untrusted_file import read_file

TITLES = {
    "straight": "EMI, straight line",
    "greedy": "EMI, greedy",
    "graph": "EMI, landmark graph",
    "cem": "EMI, CEM",
    "icm": "ICM, greedy",
    "bc": "behaviour cloning",
    "random": "random actions",
}
BASELINES = ("cem", "icm", "bc", "random")
SEEDS = range(5)
KEPT = 20_000  # transitions of the policy's exploration that models are trained on, as whole paths
PLANNED, ROUNDS = 0.3, 3  # share of the exploration that is planned, and in how many parts
SLOWEST = 1.2  # of the shortest number of steps: a path that takes longer is not a good one
SHOWN = 12  # pairs whose paths are stored
TIMED = 200  # decisions of one environment
TIMED_TOGETHER = 5  # decisions of all environments at once
FEWEST_STEPS = 20_000  # of a scaled exploration
MOST_BYTES = 4_000_000  # of a file that is read


@dataclass(frozen=True)
class PlanningTask:
    """An environment, the exploration and the model for it, and where goals are."""

    folder: str
    env: str
    steps: int  # of the exploration
    arena: Callable[[int, int], Arena]  # of so many pairs and a seed
    pairs: int
    limit: int  # steps after which a goal counts as not reached
    question: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the run
    passes: int = 2  # over the data so far, of `epochs` each, whenever EMI is trained on them
    graph: Mapping[str, Any] = field(default_factory=dict)  # settings of LandmarkGraph
    walls: tuple[tuple[float, float, float, float], ...] = ()  # x, y, width, height of no positions
    baseline_seeds: int = 5  # the first seeds, which have baselines too
    use_error: bool = False  # on images λ_error = 100 makes S a fraction of a percent of ψ

    @property
    def files(self) -> dict[Cell, str]:
        # Seed by seed, so that an interrupted experiment compares all planners.
        cells = [
            (variant, seed)
            for seed in SEEDS
            for variant in TITLES
            if variant not in BASELINES or seed < self.baseline_seeds
        ]
        return {(v, s): f"{self.folder}/{v}-seed{s}.safetensors" for v, s in cells}


BOX = PlanningTask(
    "planning_box",
    "BoxImage",
    300_000,
    BoxArena,
    200,
    150,
    "Is the straight line in φ the shortest path if nothing is in the way (BoxImage)?",
    baseline_seeds=2,  # on images they take more time than the exploration
)
WALL = PlanningTask(
    "planning_wall",
    "BoxImageWall",
    300_000,
    functools.partial(BoxArena, wall=True),
    200,
    300,
    "Do landmarks lead around a wall that the straight line in φ runs into (BoxImageWall)?",
    walls=(
        (BOX_SIDE / 2 - KEEP_OFF, 0, 2 * KEEP_OFF, DOOR[0]),
        (BOX_SIDE / 2 - KEEP_OFF, DOOR[1], 2 * KEEP_OFF, BOX_SIDE - DOOR[1]),
    ),
    baseline_seeds=2,
)
POINT_MAZE = PlanningTask(
    "planning_maze",
    MAZE,
    200_000,
    MazeArena,
    100,
    300,
    "Does planning in φ reach goals in PointMaze, whose actions are forces?",
    {
        "observation": "observation",
        "intrinsic.embedding_dim": 8,
        "intrinsic.lambda_error": 0.1,
        "intrinsic.lambda_info": 0.1,
        "intrinsic.state_hidden": (128, 128),
    },
    walls=((-1.5, -0.5, 2.0, 1.0),),  # two cells of the U
    use_error=True,
)


def explored(task: PlanningTask, seed: int, steps: int) -> tuple[EMI, Transitions]:
    """EMI after a reward-free exploration of so many steps, trained on a part of what it visited.

    The policy is trained on the bonus first. Then the planner explores, and all that it visits is
    kept. It improves with its own data: each part begins with training on all before it.
    """
    planned = round(PLANNED * steps)
    settings = {"seed": seed, "steps": steps - planned, "threads": 1, "reward": "none"}
    config = resolve(task.env, "emi", settings | dict(task.settings))
    rng = np.random.default_rng(seed)
    with contextlib.closing(Trainer(config)) as trainer:
        data = explore(trainer, config.iterations, KEPT)
        emi = trainer.intrinsic
        assert isinstance(emi, EMI)
        for _ in range(ROUNDS):
            fit(emi, data, task.passes, rng)
            graph = LandmarkGraph(Planner(emi, use_error=task.use_error), data, **task.graph)
            new = explore_by_planning(trainer.envs, graph, planned // ROUNDS, rng)
            data = one_batch([data, new])
    fit(emi, data, task.passes, rng)
    return emi, data


def agents(
    task: PlanningTask, emi: EMI, data: Transitions, seed: int
) -> dict[str, Callable[[], Agent]]:
    """How each planner and baseline is made; EMI is trained already."""
    planner = Planner(emi, use_error=task.use_error)
    envs = emi.reading.space, emi.actions.space

    def icm() -> Agent:
        method = ICM(*envs, seed=seed)
        for _ in range(task.passes):
            method.learn(data)
        return ForwardICM(method)

    def cloning() -> Agent:
        method = Cloning(*envs, seed)
        method.learn(data)
        return method

    return {
        "straight": lambda: planner,
        "greedy": lambda: Planner(emi, "greedy", use_error=task.use_error),
        "graph": lambda: LandmarkGraph(planner, data, **task.graph),
        "cem": lambda: CEM(emi, seed),
        "icm": icm,
        "bc": cloning,
        "random": lambda: RandomActions(envs[1], seed),
    }


def decision_seconds(agent: Agent, arena: Arena, rows: int, repeats: int) -> Array:
    """The time of a decision for `rows` environments at once, and that of their embedding alone.

    Medians, divided by the number of environments; [2].
    """
    goals, seconds, n = agent.embed(arena.goal), [], len(arena.obs)
    for first in range(repeats):
        which = np.arange(first, first + min(rows, n)) % n
        obs, goal = arena.obs[which], goals[torch.from_numpy(which)]
        start = time.perf_counter()
        state = agent.encode(obs)
        middle = time.perf_counter()
        agent.act_from(state, goal)
        seconds.append((time.perf_counter() - start, middle - start))
    return np.median(seconds, axis=0) / len(which)


def make(
    root: Path, cells: Sequence[Cell], steps: int, budget: Budget, task: PlanningTask = BOX
) -> None:
    """Explore, train and measure each (variant, seed) of `cells`, on one thread."""
    torch.set_num_threads(1)
    for seed in dict.fromkeys(seed for _, seed in cells):
        emi, data = explored(task, seed, steps)
        makers = agents(task, emi, data, seed)
        for variant in (name for name in TITLES if (name, seed) in cells):
            agent, arena = makers[variant](), task.arena(task.pairs, seed)
            seconds = decision_seconds(agent, arena, 1, TIMED)
            together = decision_seconds(agent, arena, task.pairs, TIMED_TOGETHER)
            found = play_to_goals(agent, arena, task.limit, emi, SHOWN)
            found |= {
                "shortest": arena.shortest,
                "targets": arena.target[:SHOWN].astype(np.float32),
                "goals": emi.embed_state(arena.goal[:SHOWN]).numpy(),
                "seconds": seconds,
                "seconds_together": together,
                "samples": np.array([steps]),
            }
            write_durably(root / task.files[variant, seed], save(found))
            print(f"seed {seed}, {TITLES[variant]}: {_describe(found)}", flush=True)


def reached(found: Mapping[str, Array]) -> float:
    """The share of goals that were reached."""
    return float((found["steps"] >= 0).mean())


def in_time(found: Mapping[str, Array]) -> float | None:
    """The share of goals reached within 1.2 times the least number of steps, if that is known."""
    if not found["shortest"].any():
        return None
    steps, shortest = found["steps"], found["shortest"]
    return float(((steps >= 0) & (steps <= SLOWEST * shortest)).mean())


def _describe(found: Mapping[str, Array]) -> str:
    timely = in_time(found)
    text = "" if timely is None else f", {timely:.1%} within {SLOWEST} times the shortest"
    return f"{reached(found):.1%} reached{text}, {1e3 * found['seconds'][0]:.2f} ms per decision"


def read(root: Path, task: PlanningTask) -> dict[Cell, dict[str, Array]]:
    """The arrays of all files below `root`."""
    found = {}
    for cell, path in ((cell, root / name) for cell, name in task.files.items()):
        if path.exists():
            try:
                found[cell] = load(read_file(path, MOST_BYTES))
                _check(found[cell])
            except (SafetensorError, OSError, KeyError, ValueError) as error:
                raise UserError(f"{path} is damaged ({error}): run {task.folder} again") from None
    return found


def _check(arrays: dict[str, Array]) -> None:
    """KeyError or ValueError unless `arrays` are those that `make` writes."""
    ranks = {"steps": 1, "shortest": 1, "positions": 3, "phi": 3, "targets": 2, "goals": 2}
    for name, rank in (ranks | {"seconds": 1, "samples": 1}).items():
        array = arrays[name]
        if array.ndim != rank or not array.size or array.dtype.kind not in "fi":
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        if not (np.abs(array) <= 1e15).all():
            raise ValueError(f"{name} is not finite")
    if len(arrays["steps"]) != len(arrays["shortest"]) or len(arrays["seconds"]) != 2:
        raise ValueError("steps, shortest or seconds have a wrong length")
    # Files of earlier versions do not have it.
    together = arrays.get("seconds_together", arrays["seconds"])
    if together.shape != (2,) or not np.isfinite(together).all():
        raise ValueError("seconds_together is not two numbers")


def sizes(root: Path, task: PlanningTask) -> dict[Cell, int]:
    return {cell: int(arrays["samples"][0]) for cell, arrays in read(root, task).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell], task: PlanningTask) -> list[Path]:
    (target / task.folder).mkdir(parents=True, exist_ok=True)
    for name in (task.files[cell] for cell in cells):
        write_durably(target / name, (source / name).read_bytes())
    return [target / task.files[cell] for cell in cells]


def draw(found: Found, stem: Path, task: PlanningTask) -> list[Path]:
    """Success of all planners, and paths of one seed in φ and in the environment."""
    cells = read(found.root, task)
    fewest = min(int(arrays["samples"][0]) for arrays in cells.values())
    scaled = f"SCALED: {fewest:,} of {task.steps:,} steps" if fewest < task.steps else ""
    rows = [
        {
            "planner": variant,
            "seed": seed,
            "reached": reached(arrays),
            "in_time": in_time(arrays),
            "seconds_per_decision": float(arrays["seconds"][0]),
            "seconds_of_embedding": float(arrays["seconds"][1]),
            "planning_seconds": planning_seconds(arrays, "seconds"),
            "planning_seconds_together": planning_seconds(arrays, "seconds_together"),
        }
        for (variant, seed), arrays in cells.items()
    ]
    return [
        _draw_figure(cells, stem, scaled, task),
        write_markdown(found, stem, _table(cells), scaled),
        write_csv(stem, rows),
    ]


def planning_seconds(found: Mapping[str, Array], kind: str) -> float:
    """The seconds of a decision without φ(s), which all planners compute alike; NaN if unknown."""
    if kind not in found:
        return math.nan
    decision, embedding = found[kind].tolist()
    return float(decision - embedding)


def _table(cells: dict[Cell, dict[str, Array]]) -> str:
    """Means over the seeds; medians of times."""
    rows = []
    times = {"planning": "seconds", "planning, all at once": "seconds_together"}
    cem = {
        kind: np.median([planning_seconds(a, kind) for (v, _), a in cells.items() if v == "cem"])
        for kind in (times.values() if any(v == "cem" for v, _ in cells) else ())
    }
    for variant in (v for v in TITLES if any(v == name for name, _ in cells)):
        own = [arrays for (name, _), arrays in cells.items() if name == variant]
        row = {"": TITLES[variant], "seeds": str(len(own))}
        timely = [share for share in map(in_time, own) if share is not None]
        columns = {"goals reached [95 % CI]": [*map(reached, own)]}
        if timely:
            columns[f"within {SLOWEST} times the shortest [95 % CI]"] = timely
        for name, values in columns.items():
            row[name] = estimate(Estimate.of_mean(np.array(values)), len(values), decimals=3)
        row["ms per decision"] = f"{1e3 * np.median([a['seconds'][0] for a in own]):.2f}"
        for name, kind in times.items():
            seconds = float(np.median([planning_seconds(a, kind) for a in own]))
            row[f"{name}, µs"] = _rounded(1e6 * seconds)
            if cem:
                row[f"CEM / this, {name}"] = _rounded(cem[kind] / max(seconds, 1e-9))
        rows.append(row)
    return table_of(rows)


def _rounded(number: float) -> str:
    """Two digits, or all those before the point; a dash if it is not known."""
    if math.isnan(number):
        return "–"
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


@in_our_style
def _draw_figure(
    cells: dict[Cell, dict[str, Array]], stem: Path, title: str, task: PlanningTask
) -> Path:
    """Left: success of every seed. Then the paths of the first seed, in φ and in the truth."""
    first = min(seed for _, seed in cells)
    variants = [v for v in ("straight", "graph") if (v, first) in cells]
    figure = new_figure(WIDTH, 0.4 + 2.3 * max(1, len(variants)), title)
    axes = figure.subplots(max(1, len(variants)), 3, squeeze=False)
    _draw_success(axes[0, 0], cells)
    for row, variant in zip(axes, variants, strict=True):
        own = cells[variant, first]
        set_heading(row[1], f"{TITLES[variant]}: φ")
        _draw_paths(row[1], _plane(own["phi"]), _plane(own["phi"], own["goals"]))
        set_heading(row[2], "True positions")
        for x, y, width, height in task.walls:
            row[2].add_patch(Rectangle((x, y), width, height, color=PALE, linewidth=0))
        _draw_paths(row[2], own["positions"], own["targets"])
    for row in axes[1:]:
        row[0].set_axis_off()
    return save_figure(figure, stem)


def _draw_success(panel: Axes, cells: dict[Cell, dict[str, Array]]) -> None:
    variants = [v for v in TITLES if any(v == name for name, _ in cells)]
    for height, variant in enumerate(reversed(variants)):
        values = [reached(a) for (name, _), a in cells.items() if name == variant]
        colour = BLUE if TITLES[variant].startswith("EMI") else GREY
        panel.barh(height, 100 * np.mean(values), color=colour, alpha=0.35)
        panel.plot([100 * v for v in values], [height] * len(values), ".", color=colour)
    panel.set(xlim=(0, 102), xlabel="goals reached, %")
    panel.set_yticks(range(len(variants)), [TITLES[v] for v in reversed(variants)])
    set_heading(panel, "Success of each seed")


def _plane(phi: Array, points: Array | None = None) -> Array:
    """The two principal axes of all paths [shown, time, d], of the paths or of `points`."""
    rows = phi.reshape(-1, phi.shape[-1])
    centre = rows.mean(0)
    axes = np.eye(phi.shape[-1])[:2]
    if phi.shape[-1] > 2:
        axes = np.linalg.svd(rows - centre, full_matrices=False)[2][:2]
    return ((phi if points is None else points) - centre) @ axes.T


def _draw_paths(panel: Axes, paths: Array, goals: Array) -> None:
    for path, goal in zip(paths, goals, strict=True):
        (line,) = panel.plot(*path.T[:2], linewidth=1.0)
        panel.plot(*path[0], "o", markersize=2.5, color=INK)
        panel.plot(*goal, "x", markersize=4, color=VERMILION)
        panel.plot(*zip(path[0], goal, strict=True), ":", linewidth=0.5, color=line.get_color())
    panel.set(box_aspect=1, aspect="equal", adjustable="datalim")


def experiment(task: PlanningTask) -> Experiment:
    return Experiment(
        name=task.folder,
        question=task.question,
        paper="names planning in the embedding as future work.",
        draw=functools.partial(draw, task=task),
        files=tuple(task.files.values()),
        maker=FileMaker(
            tuple(task.files),
            task.steps,
            FEWEST_STEPS,
            functools.partial(sizes, task=task),
            functools.partial(make, task=task),
            functools.partial(copy, task=task),
        ),
    )


BOX_EXPERIMENT, WALL_EXPERIMENT, MAZE_EXPERIMENT = map(experiment, (BOX, WALL, POINT_MAZE))
