"""Curves over training: one panel per method, every seed visible, the paper's value dashed."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from emi.report.load import Run
from emi.report.statistics import Array, bootstrap_band, on_common_steps
from emi.reproduction.paper_values import PAPER, TITLES, PaperValues, in_millions

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"  # of Okabe and Ito's colour-blind safe set
PANEL_INCHES = (3.0, 2.9)
MOST_COLUMNS = 4
TITLE_LETTERS = 12.5  # of a title in ten points that fit into an inch
MOST_POINTS = 200  # of a curve; where there are more iterations, neighbours are averaged


@dataclass(frozen=True)
class Panel:
    """Runs of one method or variant, and what the paper has for it."""

    title: str
    runs: Sequence[Run]
    paper: float | None = None
    paper_steps: int | None = None  # after which the paper's value was taken
    metric: str = "return_mean"
    meaning: str = "return"


def method_panel(runs: Sequence[Run]) -> Panel:
    """The returns of a method, beside its number in the paper's Table 1 where it has one."""
    method, paper = runs[0].method, PAPER.get(runs[0].env, PaperValues())
    return Panel(TITLES.get(method, method), runs, paper.returns.get(method), paper.steps)


def draw_learning_curves(
    rows: Mapping[str, Sequence[Panel]], stem: Path, *, title: str = ""
) -> list[Path]:
    """Writes `stem`.png and `stem`.svg: a panel each, new rows for each key, the y axes shared."""
    most = max(map(len, rows.values()))
    columns = -(-most // -(-most // MOST_COLUMNS))  # six panels as three and three
    heights = [-(-len(panels) // columns) for panels in rows.values()]
    height = PANEL_INCHES[1] * sum(heights) + (0.4 if title else 0)
    figure = new_figure(PANEL_INCHES[0] * max(columns, 2), height, title)
    for above, (name, panels) in zip(accumulate([0, *heights]), rows.items(), strict=False):
        first = None
        for place, content in enumerate(panels):
            index = above * columns + place + 1
            panel = figure.add_subplot(sum(heights), columns, index, sharey=first)
            first = first or panel
            draw_panel(panel, content)
            if place % columns == 0:
                panel.set_ylabel(f"{name}\n{content.meaning}")
            else:
                panel.tick_params(labelleft=False)
    lines = (line for panel in figure.axes for line in panel.lines)
    dashed = any(line.get_linestyle() == "--" for line in lines)
    add_legend(figure, paper="paper" if dashed else "")
    return save_figure(figure, stem)


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """A figure of so many inches that knows how to become a file."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        lines = textwrap.wrap(title, int(width * TITLE_LETTERS))
        figure.suptitle("\n".join(lines), fontsize=10)
    return figure


def draw_panel(panel: Axes, content: Panel) -> None:
    """The seeds, their mean and its band over environment steps, the paper's value dashed."""
    steps, values = on_common_steps(
        [run.metrics["steps"] for run in content.runs],
        [run.metrics[content.metric] for run in content.runs],
    )
    draw_band(panel, thin(steps) / 1e6, thin(values))
    if content.paper is not None:
        _draw_paper(panel, content.paper, content.paper_steps, steps[-1])
    plural = "" if len(content.runs) == 1 else "s"
    panel.set_title(f"{content.title}, {len(content.runs)} seed{plural}", fontsize=10)
    panel.set_xlabel("environment steps (M)")
    panel.set_xlim(0, steps[-1] / 1e6)


def _draw_paper(panel: Axes, value: float, at: int | None, drawn: float) -> None:
    """The paper's value as a line; in words alone if it was reached after more steps than `drawn`.

    Such a line would be taken for what these steps should give, and flatten the curves below it.
    """
    style: dict[str, Any] = {
        "color": ORANGE,
        "fontsize": 8,
        "path_effects": [withStroke(linewidth=2.5, foreground="white")],
    }
    if at is not None and drawn < at:
        text = f"paper {value:g}, at {in_millions(at)} steps"
        panel.annotate(text, xy=(0.02, 0.93), xycoords="axes fraction", **style)
        return
    panel.axhline(value, color=ORANGE, linestyle="--", linewidth=1.2)
    panel.annotate(
        f"paper {value:g}",
        xy=(0.02, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        **style,
    )


def draw_band(panel: Axes, x: Array, values: Array) -> None:
    """Curves [runs, time] over x [time]: each thin, their mean thick, its 95 % band shaded."""
    for curve in values:
        panel.plot(x, curve, color=GREY, linewidth=0.5, alpha=0.6)
    low, high = bootstrap_band(values)
    panel.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0)
    panel.plot(x, values.mean(axis=0), color=BLUE, linewidth=1.8)
    panel.spines[["top", "right"]].set_visible(False)


def thin(values: Array, most: int = MOST_POINTS) -> Array:
    """[..., time] to [..., ≤ most]: means of neighbours, equally many for every point.

    What does not fill a last point is left out at the beginning, so that the end is kept.
    """
    width = -(-values.shape[-1] // most)
    count = values.shape[-1] // width
    kept = values[..., values.shape[-1] - count * width :]
    return np.asarray(kept.reshape(*values.shape[:-1], count, width).mean(axis=-1))


def add_legend(figure: Figure, *, paper: str) -> None:
    """What the lines of `draw_band` mean, and the dashed one, where there is any."""
    meanings: dict[str, Artist] = {
        "mean": Line2D([], [], color=BLUE, linewidth=1.8),
        "95 % bootstrap interval": Patch(color=BLUE, alpha=0.2, linewidth=0),
        "one seed": Line2D([], [], color=GREY, linewidth=0.8),
    }
    if paper:
        meanings[paper] = Line2D([], [], color=ORANGE, linestyle="--", linewidth=1.2)
    legend_below(figure, meanings)


def legend_below(figure: Figure, meanings: Mapping[str, Artist]) -> None:
    """One row under all panels: what each line or patch means."""
    figure.legend(
        meanings.values(),
        meanings.keys(),
        loc="outside lower center",
        ncols=len(meanings),
        frameon=False,
        fontsize=8,
    )


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Writes `stem`.png and `stem`.svg; the same figure gives the same bytes."""
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Without a date and with a fixed salt for ids, the same runs give the same bytes.
    figure.savefig(png, dpi=150, metadata={"Software": None})
    with mpl.rc_context({"svg.hashsalt": "emi", "svg.fonttype": "none"}):
        figure.savefig(svg, metadata={"Date": None})
    return [png, svg]
