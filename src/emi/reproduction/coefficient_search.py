"""Ours: the search for the coefficient η of each method, with the same budget for all."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from emi.errors import UserError
from emi.intrinsic.table import order_of, title_of
from emi.report.load import Run, final_returns
from emi.report.style import (
    GREY,
    WIDTH,
    in_our_style,
    legend_below,
    look_of,
    new_figure,
    save_figure,
    set_heading,
)
from emi.report.summary import LAST_ITERATIONS
from emi.report.tables import write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Arm, Experiment, Found
from emi.reproduction.tasks import CHEETAH

METHODS = ("emi", "ex2", "icm", "rnd", "simhash", "vime")
COEFFICIENTS = (0.0001, 0.001, 0.01, 0.1)
SEEDS = (5, 6)  # none of the seeds that are reported
STEPS = 1_000_000

RULE = (
    "Mean return of the last ten iterations of each seed, and the share of iterations with a "
    "reward. The chosen coefficient (bold) has the highest mean return; ties are decided by the "
    "share of iterations with a reward."
)

Trials = dict[float, list[Run]]  # of one method: the runs of each coefficient


def late_return(runs: Sequence[Run]) -> float:
    """Mean over the seeds of the return of the last iterations; NaN without an episode."""
    returns = final_returns(runs, LAST_ITERATIONS)
    return float(np.mean(returns)) if len(returns) else float("nan")


def rewarded(runs: Sequence[Run]) -> float:
    """Share of all iterations in which some episode had a reward."""
    return float(np.mean(np.concatenate([run.metrics["return_max"] > 0 for run in runs])))


def score(runs: Sequence[Run]) -> tuple[float, float]:
    """What the search maximises: late return, then the share of rewarded iterations."""
    late = late_return(runs)
    return -np.inf if np.isnan(late) else round(late, 1), round(rewarded(runs), 3)


def chosen(trials: Trials) -> list[float]:
    """The best coefficients of one method; several if they have the same score."""
    best = max(map(score, trials.values()))
    return [eta for eta, runs in trials.items() if score(runs) == best]


def by_method(runs: Sequence[Run]) -> dict[str, Trials]:
    """The runs of a search by method and coefficient.

    UserError if the methods were given different budgets, which would make the search unfair.
    """
    found: dict[str, Trials] = {}
    for run in sorted(runs, key=lambda run: (order_of(run.method), run.config["eta"])):
        found.setdefault(run.method, {}).setdefault(run.config["eta"], []).append(run)
    budgets = {
        method: sorted((eta, run.seed, run.steps) for eta, row in trials.items() for run in row)
        for method, trials in found.items()
    }
    first = next(iter(budgets), "")
    for method, budget in budgets.items():
        if budget != budgets[first]:
            raise UserError(
                f"{method} and {first} were searched with different coefficients, seeds or steps: "
                "run what is missing"
            )
    return found


def search_table(found: dict[str, Trials]) -> str:
    """Markdown: one row per method, one column per coefficient, the best in bold."""
    rows = []
    for method, trials in found.items():
        row = {"method": title_of(method)}
        for eta, runs in trials.items():
            returns = ", ".join(f"{run.final_return(LAST_ITERATIONS):.1f}" for run in runs)
            bold = "**" if eta in chosen(trials) else ""
            row[f"η = {eta:g}"] = f"{bold}{returns} ({rewarded(runs):.0%}){bold}"
        rows.append(row)
    return table_of(rows)


@in_our_style
def draw_search(found: dict[str, Trials], stem: Path, title: str) -> Path:
    """Both scores over the coefficient; the chosen coefficient of each method is filled."""
    figure = new_figure(WIDTH, 2.8, title)
    scores = (
        ("Return of the last ten iterations", "mean return", late_return),
        ("Iterations with a reward", "share of iterations", rewarded),
    )
    for axis, (heading, meaning, value) in zip(figure.subplots(1, 2), scores, strict=True):
        for method, trials in found.items():
            colour = look_of(method).colour
            values = {eta: value(runs) for eta, runs in trials.items()}
            axis.plot(values.keys(), values.values(), "o-", color=colour, mfc="white", ms=4)
            best = chosen(trials)
            axis.plot(best, [values[eta] for eta in best], "o", color=colour, ms=4)
        set_heading(axis, heading)
        axis.set(xscale="log", xlabel="coefficient η", ylabel=meaning)
        axis.xaxis.set_minor_locator(NullLocator())
    meanings: dict[str, Artist] = {
        title_of(method): Line2D([], [], color=look_of(method).colour) for method in found
    }
    meanings["chosen"] = Line2D([], [], color=GREY, marker="o", markersize=4, linestyle="none")
    legend_below(figure, meanings)
    return save_figure(figure, stem)


def draw(found: Found, stem: Path) -> list[Path]:
    methods = by_method([run for runs in found.runs.values() for run in runs])
    rows: list[dict[str, object]] = [
        {"method": method, "eta": eta, "late_return": late_return(runs), "rewarded": rewarded(runs)}
        for method, trials in methods.items()
        for eta, runs in trials.items()
    ]
    page = write_markdown(found, stem, f"{search_table(methods)}\n\n{RULE}")
    return [draw_search(methods, stem, found.scaled()), page, write_csv(stem, rows)]


EXPERIMENT = Experiment(
    name="coefficient_search",
    question="Which coefficient η does each method need on SparseHalfCheetah?",
    paper="does not state the coefficients of its baselines.",
    draw=draw,
    arms=tuple(
        Arm(f"search_eta_{eta:g}", CHEETAH, method, SEEDS, STEPS, (f"eta={eta:g}",))
        for eta in COEFFICIENTS
        for method in METHODS
    ),
)
