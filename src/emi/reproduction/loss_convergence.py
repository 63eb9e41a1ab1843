"""Supplementary figure 4: the three terms of equation 7 over training on SparseHalfCheetah."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator

from emi.report.curves import ORANGE, PANEL_INCHES, add_legend, draw_band, new_figure, save_figure
from emi.report.statistics import Array
from emi.report.tables import write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, task

LOSSES = {
    "emi/loss_info": "mutual information loss",
    "emi/loss_linear": "linear dynamics loss",
    "emi/loss_error": "model error loss ‖S‖²",
}
CONVERGED = 50  # iterations, according to the paper
LAST = 100  # iterations whose mean is taken as the end of training
POINTS = 100  # per curve, equally spaced on a logarithmic axis


def draw(found: Found, stem: Path) -> list[Path]:
    (runs,) = found.runs.values()
    length = min(len(run.metrics["iteration"]) for run in runs)
    iterations = np.arange(1.0, length + 1)[None]
    figure = new_figure(PANEL_INCHES[0] * 3, PANEL_INCHES[1] + 0.4, found.scaled())
    rows: list[dict[str, object]] = []
    for panel, (name, meaning) in zip(figure.subplots(1, 3), LOSSES.items(), strict=True):
        curves = np.stack([run.metrics[name][:length] for run in runs])
        draw_band(panel, by_decades(iterations)[0], by_decades(curves))
        panel.axvline(CONVERGED, color=ORANGE, linestyle="--", linewidth=1.2)
        panel.set_title(meaning, fontsize=10)
        panel.set_xlabel("iteration")
        _logarithmic(panel)
        rows += [_row(name, run.seed, curve) for run, curve in zip(runs, curves, strict=True)]
    add_legend(figure, dashed=f"paper: converged by iteration {CONVERGED}")
    page = write_markdown(found, stem, _table(rows))
    return [save_figure(figure, stem), page, write_csv(stem, rows)]


def by_decades(curves: Array) -> Array:
    """[n, time] to [n, ≤ POINTS]: means over intervals that grow with time, from one iteration on.

    A loss changes most in its first iterations.
    """
    length = curves.shape[1]
    starts = np.unique(np.geomspace(1, length, POINTS).astype(int)) - 1
    widths = np.diff(np.append(starts, length))
    return np.asarray(np.add.reduceat(curves, starts, axis=1) / widths)


def _logarithmic(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis, subs in ((panel.xaxis, (1.0,)), (panel.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FormatStrFormatter("%g"))
    panel.minorticks_off()


def _row(loss: str, seed: int, curve: Array) -> dict[str, object]:
    first, then = float(curve[0]), float(curve[min(CONVERGED, len(curve)) - 1])
    end = float(curve[-LAST:].mean())
    return {
        "loss": loss,
        "seed": seed,
        "first": first,
        f"iteration_{CONVERGED}": then,
        "end": end,
        "share_of_fall": (first - then) / (first - end) if first != end else 1.0,
    }


def _table(rows: list[dict[str, object]]) -> str:
    return table_of(
        [
            {
                "loss": f"`{row['loss']}`",
                "seed": f"{row['seed']}",
                "iteration 1": f"{row['first']:.3g}",
                f"iteration {CONVERGED}": f"{row[f'iteration_{CONVERGED}']:.3g}",
                f"mean of the last {LAST}": f"{row['end']:.3g}",
                f"share of the fall by iteration {CONVERGED}": f"{row['share_of_fall']:.0%}",
            }
            for row in rows
        ]
    )


EXPERIMENT = Experiment(
    name="loss_convergence",
    question="Do the losses of the embedding converge, and how soon?",
    paper=f"all loss terms converge within the first {CONVERGED} iterations.",
    draw=draw,
    arms=task(CHEETAH, ("emi",)),
)
