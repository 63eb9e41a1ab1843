"""Ours: how often Stable-Baselines3's PPO solves MountainCarContinuous, alone and with a bonus.

The car must first move away from the flag to gain speed. Every action has a cost, and only the flag
gives a reward: unless PPO reaches the flag by chance, it learns to stand still.

A run takes about three minutes on one core.
"""

import csv
import functools
import gzip
import io
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emi.batch import FloatArray
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.report.curves import new_figure, save_figure
from emi.report.load import read_file
from emi.report.packed import UNREADABLE
from emi.report.statistics import on_common_steps
from emi.report.summary import Estimate, Rate
from emi.report.tables import estimate, markdown_table, rate_text
from emi.reproduction.drawing import write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found

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
    "emi-standardised": "PPO + EMI",
}
COLOURS = {"ppo": "#555555", "emi": "#D55E00", "emi-standardised": "#0072B2"}

# PPO has SB3's defaults in every arm. Each bonus is divided by the running standard deviation of
# its discounted sum, which makes coefficients comparable; docs/results.md explains the choice.
COEFFICIENTS = {"emi": 1.0, "emi-standardised": 5.0}


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


def train(arm: str, seed: int, steps: int, **settings: Any) -> list[EpisodeEnd]:
    """Every finished training episode of one run, on one thread; `settings` are PPO's."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    import emi
    from emi.adapters import IntrinsicRewardCallback

    class Episodes(BaseCallback):
        """Records every episode that ends."""

        def __init__(self) -> None:
            super().__init__()
            self.found: list[EpisodeEnd] = []

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    reached = not info["TimeLimit.truncated"]
                    total = float(info["episode"]["r"])
                    self.found.append(EpisodeEnd(self.num_timesteps, total, int(reached)))
            return True

    def make() -> gymnasium.Env[Any, Any]:
        return Monitor(gymnasium.make(ENV))

    torch.set_num_threads(1)
    envs = DummyVecEnv([make])
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    episodes = Episodes()
    callbacks: list[BaseCallback] = [episodes]
    if arm != "ppo":
        method: emi.IntrinsicReward = emi.EMI(
            model.observation_space, model.action_space, seed=seed
        )
        if arm == "emi-standardised":
            method = emi.NormalizeObservation(method, model.observation_space)
        scaled = emi.NormalizeReward(method)
        callbacks.append(IntrinsicRewardCallback(scaled, COEFFICIENTS[arm]))
    model.learn(steps, callback=callbacks)
    envs.close()
    return episodes.found


def summarise_run(
    arm: str, seed: int, steps: int, episodes: Sequence[EpisodeEnd], seconds: float
) -> Row:
    """The row of a run; UserError if no episode ended."""
    if not episodes:
        raise UserError(f"no episode ended in {steps} steps: take more steps")
    final = float(np.mean([episode.total for episode in episodes[-LAST:]]))
    return Row(
        arm,
        seed,
        steps,
        len(episodes),
        round(final, 3),
        int(final > SOLVED),
        round(float(np.mean([episode.reached for episode in episodes])), 4),
        next((episode.steps for episode in episodes if episode.reached), None),
        round(seconds, 1),
    )


def work(cell: Cell, steps: int) -> tuple[Row, list[EpisodeEnd]]:
    """Train one (arm, seed) and time it."""
    start = time.perf_counter()
    episodes = train(*cell, steps)
    return summarise_run(*cell, steps, episodes, time.perf_counter() - start), episodes


def save(out: Path, runs: Runs) -> None:
    """Write runs.csv and curves.csv.gz of all runs so far; the same runs give the same bytes."""
    rows, curves = io.StringIO(), io.StringIO()
    table, lines = (csv.writer(file, lineterminator="\n") for file in (rows, curves))
    table.writerow(Row._fields)
    lines.writerow(["arm", "seed", *EpisodeEnd._fields])
    for cell in sorted(runs, key=lambda cell: (list(TITLES).index(cell[0]), cell[1])):
        row, episodes = runs[cell]
        table.writerow(["" if value is None else value for value in row])
        lines.writerows([*cell, e.steps, round(e.total, 3), e.reached] for e in episodes)
    out.mkdir(parents=True, exist_ok=True)
    # A row in runs.csv promises that its curve exists, so it is written last.
    write_durably(out / "curves.csv.gz", gzip.compress(curves.getvalue().encode(), mtime=0))
    write_durably(out / "runs.csv", rows.getvalue().encode())


def load(out: Path) -> Runs:
    """What `save` wrote, empty if there is nothing; UserError if it is damaged."""
    runs: Runs = {}
    if not (out / "runs.csv").exists():
        return runs
    try:
        for line in _lines(out / "runs.csv"):
            row = Row(line["arm"], *(json.loads(line[name] or "null") for name in Row._fields[1:]))
            runs[row.arm, row.seed] = (row, [])
        for line in _lines(out / "curves.csv.gz"):
            end = EpisodeEnd(*(json.loads(line[name]) for name in EpisodeEnd._fields))
            if (cell := (line["arm"], int(line["seed"]))) in runs:
                runs[cell][1].append(end)
    except UNREADABLE as error:
        raise UserError(f"{out} is damaged ({error}): run sb3_success again") from None
    return runs


def _lines(file: Path) -> Iterator[dict[str, str]]:
    return csv.DictReader(read_file(file).decode().splitlines())


def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
    """Train each (arm, seed) of `cells`, one thread each; save after each run."""
    try:
        import emi.adapters.stable_baselines3  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(str(error)) from None
    runs = load(root / FOLDER)
    print(f"{len(cells)} runs to do, {len(runs)} there", flush=True)
    # Ctrl-C reaches every process of the terminal; this process ends the others.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    jobs = budget.jobs or 1
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, ignore) as pool:
        for row, episodes in pool.imap_unordered(functools.partial(work, steps=steps), cells):
            runs[row.arm, row.seed] = row, episodes
            save(root / FOLDER, runs)
            print(
                f"{row.arm} seed {row.seed}: final return {row.final_return:.1f}, "
                f"{row.reached:.0%} of {row.episodes} episodes at the flag, {row.seconds:.0f} s",
                flush=True,
            )


def sizes(root: Path) -> dict[Cell, int]:
    return {cell: row.steps for cell, (row, _) in load(root / FOLDER).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    new = load(source / FOLDER)
    save(target / FOLDER, load(target / FOLDER) | {cell: new[cell] for cell in cells})
    return [target / FOLDER / name for name in FILES]


def draw(found: Found, stem: Path) -> list[Path]:
    runs = load(found.root / FOLDER)
    if not runs:
        raise UserError(f"{found.root / FOLDER / FILES[0]} holds no run: run it again")
    fewest = min(row.steps for row, _ in runs.values())
    scaled = f"SCALED: {fewest:,} of {STEPS:,} steps" if fewest < STEPS else ""
    page = write_markdown(found, stem, table(runs), scaled)
    return [_draw_figure(runs, stem, scaled), page]


def table(runs: Runs) -> str:
    """Markdown: one line per arm."""
    final_return, solved = "final return, mean [95 % CI]", f"solved (> {SOLVED:.0f}) [95 % CI]"
    titles = ["", "seeds", "steps", final_return, solved, "episodes at the flag", "seconds a run"]
    lines = []
    for arm, title in TITLES.items():
        rows = [row for row, _ in runs.values() if row.arm == arm]
        if not rows:
            continue
        final = np.array([row.final_return for row in rows])
        cells = [
            title,
            str(len(rows)),
            f"{min(row.steps for row in rows):,}",
            estimate(Estimate.of_mean(final), len(rows), decimals=1),
            rate_text(Rate.of(sum(row.solved for row in rows), len(rows))),
            f"{np.mean([row.reached for row in rows]):.0%}",
            f"{np.median([row.seconds for row in rows]):.0f}",
        ]
        lines.append(cells)
    note = (
        f"{ENV}, mean return of the last {LAST} training episodes of each run, without the bonus."
    )
    return f"{note}\n\n{markdown_table(titles, lines)}"


def smooth(episodes: Sequence[EpisodeEnd]) -> tuple[FloatArray, FloatArray]:
    """Steps [n] and the mean return of the last LAST episodes up to there, [n]."""
    totals = np.cumsum([0.0, *(episode.total for episode in episodes)])
    ends = np.arange(1, len(episodes) + 1)
    starts = np.maximum(0, ends - LAST)
    means = (totals[ends] - totals[starts]) / (ends - starts)
    steps, last = np.unique([episode.steps for episode in episodes][::-1], return_index=True)
    return steps.astype(float), means[::-1][last]  # including all episodes that ended at a step


def _draw_figure(runs: Runs, stem: Path, title: str) -> Path:
    """Learning curves: one panel per arm with every seed and the mean."""
    present = [arm for arm in TITLES if any(row.arm == arm for row, _ in runs.values())]
    figure = new_figure(3.0 * len(present), 2.9, title)
    panels = figure.subplots(1, len(present), squeeze=False, sharey=True)[0]
    for panel, arm in zip(panels, present, strict=True):
        curves = [smooth(episodes) for row, episodes in runs.values() if row.arm == arm]
        for steps, returns in curves:
            panel.plot(steps, returns, color=COLOURS[arm], alpha=0.35, linewidth=0.8)
        grid, stacked = on_common_steps([s for s, _ in curves], [r for _, r in curves])
        panel.plot(grid, stacked.mean(0), color=COLOURS[arm], linewidth=2)
        panel.axhline(SOLVED, color="#999999", linestyle=":", linewidth=1)
        panel.set_title(f"{TITLES[arm]}, {len(curves)} seeds", fontsize=10)
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}k")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"return, mean of {LAST} episodes")
    return save_figure(figure, stem)


EXPERIMENT = Experiment(
    name="sb3_success",
    question="Does EMI's bonus let Stable-Baselines3's PPO solve MountainCarContinuous?",
    paper="trains with TRPO only.",
    draw=draw,
    files=tuple(f"{FOLDER}/{name}" for name in FILES),
    # Seed by seed, so that an interrupted experiment compares all arms.
    maker=FileMaker(
        tuple((arm, seed) for seed in SEEDS for arm in TITLES),
        STEPS,
        FEWEST_STEPS,
        sizes,
        make,
        copy,
    ),
)
