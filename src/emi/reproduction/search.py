"""The search for each method's coefficient η: the same values, seeds and steps for every method."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emi.report.load import Run
from emi.report.tables import LAST_ITERATIONS, markdown_row
from emi.reproduction.paper_values import METHOD_ORDER, TITLES


@dataclass(frozen=True)
class Trial:
    """One coefficient of one method, over its seeds."""

    method: str
    eta: float
    runs: Sequence[Run]

    @property
    def late_return(self) -> float:
        """Mean over the seeds of the return of the last iterations."""
        return float(np.mean([run.final_return(LAST_ITERATIONS) for run in self.runs]))

    @property
    def rewarded(self) -> float:
        """Share of all iterations in which some episode was rewarded."""
        return float(np.mean(np.concatenate([run.metrics["return_max"] > 0 for run in self.runs])))

    @property
    def score(self) -> tuple[float, float]:
        """What the search maximises: late return, and where that is equal, rewarded iterations."""
        return round(self.late_return, 1), round(self.rewarded, 3)


def trials(runs: Sequence[Run]) -> dict[str, list[Trial]]:
    """The runs of a search by method, in the paper's order, and by coefficient; equal budgets only.

    A method that had more seeds or steps than another would have had an unfair chance.
    """
    by_cell: dict[tuple[str, float], list[Run]] = {}
    for run in runs:
        by_cell.setdefault((run.method, run.config["eta"]), []).append(run)
    found: dict[str, list[Trial]] = {}
    for method in METHOD_ORDER:
        etas = sorted(eta for name, eta in by_cell if name == method)
        if etas:
            found[method] = [Trial(method, eta, by_cell[method, eta]) for eta in etas]
    budgets = {
        method: sorted((t.eta, run.seed, run.steps) for t in row for run in t.runs)
        for method, row in found.items()
    }
    first = next(iter(budgets), None)
    for method, budget in budgets.items():
        if first is not None and budget != budgets[first]:
            raise ValueError(
                f"{method} and {first} were searched with different coefficients, seeds or steps: "
                "run what is missing"
            )
    return found


def chosen(row: Sequence[Trial]) -> list[Trial]:
    """The best trials of one method: several when the search cannot tell them apart."""
    best = max(trial.score for trial in row)
    return [trial for trial in row if trial.score == best]


def search_table(runs: Sequence[Run]) -> str:
    """Markdown: a row for each method, a column for each coefficient, the best in bold."""
    found = trials(runs)
    etas = sorted({trial.eta for row in found.values() for trial in row})
    lines = [
        markdown_row(["method", *(f"η = {eta:g}" for eta in etas)]),
        markdown_row(["---"] + ["---:"] * len(etas)),
    ]
    for method, row in found.items():
        best = chosen(row)
        cells = []
        for trial in row:
            returns = ", ".join(f"{run.final_return(LAST_ITERATIONS):.1f}" for run in trial.runs)
            cell = f"{returns} ({trial.rewarded:.0%})"
            cells.append(f"**{cell}**" if trial in best else cell)
        lines.append(markdown_row([TITLES.get(method, method), *cells]))
    return "\n".join(lines) + "\n"
