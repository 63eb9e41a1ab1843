"""The table of final returns: one row per method or variant, the paper's value last."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emi.report.first_reward import first_reward, median_first_reward
from emi.report.load import Run
from emi.report.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    stratified_bootstrap,
    wilson_interval,
)
from emi.reproduction.paper_values import PAPER, TITLES, PaperValues, in_millions

LAST_ITERATIONS = 10


@dataclass(frozen=True)
class Summary:
    """One row: runs that differ in their seeds only, and the paper's value for them.

    The final return of a run is `return_mean` of its last iteration in which an episode ended.
    """

    env: str
    label: str
    seeds: int
    steps: int  # of the shortest run
    mean: float
    mean_interval: Interval
    iqm: float
    iqm_interval: Interval
    late: float  # mean over the last iterations
    solved: int | None  # runs above the return from which the task is called solved
    first_reward: float  # steps by which half of the runs have met one; inf if fewer have
    rewarded: int  # runs that have met one
    paper: float | None
    unfinished: tuple[str, ...]


def summarise(runs: Sequence[Run], *, label: str = "", paper: float | None = None) -> Summary:
    """A row of its own making: a variant, or a method of which the paper has no number here."""
    env = runs[0].env
    above = PAPER.get(env, PaperValues()).solved_above
    final = np.array([run.final_return() for run in runs])
    first = [first_reward(run.metrics["steps"], run.metrics["return_max"]) for run in runs]
    return Summary(
        env=env,
        label=label or TITLES.get(runs[0].method, runs[0].method),
        seeds=len(runs),
        steps=min(run.steps for run in runs),
        mean=float(final.mean()),
        mean_interval=bootstrap_interval(final),
        iqm=interquartile_mean(final),
        iqm_interval=stratified_bootstrap([final], interquartile_mean),
        late=float(np.mean([run.final_return(LAST_ITERATIONS) for run in runs])),
        solved=None if above is None else int((final > above).sum()),
        first_reward=median_first_reward(first),
        rewarded=sum(one.seen for one in first),
        paper=paper,
        unfinished=tuple(
            f"Not finished: {run.method}, seed {run.seed}, "
            f"{run.metrics['steps'][-1]:.0f} of {run.steps} steps."
            for run in runs
            if not run.finished
        ),
    )


def summarise_method(runs: Sequence[Run]) -> Summary:
    """The row of a method, beside its number in the paper's Table 1 where it has one."""
    values = PAPER.get(runs[0].env, PaperValues())
    return summarise(runs, paper=values.returns.get(runs[0].method))


def return_table(rows: Sequence[Summary]) -> str:
    """Markdown table of one environment."""
    paper = PAPER.get(rows[0].env, PaperValues())
    solved = [] if paper.solved_above is None else [f"solved (> {paper.solved_above:g}) [95 % CI]"]
    header = [
        "method",
        "seeds",
        "final return, mean [95 % CI]",
        "IQM [95 % CI]",
        f"mean of the last {LAST_ITERATIONS} iterations",
        *solved,
        "first reward, median steps (seeds that met one)",
        "paper" if paper.steps is None else f"paper, at {in_millions(paper.steps)} steps",
    ]
    lines = [markdown_row(header), markdown_row(["---"] + ["---:"] * (len(header) - 1))]
    lines += [markdown_row(_cells(row, paper.decimals)) for row in rows]
    lines += [f"\n{sentence}" for row in rows for sentence in row.unfinished]
    return "\n".join(lines) + "\n"


def _cells(row: Summary, decimals: int) -> list[str]:
    def number(value: float) -> str:
        return f"{value:.{decimals}f}"

    solved = []
    if row.solved is not None:
        low, high = wilson_interval(row.solved, row.seeds)
        solved = [f"{row.solved}/{row.seeds} [{low:.2f}, {high:.2f}]"]
    median = "–" if math.isinf(row.first_reward) else f"{row.first_reward / 1e6:.2f}M"
    return [
        row.label,
        str(row.seeds),
        estimate(row.mean, row.mean_interval, row.seeds, decimals),
        estimate(row.iqm, row.iqm_interval, row.seeds, decimals),
        number(row.late),
        *solved,
        f"{median} ({row.rewarded}/{row.seeds})",
        "–" if row.paper is None else number(row.paper),
    ]


def estimate(value: float, interval: Interval, runs: int, decimals: int) -> str:
    """`1.5 [1.0, 2.0]`; a single run says nothing about others, and has no interval."""
    if runs == 1:
        return f"{value:.{decimals}f}"
    return f"{value:.{decimals}f} [{interval.low:.{decimals}f}, {interval.high:.{decimals}f}]"


def csv_row(row: Summary) -> dict[str, object]:
    """The numbers of a row for machines; a single run has no interval."""
    nothing = (None, None)
    mean_low, mean_high = nothing if row.seeds == 1 else row.mean_interval
    iqm_low, iqm_high = nothing if row.seeds == 1 else row.iqm_interval
    return {
        "env": row.env,
        "method": row.label,
        "seeds": row.seeds,
        "steps": row.steps,
        "mean": row.mean,
        "mean_low": mean_low,
        "mean_high": mean_high,
        "iqm": row.iqm,
        "iqm_low": iqm_low,
        "iqm_high": iqm_high,
        "late_mean": row.late,
        "solved": row.solved,
        "first_reward_median": row.first_reward,
        "rewarded": row.rewarded,
        "paper": row.paper,
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Rows with the same keys, floats to six digits, nothing for None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(
                f"{value:.6g}" if isinstance(value, float) else value for value in row.values()
            )
    return path


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
