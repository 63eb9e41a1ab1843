"""The table of final returns: one row per method, in the paper's order, the paper's value last."""

from collections.abc import Sequence

import numpy as np

from emi.report.load import Run
from emi.report.paper_values import PAPER, TITLES, PaperValues, in_millions
from emi.report.statistics import (
    Array,
    bootstrap_interval,
    interquartile_mean,
    wilson_interval,
)

LAST_ITERATIONS = 10


def return_table(env: str, runs_by_method: dict[str, list[Run]]) -> str:
    """Markdown table of one environment; the rows come in the order of `runs_by_method`.

    The final return of a run is `return_mean` of its last iteration.
    """
    paper = PAPER.get(env, PaperValues())
    number = f"{{:.{paper.decimals}f}}".format
    solved = "" if paper.solved_above is None else f" (final return > {paper.solved_above:g})"
    header = [
        "method",
        "seeds",
        "final return, mean [95 % CI]",
        "IQM",
        f"mean of the last {LAST_ITERATIONS} iterations",
        f"solved{solved} [95 % CI]",
        "paper" if paper.steps is None else f"paper, at {in_millions(paper.steps)} steps",
    ]
    lines = [markdown_row(header), markdown_row(["---"] + ["---:"] * (len(header) - 1))]
    for method, runs in runs_by_method.items():
        final = np.array([run.final_return() for run in runs])
        late = np.array([run.final_return(LAST_ITERATIONS) for run in runs])
        low, high = bootstrap_interval(final)
        lines.append(
            markdown_row(
                [
                    TITLES.get(method, method),
                    str(len(runs)),
                    f"{number(final.mean())} [{number(low)}, {number(high)}]",
                    number(interquartile_mean(final)),
                    number(late.mean()),
                    _solved(final, paper.solved_above),
                    number(paper.returns[method]) if method in paper.returns else "–",
                ]
            )
        )
    for runs in runs_by_method.values():
        lines += [
            f"\nNot finished: {run.method}, seed {run.seed}, "
            f"{run.metrics['steps'][-1]:.0f} of {run.steps} steps."
            for run in runs
            if not run.finished
        ]
    return "\n".join(lines) + "\n"


def _solved(final: Array, above: float | None) -> str:
    if above is None:
        return "–"
    successes, trials = int((final > above).sum()), len(final)
    low, high = wilson_interval(successes, trials)
    return f"{successes}/{trials} [{low:.2f}, {high:.2f}]"


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
