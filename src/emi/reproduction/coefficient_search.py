"""Ours: the search for the coefficient η of each baseline, with the same budget for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emi.errors import UserError
from emi.intrinsic.table import order_of, title_of
from emi.report.load import Run, final_returns
from emi.report.summary import LAST_ITERATIONS
from emi.report.tables import markdown_table, write_csv
from emi.reproduction.drawing import write_markdown
from emi.reproduction.experiment import Arm, Experiment, Found
from emi.reproduction.tasks import CHEETAH

METHODS = ("ex2", "icm", "rnd", "simhash", "vime")
COEFFICIENTS = (0.0001, 0.001, 0.01, 0.1)
SEEDS = (5, 6)  # none of the seeds that are reported
STEPS = 1_000_000

RULE = (
    "Mean return of the last ten iterations of each seed, and the share of iterations with a "
    "reward. The chosen coefficient (bold) has the highest mean return; ties are decided by the "
    "share of iterations with a reward."
)


@dataclass(frozen=True)
class Trial:
    """One coefficient of one method, over its seeds."""

    method: str
    eta: float
    runs: Sequence[Run]

    @property
    def late_return(self) -> float:
        """Mean over the seeds of the return of the last iterations; NaN without an episode."""
        returns = final_returns(self.runs, LAST_ITERATIONS)
        return float(np.mean(returns)) if len(returns) else float("nan")

    @property
    def rewarded(self) -> float:
        """Share of all iterations in which some episode had a reward."""
        return float(np.mean(np.concatenate([run.metrics["return_max"] > 0 for run in self.runs])))

    @property
    def score(self) -> tuple[float, float]:
        """What the search maximises: late return, then the share of rewarded iterations."""
        late = -np.inf if np.isnan(self.late_return) else round(self.late_return, 1)
        return late, round(self.rewarded, 3)


def trials(runs: Sequence[Run]) -> dict[str, list[Trial]]:
    """The runs of a search by method and coefficient.

    UserError if the methods were given different budgets, which would make the search unfair.
    """
    cells: dict[tuple[str, float], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.method, run.config["eta"]), []).append(run)
    found: dict[str, list[Trial]] = {}
    for method, eta in sorted(cells, key=lambda cell: (order_of(cell[0]), cell[1])):
        found.setdefault(method, []).append(Trial(method, eta, cells[method, eta]))
    budgets = {
        method: sorted((t.eta, run.seed, run.steps) for t in row for run in t.runs)
        for method, row in found.items()
    }
    first = next(iter(budgets), None)
    for method, budget in budgets.items():
        if first is not None and budget != budgets[first]:
            raise UserError(
                f"{method} and {first} were searched with different coefficients, seeds or steps: "
                "run what is missing"
            )
    return found


def chosen(row: Sequence[Trial]) -> list[Trial]:
    """The best trials of one method; several if they have the same score."""
    best = max(trial.score for trial in row)
    return [trial for trial in row if trial.score == best]


def search_table(found: dict[str, list[Trial]]) -> str:
    """Markdown: one row per method, one column per coefficient, the best in bold."""
    etas = sorted({trial.eta for row in found.values() for trial in row})
    rows = []
    for method, row in found.items():
        best, cells = chosen(row), []
        for trial in row:
            returns = ", ".join(f"{run.final_return(LAST_ITERATIONS):.1f}" for run in trial.runs)
            cell = f"{returns} ({trial.rewarded:.0%})"
            cells.append(f"**{cell}**" if trial in best else cell)
        rows.append([title_of(method), *cells])
    return markdown_table(["method", *(f"η = {eta:g}" for eta in etas)], rows)


def draw(found: Found, stem: Path) -> list[Path]:
    by_method = trials([run for runs in found.runs.values() for run in runs])
    rows: list[dict[str, object]] = [
        {
            "method": trial.method,
            "eta": trial.eta,
            "late_return": trial.late_return,
            "rewarded": trial.rewarded,
        }
        for row in by_method.values()
        for trial in row
    ]
    page = write_markdown(found, stem, f"{search_table(by_method)}\n\n{RULE}")
    return [page, write_csv(stem, rows)]


EXPERIMENT = Experiment(
    name="coefficient_search",
    question="Which coefficient η does each baseline need on SparseHalfCheetah?",
    paper="does not state the coefficients of its baselines.",
    draw=draw,
    arms=tuple(
        Arm(f"search_eta_{eta:g}", CHEETAH, method, SEEDS, STEPS, (f"eta={eta:g}",))
        for eta in COEFFICIENTS
        for method in METHODS
    ),
)
