"""Ours: what the data, d, λ_error and the length of training contribute to planning.

Every seed explores once. Each variant then trains a new EMI on the same transitions and differs
from the reference in one choice. BoxImage is measured with the straight planner, PointMaze with
the landmark graph. The exploration is shorter than that of `planning`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from emi.batch import Transitions
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.intrinsic.emi import EMI, EMIConfig
from emi.planning.fit import fit
from emi.planning.landmarks import LandmarkGraph
from emi.planning.planner import Planner
from emi.report.packed import UNREADABLE
from emi.report.style import BLUE, GREY, WIDTH, in_our_style, new_figure, save_figure, set_heading
from emi.report.summary import Estimate
from emi.report.tables import estimate
from emi.reproduction import planning
from emi.reproduction.arenas import play_to_goals
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found
from emi.reproduction.planning import PlanningTask
from emi.training.exploration import explore
from emi.training.presets import resolve
from emi.training.trainer import Trainer
from emi.untrusted_file import read_file

FILE = "planning_choices/measures.csv"
STEPS = 100_000  # of the exploration
FEWEST_STEPS = 10_000  # of a scaled one
SEEDS = range(3)
PASSES = 4  # over the data, of the reference
MOST_BYTES = 1_000_000  # of a file that is read
REFERENCE = "reference"


@dataclass(frozen=True)
class Choice:
    """How an embedding is trained: settings of EMI, passes over the data, and which data."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    passes: int = PASSES
    even: bool = True  # draw rows evenly over φ, or take them as they were visited
    untrained: bool = False  # data of a policy that does not learn


@dataclass(frozen=True)
class Study:
    """A planning task and the choices that are compared on it."""

    task: PlanningTask
    planner: str
    rows: int | None  # of the data, for each pass; None for all
    choices: Mapping[str, Choice]


def _choices(dimensions: Sequence[int], weights: Sequence[float]) -> dict[str, Choice]:
    found = [Choice(REFERENCE)]
    found += [Choice(f"d = {d}", {"embedding_dim": d}) for d in dimensions]
    found += [Choice(f"λ_error = {w:g}", {"lambda_error": w}) for w in weights]
    found += [Choice(f"{n} pass{'es' if n > 1 else ''}", passes=n) for n in (1, 2, 8)]
    found.append(Choice("rows as visited", even=False))
    found.append(Choice("data of an untrained policy", untrained=True))
    return {choice.title: choice for choice in found}


STUDIES = {
    "BoxImage": Study(
        planning.BOX, "straight", 20_000, _choices(dimensions=(4, 8), weights=(1, 10, 1000))
    ),
    "PointMaze": Study(
        planning.POINT_MAZE, "graph", None, _choices(dimensions=(2, 4, 16), weights=(0.01, 1, 10))
    ),
}


class PlanningMeasure(NamedTuple):
    """One row of measures.csv."""

    study: str
    choice: str
    seed: int
    steps: int
    reached: float  # share of goals
    in_time: float  # share of goals within 1.2 times the least number of steps; −1 if not known


VARIANTS = {f"{s}/{c}": (s, c) for s, study in STUDIES.items() for c in study.choices}
CELLS: tuple[Cell, ...] = tuple((variant, seed) for seed in SEEDS for variant in VARIANTS)
Measures = dict[Cell, PlanningMeasure]


def config_of(task: PlanningTask, seed: int, steps: int, **changes: Any) -> Any:
    settings = {"seed": seed, "steps": steps, "threads": 1, "reward": "none", **changes}
    return resolve(task.env, "emi", settings | dict(task.settings))


def untrained_data(task: PlanningTask, seed: int, steps: int) -> Transitions:
    """As many rows as the others have, of a policy whose bonus counts nothing."""
    with contextlib.closing(Trainer(config_of(task, seed, steps, eta=0.0))) as trainer:
        return explore(trainer, trainer.total_iterations, steps)


def trained(study: Study, choice: Choice, data: Transitions, seed: int) -> EMI:
    """A new EMI on the data, by the settings of a choice."""
    task, rng = study.task, np.random.default_rng(seed)
    with contextlib.closing(Trainer(config_of(task, seed, 1))) as trainer:
        own = trainer.config.intrinsic
        assert isinstance(own, EMIConfig)
        envs = trainer.envs
        emi = EMI(
            envs.single_observation_space,
            envs.single_action_space,
            replace(own, **choice.settings),
            seed,
            normalize=trainer.config.normalize_observations,
        )
    for _ in range(choice.passes):
        rows = rng.permutation(len(data))[: study.rows]
        some = data if study.rows is None else _some(data, rows)
        if choice.even:
            fit(emi, some, 1, rng)
        else:
            emi.learn(_some(data, rows))
    return emi


def _some(data: Transitions, rows: np.ndarray) -> Transitions:
    """Rows without their order in time."""
    return Transitions(data.obs[rows], data.action[rows], data.next_obs[rows])


def measure(study: Study, emi: EMI, data: Transitions, seed: int) -> tuple[float, float | None]:
    """The shares of goals reached, and reached in time."""
    task = study.task
    planner = Planner(emi, use_error=task.use_error)
    graph = LandmarkGraph(planner, data, **task.graph) if study.planner == "graph" else None
    arena = task.arena(task.pairs, seed)
    found = play_to_goals(graph or planner, arena, task.limit, emi, 1)
    found |= {"shortest": arena.shortest}
    return planning.reached(found), planning.in_time(found)


