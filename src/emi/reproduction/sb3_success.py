"""Ours: how often Stable-Baselines3's PPO solves MountainCarContinuous, alone and with a bonus.

The car must first move away from the flag to gain speed. Every action has a cost, and only the flag
gives a reward: unless PPO reaches the flag by chance, it learns to stand still.

A run takes about three minutes on one core.
"""

import csv
import functools
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emi.adapters.schedule import Decay, Eta
from emi.batch import FloatArray
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.emi import EMI
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.recipe import bonus
from emi.report.curves import Curve, Panel, arrange, fill_panels
from emi.report.packed import UNREADABLE
from emi.report.statistics import on_common_steps
from emi.report.style import GREY, SMALL, VERMILION, Look, in_our_style, look_of, save_figure
from emi.report.summary import Estimate, Rate
from emi.report.tables import estimate, rate_text
from emi.reproduction.collect import write_compressed
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found
from emi.reproduction.worker_pool import worker_pool
from emi.untrusted_file import read_file

ENV = "MountainCarContinuous-v0"
SEEDS = range(5)
STEPS = 200_000
LAST = 20  # episodes whose mean return is the final return
SOLVED = 90.0  # Gymnasium's reward threshold: nearly every episode reaches the flag
FEWEST_STEPS = 3_000  # of a scaled run: three episodes
FOLDER = "sb3_success"
FILES = ("runs.csv", "curves.csv.gz")
TITLES = {
    "ppo": "PPO",
    "emi": "PPO + EMI, raw",
    "emi-standardised": "PPO + EMI, constant η",
    "emi-recipe": "PPO + EMI",
}
# Seed by seed, so that an interrupted experiment compares all arms.
CELLS = tuple((arm, seed) for seed in SEEDS for arm in TITLES)
MOST_BYTES, MOST_STEPS = 16_000_000, 1e12  # of a file that is read
# As in other figures: EMI blue, an agent without a bonus black.
LOOKS = {
    "ppo": look_of("trpo"),
    "emi": Look(VERMILION, "-"),
    "emi-standardised": Look(look_of("emi").colour, ":"),
    "emi-recipe": look_of("emi"),
}

# PPO has SB3's defaults in every arm. Each bonus is divided by the running standard deviation of
# its discounted sum, which makes coefficients comparable; docs/results.md explains the choice.
COEFFICIENTS: dict[str, Eta] = {"emi": 1.0, "emi-standardised": 5.0, "emi-recipe": Decay(10.0)}


class EpisodeEnd(NamedTuple):
    steps: int  # environment steps taken when it ended
    total: float  # its return, without the bonus
    reached: int  # 1 if it ended at the flag


class Row(NamedTuple):
    """One row of runs.csv."""

    arm: str
    seed: int
    steps: int
    episodes: int
    final_return: float
    solved: int
    reached: float  # share of all episodes that ended at the flag
    first_reached: int | None  # steps when the first one did
    seconds: float


Runs = dict[Cell, tuple[Row, list[EpisodeEnd]]]
Work = Callable[[Cell], tuple[Row, list[EpisodeEnd]]]


@dataclass(frozen=True)
class Task:
    """An environment, the arms that are compared on it, and where their files are."""

    folder: str
    env: str
    steps: int
    solved: float  # a larger final return counts as solved
    titles: Mapping[str, str]  # by arm
    looks: Mapping[str, Look]
    last: int = LAST  # episodes whose mean return is the final return
    goal: str = "flag"  # where a successful episode ends
    title: str = ""  # of the environment; empty: its id
    decimals: int = 1  # of returns
    tells_first: bool = False  # whether the table has the steps until the first success


TASK = Task(FOLDER, ENV, STEPS, SOLVED, TITLES, LOOKS)


def by_arm(runs: Runs, task: Task = TASK) -> dict[str, Runs]:
    """The runs of each arm that has any, in the order of the task."""
    arms = {arm: {cell: run for cell, run in runs.items() if cell[0] == arm} for arm in task.titles}
    return {arm: own for arm, own in arms.items() if own}


