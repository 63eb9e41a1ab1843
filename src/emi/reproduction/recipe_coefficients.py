"""Ours: coefficients of the bonus on four small tasks, with and without decay.

The runs have development seeds and few steps. They show which coefficients work at all, not which
method is best.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from emi.adapters.schedule import Decay, Eta
from emi.intrinsic.table import title_of
from emi.reproduction import ppo_runs, recipe
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.ppo_runs import LAST, PPOArm, PPOTask, Runs
from emi.reproduction.recipe import MOUNTAIN_CAR

FOLDER = "recipe_coefficients"
SEEDS = (100, 101)
STEPS = 61_440  # 30 rollouts
FIRST = ("emi", "rnd", "icm")
# The others have two coefficients, to save time.
OTHERS = tuple(method for method in recipe.METHODS if method not in (*FIRST, "noise"))
TASKS = (
    MOUNTAIN_CAR,
    # Its episodes have up to 999 steps.
    PPOTask("MountainCarContinuous", "MountainCarContinuous-v0", goal=0.0, longer=3),
    PPOTask(
        "FrozenLake 8x8",
        "FrozenLake-v1",
        goal=0.0,
        settings=(("map_name", "8x8"), ("is_slippery", False)),
    ),
    PPOTask("CartPole", "CartPole-v1", goal=475.0),
)
ETAS: tuple[Eta, ...] = (Decay(1.0), 1.0, Decay(5.0), Decay(0.1), 0.1)
BLOCKS = ((FIRST, ETAS), (OTHERS, ETAS[:2]))


def eta_text(eta: Eta) -> str:
    """`1 → 0` for a decay, `1` for a constant."""
    return f"{eta.start:g} → 0" if isinstance(eta, Decay) else f"{eta:g}"


def _arms() -> Iterator[tuple[str, PPOArm]]:
    for task in TASKS:
        yield f"{task.env}/ppo", PPOArm("PPO", task)
    # Coefficient by coefficient, so that an interrupted experiment compares methods and tasks.
    for methods, etas in BLOCKS:
        for eta, method, task in itertools.product(etas, methods, TASKS):
            name = f"{task.env}/{method}/{eta_text(eta).replace(' → ', '-to-')}"
            yield name, PPOArm(f"{title_of(method)}, η = {eta_text(eta)}", task, method, eta)


ARMS = dict(_arms())
CELLS = tuple((arm, seed) for seed in SEEDS for arm in ARMS)


def draw(found: Found, stem: Path) -> list[Path]:
    runs, scaled = ppo_runs.to_draw(found.root / FOLDER, ARMS, STEPS)
    return [write_markdown(found, stem, table(runs), scaled)]


def table(runs: Runs) -> str:
    """Markdown: one line per method and coefficient, one column per task."""
    lines: dict[str, dict[str, str]] = {}
    for (name, _), row in runs.items():
        arm = ARMS[name]
        line = lines.setdefault(arm.title, {"": arm.title} | {task.title: "–" for task in TASKS})
        line[arm.task.title] = _cell([r for (own, _), r in runs.items() if own == row.arm])
    order = list(dict.fromkeys(arm.title for arm in ARMS.values()))
    note = (
        f"PPO with VecNormalize, {STEPS:,} steps, three times as many in MountainCarContinuous, "
        f"seeds from {SEEDS[0]} on. A cell is the share of the last {LAST} "
        "training episodes that reached the goal, the mean over seeds, and the number of seeds. "
        f"In CartPole, the goal is a return above {TASKS[-1].goal:.0f}, and the mean return is "
        "added."
    )
    return f"{note}\n\n{table_of([lines[title] for title in order if title in lines])}"


def _cell(rows: list[ppo_runs.PPORow]) -> str:
    text = f"{np.mean([row.reached for row in rows]):.0%}"
    if ARMS[rows[0].arm].task is TASKS[-1]:
        text += f", {np.mean([row.final_return for row in rows]):.0f}"
    return f"{text} ({len(rows)})"


EXPERIMENT = Experiment(
    name=FOLDER,
    question="Which coefficients of the bonus work on four small tasks, with and without decay?",
    paper="trains with TRPO only.",
    draw=draw,
    files=(f"{FOLDER}/{ppo_runs.FILE}",),
    maker=ppo_runs.maker_of(FOLDER, ARMS, CELLS, STEPS),
)
