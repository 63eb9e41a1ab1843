"""Supplementary figure 4: the three terms of equation 7 over training on SparseHalfCheetah."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator

from emi.report.curves import Curve, Panel, arrange, fill_panels
from emi.report.load import Run
from emi.report.statistics import Array
from emi.report.style import GREY, HALO, SMALL, in_our_style, look_of, save_figure
from emi.report.tables import write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, task

LOSSES = {
    "emi/loss_info": "Mutual information",
    "emi/loss_linear": "Linear dynamics",
    "emi/loss_error": "Model error ‖S‖²",
}
CONVERGED = 50  # iterations, according to the paper
LAST = 100  # iterations whose mean is taken as the end of training
POINTS = 100  # per curve, equally spaced on a logarithmic axis


def draw(found: Found, stem: Path) -> list[Path]:
    (runs,) = found.runs.values()
    losses = _losses(runs)
    rows = [
        _row(name, run.seed, curve)
        for name, curves in losses.items()
        for run, curve in zip(runs, curves, strict=True)
    ]
    return [
        _draw_figure(losses, stem, found.scaled()),
        write_markdown(found, stem, _table(rows)),
        write_csv(stem, rows),
    ]


def _losses(runs: Sequence[Run]) -> dict[str, Array]:
    """Each loss of every run up to the end of the shortest, [runs, iterations]."""
    length = min(len(run.metrics["iteration"]) for run in runs)
    return {name: np.stack([run.metrics[name][:length] for run in runs]) for name in LOSSES}


@in_our_style
def _draw_figure(losses: dict[str, Array], stem: Path, title: str) -> Path:
    """One panel per loss: the mean, its band, every seed; dashed where the paper sees the end."""
    figure, axes = arrange(len(losses), title)
    panels = []
    for name, values in losses.items():
        iterations = np.arange(1.0, values.shape[1] + 1)[None]
        x = by_decades(iterations)[0]
        curve = Curve("EMI", "emi", x, by_decades(values), end=x[-1])
        panels.append(Panel(LOSSES[name], [curve], "loss", "iteration"))
    fill_panels(figure, axes, panels, {"EMI": look_of("emi")})
    for axis in axes:
        axis.axvline(CONVERGED, color=GREY, linestyle="--", linewidth=0.8)
        axis.annotate(
            f"paper: converged\nby iteration {CONVERGED}",
            (CONVERGED, 0.97),
            xytext=(3, 0),
            xycoords=axis.get_xaxis_transform(),
            textcoords="offset points",
            va="top",
            fontsize=SMALL,
            color=GREY,
            path_effects=HALO,
        )
        _logarithmic(axis)
    return save_figure(figure, stem)


def by_decades(curves: Array) -> Array:
    """[n, time] to [n, ≤ POINTS]: means over intervals that grow with time, from one iteration on.

    A loss changes most in its first iterations.
    """
    length = curves.shape[1]
    starts = np.unique(np.geomspace(1, length, POINTS).astype(int)) - 1
    widths = np.diff(np.append(starts, length))
    return np.asarray(np.add.reduceat(curves, starts, axis=1) / widths)


def _logarithmic(panel: Axes) -> None:
    panel.set_xlim(left=1)
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