def train(arm: str, seed: int, steps: int, **settings: Any) -> list[EpisodeEnd]:
    """Every finished training episode of one run, on one thread; `settings` are PPO's."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.monitor import Monitor

    from emi.adapters.stable_baselines3 import IntrinsicRewardCallback

    torch.set_num_threads(1)
    env = Monitor(gymnasium.make(ENV))
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    callback = None
    if arm != "ppo":
        callback = IntrinsicRewardCallback(_method(arm, model, seed), COEFFICIENTS[arm])
    model.learn(steps, callback=callback)
    env.close()
    ends, totals = np.cumsum(env.get_episode_lengths()).tolist(), env.get_episode_rewards()
    # The flag gives 100, and the actions of an episode cost at most 99.9.
    return [EpisodeEnd(end, t, int(t > 0)) for end, t in zip(ends, totals, strict=True)]


def _method(arm: str, model: Any, seed: int) -> IntrinsicReward:
    observations, actions = model.observation_space, model.action_space
    if arm == "emi-recipe":
        return bonus("emi", observations, actions, seed=seed)
    standardised = arm == "emi-standardised"
    return NormalizeReward(EMI(observations, actions, seed=seed, normalize=standardised))


def summarise_run(
    arm: str,
    seed: int,
    steps: int,
    episodes: Sequence[EpisodeEnd],
    seconds: float,
    task: Task = TASK,
) -> Row:
    """The row of a run; UserError if no episode ended."""
    if not episodes:
        raise UserError(f"no episode ended in {steps} steps: take more steps")
    final = float(np.mean([episode.total for episode in episodes[-task.last :]]))
    return Row(
        arm,
        seed,
        steps,
        len(episodes),
        round(final, 3),
        int(final > task.solved),
        round(float(np.mean([episode.reached for episode in episodes])), 4),
        next((episode.steps for episode in episodes if episode.reached), None),
        round(seconds, 1),
    )


def work(cell: Cell, steps: int) -> tuple[Row, list[EpisodeEnd]]:
    """Train one (arm, seed) and time it."""
    start = time.perf_counter()
    episodes = train(*cell, steps)
    return summarise_run(*cell, steps, episodes, time.perf_counter() - start), episodes


def save(out: Path, runs: Runs, task: Task = TASK) -> None:
    """Write runs.csv and curves.csv.gz of all runs so far; the same runs give the same bytes."""
    rows, curves = io.StringIO(), io.StringIO()
    table, lines = (csv.writer(file, lineterminator="\n") for file in (rows, curves))
    table.writerow(Row._fields)
    lines.writerow(["arm", "seed", *EpisodeEnd._fields])
    for cell in sorted(runs, key=lambda cell: (list(task.titles).index(cell[0]), cell[1])):
        row, episodes = runs[cell]
        table.writerow(["" if value is None else value for value in row])
        lines.writerows([*cell, e.steps, round(e.total, 3), e.reached] for e in episodes)
    # A row in runs.csv promises that its curve exists, so it is written last.
    write_compressed(out / "curves.csv.gz", curves.getvalue().encode())
    write_durably(out / "runs.csv", rows.getvalue().encode())


def load(out: Path, task: Task = TASK) -> Runs:
    """What `save` wrote, empty if there is nothing; UserError if it is damaged."""
    runs: Runs = {}
    if not (out / "runs.csv").exists():
        return runs
    try:
        for line in _lines(out / "runs.csv"):
            row = Row(line["arm"], *(_number(line[name]) for name in Row._fields[1:]))
            runs[row.arm, row.seed] = (row, [])
        for line in _lines(out / "curves.csv.gz"):
            end = EpisodeEnd(*(_number(line[name]) for name in EpisodeEnd._fields))
            if (cell := (line["arm"], int(line["seed"]))) in runs:
                runs[cell][1].append(end)
        if any(arm not in task.titles or not episodes for (arm, _), (_, episodes) in runs.items()):
            raise ValueError("an unknown arm, or a run without episodes")
        known = [row._replace(first_reached=0) for row, _ in runs.values()]
        if any(
            None in values for values in (*known, *(e for _, own in runs.values() for e in own))
        ):
            raise ValueError("a number is missing")
    except UNREADABLE as error:
        raise UserError(f"{out} is damaged ({error}): run {task.folder} again") from None
    return runs


def _lines(file: Path) -> Iterator[dict[str, str]]:
    return csv.DictReader(read_file(file, MOST_BYTES).decode().splitlines())


def _number(text: str) -> Any:
    """A whole number, a number or nothing; ValueError for anything else."""
    if not text:
        return None
    value = float(text) if "." in text else int(text)
    if not abs(value) <= MOST_STEPS:  # NaN as well
        raise ValueError(f"{value:g} is too large")
    return value


def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
    train_cells(root, cells, functools.partial(work, steps=steps), budget)


def train_cells(
    root: Path, cells: Sequence[Cell], work: Work, budget: Budget, task: Task = TASK
) -> None:
    """Train each (arm, seed) of `cells`, one thread each; save after each run."""
    try:
        import emi.adapters.stable_baselines3  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(str(error)) from None
    out = root / task.folder
    runs = load(out, task)
    print(f"{len(cells)} runs to do, {len(runs)} there", flush=True)
    with worker_pool(budget.jobs or 1) as pool:
        for row, episodes in pool.imap_unordered(work, cells):
            runs[row.arm, row.seed] = row, episodes
            save(out, runs, task)
            print(
                f"{row.arm} seed {row.seed}: final return {row.final_return:.{task.decimals}f}, "
                f"{row.reached:.0%} of {row.episodes} episodes at the {task.goal}, "
                f"{row.seconds:.0f} s",
                flush=True,
            )


def sizes(root: Path, task: Task = TASK) -> dict[Cell, int]:
    return {cell: row.steps for cell, (row, _) in load(root / task.folder, task).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell], task: Task = TASK) -> list[Path]:
    new, out = load(source / task.folder, task), target / task.folder
    save(out, load(out, task) | {cell: new[cell] for cell in cells}, task)
    return [out / name for name in FILES]


def draw(found: Found, stem: Path, task: Task = TASK) -> list[Path]:
    runs = load(found.root / task.folder, task)
    if not runs:
        raise UserError(f"{found.root / task.folder / FILES[0]} holds no run: run it again")
    fewest = min(row.steps for row, _ in runs.values())
    scaled = f"SCALED: {fewest:,} of {task.steps:,} steps" if fewest < task.steps else ""
    page = write_markdown(found, stem, table(runs, task), scaled)
    return [_draw_figure(runs, stem, scaled, task), page]


def table(runs: Runs, task: Task = TASK) -> str:
    """Markdown: one line per arm."""
    note = f"mean return of the last {task.last} training episodes of each run, without the bonus"
    lines = []
    for arm, own in by_arm(runs, task).items():
        rows = [row for row, _ in own.values()]
        final = Estimate.of_mean(np.array([row.final_return for row in rows]))
        solved = Rate.of(sum(row.solved for row in rows), len(rows))
        line = {
            "": task.titles[arm],
            "seeds": str(len(rows)),
            "steps": f"{min(row.steps for row in rows):,}",
            "final return, mean [95 % CI]": estimate(final, len(rows), decimals=task.decimals),
            f"solved (> {task.solved:g}) [95 % CI]": rate_text(solved),
            f"episodes at the {task.goal}": f"{np.mean([row.reached for row in rows]):.0%}",
            **(_first(rows, task.goal) if task.tells_first else {}),
            "seconds a run": f"{np.median([row.seconds for row in rows]):.0f}",
        }
        lines.append(line)
    return f"{task.title or task.env}, {note}.\n\n{table_of(lines)}"


def _first(rows: Sequence[Row], goal: str) -> dict[str, str]:
    """The median of the runs that reached the goal, and their number."""
    found = [row.first_reached for row in rows if row.first_reached is not None]
    median = f"{np.median(found):,.0f} ({len(found)}/{len(rows)})" if found else "–"
    return {f"first at the {goal}, median steps (seeds)": median}


def smooth(episodes: Sequence[EpisodeEnd], last: int = LAST) -> tuple[FloatArray, FloatArray]:
    """Steps [n] and the mean return of the `last` episodes up to there, [n]."""
    totals = np.cumsum([0.0, *(episode.total for episode in episodes)])
    ends = np.arange(1, len(episodes) + 1)
    starts = np.maximum(0, ends - last)
    means = (totals[ends] - totals[starts]) / (ends - starts)
    steps, newest = np.unique([episode.steps for episode in episodes][::-1], return_index=True)
    return steps.astype(float), means[::-1][newest]  # including all episodes that ended at a step


@in_our_style
def _draw_figure(runs: Runs, stem: Path, title: str, task: Task) -> Path:
    """Learning curves of all arms with every seed, and the return that counts as solved."""
    curves = []
    for arm, own in by_arm(runs, task).items():
        of_seeds = [smooth(episodes, task.last) for _, episodes in own.values()]
        grid, values = on_common_steps([s for s, _ in of_seeds], [r for _, r in of_seeds])
        curves.append(Curve(task.titles[arm], arm, grid / 1000, values, end=grid[-1] / 1000))
    axes = f"return, mean of {task.last} episodes", "environment steps (thousands)"
    panel, drawn = Panel(task.title or task.env, curves, *axes), {curve.method for curve in curves}
    looks = {task.titles[arm]: look for arm, look in task.looks.items() if arm in drawn}
    figure, (axis,) = arrange(1, title)
    fill_panels(figure, [axis], [panel], looks)
    axis.axhline(task.solved, color=GREY, linestyle="--", linewidth=0.8, zorder=1.9)
    axis.annotate(
        f"solved\n(> {task.solved:g})",
        (1, task.solved),
        xytext=(3, 0),
        xycoords=axis.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=GREY,
    )
    return save_figure(figure, stem)


EXPERIMENT = Experiment(
    name="sb3_success",
    question="Does EMI's bonus let Stable-Baselines3's PPO solve MountainCarContinuous?",
    paper="trains with TRPO only.",
    draw=draw,
    files=tuple(f"{FOLDER}/{name}" for name in FILES),
    maker=FileMaker(CELLS, STEPS, FEWEST_STEPS, sizes, make, copy),
)