def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
    """PlanningMeasure each (variant, seed) of `cells` on one thread; save after each."""
    torch.set_num_threads(1)
    for seed in dict.fromkeys(seed for _, seed in cells):
        for name, study in STUDIES.items():
            wanted = [c for v, (s, c) in VARIANTS.items() if s == name and (v, seed) in cells]
            if not wanted:
                continue
            _, explored = planning.explored(study.task, seed, steps)
            untrained = None
            for title in wanted:
                choice, data = study.choices[title], explored
                if choice.untrained:
                    untrained = untrained or untrained_data(study.task, seed, steps)
                    data = untrained
                emi = trained(study, choice, data, seed)
                share, timely = measure(study, emi, data, seed)
                row = PlanningMeasure(
                    name, title, seed, steps, share, -1.0 if timely is None else timely
                )
                save(root, load(root) | {(f"{name}/{title}", seed): row})
                text = "" if timely is None else f", {timely:.1%} in time"
                print(f"{name} seed {seed}, {title}: {share:.1%} reached{text}", flush=True)


def load(root: Path) -> Measures:
    """What `save` wrote, empty if there is nothing; UserError if it is damaged."""
    path = root / FILE
    if not path.exists():
        return {}
    try:
        lines = csv.DictReader(read_file(path, MOST_BYTES).decode().splitlines())
        rows = [_measure(line) for line in lines]
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged ({error}): run planning_choices again") from None
    return {(f"{row.study}/{row.choice}", row.seed): row for row in rows}


def _measure(line: dict[str, str]) -> PlanningMeasure:
    numbers = int(line["seed"]), int(line["steps"]), float(line["reached"]), float(line["in_time"])
    row = PlanningMeasure(line["study"], line["choice"], *numbers)
    if f"{row.study}/{row.choice}" not in VARIANTS or not all(abs(n) < 1e12 for n in numbers):
        raise ValueError("an unknown choice, or a number that is too large")
    return row


def save(root: Path, rows: Measures) -> None:
    """Write measures.csv in the order of the choices; the same rows give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PlanningMeasure._fields)
    order = list(VARIANTS)
    writer.writerows(rows[cell] for cell in sorted(rows, key=lambda c: (order.index(c[0]), c[1])))
    (root / FILE).parent.mkdir(parents=True, exist_ok=True)
    write_durably(root / FILE, text.getvalue().encode())


def sizes(root: Path) -> dict[Cell, int]:
    return {cell: row.steps for cell, row in load(root).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    new = load(source)
    save(target, load(target) | {cell: new[cell] for cell in cells})
    return [target / FILE]


def table(rows: Measures, name: str) -> str:
    """Markdown: one line per choice of a study, means over its seeds."""
    lines = []
    for choice in STUDIES[name].choices:
        own = [row for row in rows.values() if (row.study, row.choice) == (name, choice)]
        if not own:
            continue
        line = {"": choice, "seeds": str(len(own))}
        columns = {"goals reached [95 % CI]": np.array([row.reached for row in own])}
        if all(row.in_time >= 0 for row in own):
            columns["in time [95 % CI]"] = np.array([row.in_time for row in own])
        for heading, values in columns.items():
            line[heading] = estimate(Estimate.of_mean(values), len(values), decimals=3)
        lines.append(line)
    study = STUDIES[name]
    about = f"### {name}, {planning.TITLES[study.planner]}\n\nThe reference has {_about(study)}."
    return f"{about}\n\n{table_of(lines)}"


def _about(study: Study) -> str:
    config = config_of(study.task, 0, 1).intrinsic
    rows = "all rows" if study.rows is None else f"{study.rows:,} rows"
    return (
        f"d = {config.embedding_dim}, λ_error = {config.lambda_error:g}, {PASSES} passes of {rows}"
    )


def draw(found: Found, stem: Path) -> list[Path]:
    rows = load(found.root)
    if not rows:
        raise UserError(f"{found.root / FILE} holds no measurement: run it again")
    fewest = min(row.steps for row in rows.values())
    scaled = f"SCALED: {fewest:,} of {STEPS:,} steps" if fewest < STEPS else ""
    names = [name for name in STUDIES if any(row.study == name for row in rows.values())]
    body = "\n\n".join(table(rows, name) for name in names)
    return [_draw_figure(rows, names, stem, scaled), write_markdown(found, stem, body, scaled)]


@in_our_style
def _draw_figure(rows: Measures, names: Sequence[str], stem: Path, title: str) -> Path:
    """Goals reached by each choice: dots are seeds, the line is the mean of the reference."""
    longest = max(len(STUDIES[name].choices) for name in names)
    figure = new_figure(WIDTH, 0.8 + 0.22 * longest, title)
    for panel, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        choices = list(STUDIES[name].choices)
        timely = any(row.in_time >= 0 for row in rows.values() if row.study == name)
        for place, choice in enumerate(choices):
            own = [row for row in rows.values() if (row.study, row.choice) == (name, choice)]
            values = [100 * (row.in_time if timely else row.reached) for row in own]
            panel.plot(values, [place] * len(values), "o", color=BLUE, markersize=3, alpha=0.5)
            mean = float(np.mean(values)) if values else math.nan
            panel.plot(mean, place, "D", color=BLUE, markersize=5)
            if choice == REFERENCE:
                panel.axvline(mean, color=GREY, linewidth=0.8, linestyle="--")
        panel.set_yticks(range(len(choices)), choices)
        panel.invert_yaxis()
        panel.set(xlim=(-2, 102), xlabel=f"goals reached{' in time' if timely else ''}, %")
        set_heading(panel, f"{name}, {planning.TITLES[STUDIES[name].planner]}")
    return save_figure(figure, stem)


EXPERIMENT = Experiment(
    name="planning_choices",
    question="How do the data, d, λ_error and the length of training decide how well one can plan?",
    paper="names planning in the embedding as future work.",
    draw=draw,
    files=(FILE,),
    maker=FileMaker(CELLS, STEPS, FEWEST_STEPS, sizes, make, copy),
)
