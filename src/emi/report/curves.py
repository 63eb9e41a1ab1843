"""The learning-curve figure: one panel per method, every seed visible, the paper's value dashed."""

from itertools import accumulate
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from emi.report.load import Run
from emi.report.paper_values import PAPER, TITLES, PaperValues, in_millions
from emi.report.statistics import bootstrap_band, on_common_steps

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"  # of Okabe and Ito's colour-blind safe set
PANEL_INCHES = (3.0, 2.9)
MOST_COLUMNS = 4


def draw_learning_curves(grid: dict[str, dict[str, list[Run]]], stem: Path) -> list[Path]:
    """Writes `stem`.png and `stem`.svg: a panel per method, new rows for each environment."""
    columns = min(MOST_COLUMNS, max(len(methods) for methods in grid.values()))
    rows = [-(-len(methods) // columns) for methods in grid.values()]
    figure = Figure(
        figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * sum(rows)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    for above, (env, methods) in zip(accumulate([0, *rows]), grid.items(), strict=False):
        first = None
        for place, (method, runs) in enumerate(methods.items()):
            index = above * columns + place + 1
            panel = figure.add_subplot(sum(rows), columns, index, sharey=first)
            first = first or panel
            _draw_panel(panel, runs, PAPER.get(env, PaperValues()), method)
            plural = "" if len(runs) == 1 else "s"
            panel.set_title(f"{TITLES.get(method, method)}, {len(runs)} seed{plural}", fontsize=10)
            if place % columns == 0:
                panel.set_ylabel(f"{env}\nreturn")
            else:
                panel.tick_params(labelleft=False)
    _add_legend(figure)
    return save_figure(figure, stem)


def _draw_panel(panel: Axes, runs: list[Run], paper: PaperValues, method: str) -> None:
    steps, returns = on_common_steps(
        [run.metrics["steps"] for run in runs], [run.metrics["return_mean"] for run in runs]
    )
    millions = steps / 1e6
    for curve in returns:
        panel.plot(millions, curve, color=GREY, linewidth=0.5, alpha=0.6)
    low, high = bootstrap_band(returns)
    panel.fill_between(millions, low, high, color=BLUE, alpha=0.2, linewidth=0)
    panel.plot(millions, returns.mean(axis=0), color=BLUE, linewidth=1.8)
    if method in paper.returns:
        value = paper.returns[method]
        # What was reached after more steps than are drawn must not be taken for these.
        later = paper.steps is not None and steps[-1] < paper.steps
        when = f", at {in_millions(paper.steps)} steps" if paper.steps and later else ""
        panel.axhline(value, color=ORANGE, linestyle="--", linewidth=1.2)
        panel.annotate(
            f"paper {value:g}{when}",
            xy=(0.02, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            color=ORANGE,
            fontsize=8,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
    panel.set_xlabel("environment steps (M)")
    panel.set_xlim(0, millions[-1])
    panel.spines[["top", "right"]].set_visible(False)


def _add_legend(figure: Figure) -> None:
    meanings = {
        "mean": Line2D([], [], color=BLUE, linewidth=1.8),
        "95 % bootstrap interval": Patch(color=BLUE, alpha=0.2, linewidth=0),
        "one seed": Line2D([], [], color=GREY, linewidth=0.8),
        "paper": Line2D([], [], color=ORANGE, linestyle="--", linewidth=1.2),
    }
    figure.legend(
        meanings.values(),
        meanings.keys(),
        loc="outside lower center",
        ncols=len(meanings),
        frameon=False,
        fontsize=8,
    )


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    # Without a date and with a fixed salt for ids, the same runs give the same bytes.
    figure.savefig(png, dpi=150, metadata={"Software": None})
    with mpl.rc_context({"svg.hashsalt": "emi", "svg.fonttype": "none"}):
        figure.savefig(svg, metadata={"Date": None})
    return [png, svg]
