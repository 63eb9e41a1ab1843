"""Curves over training: one panel per group, every seed visible, the published value dashed."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from emi.durable_file import write_durably
from emi.report.groups import Group
from emi.report.load import Run
from emi.report.reference import Reference
from emi.report.statistics import Array, bootstrap_band, thin
from emi.report.summary import common_curves
from emi.report.tables import in_millions, with_ending

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"  # Okabe and Ito's colour-blind safe palette
HALO = [withStroke(linewidth=2.5, foreground="white")]
PANEL_INCHES = (3.0, 2.9)
MOST_COLUMNS = 4
TITLE_LETTERS = 12.5  # per inch, of a title in ten points
MOST_POINTS = 200  # per curve; longer curves are thinned


@dataclass(frozen=True)
class Panel:
    """The runs of one panel, and the published value that belongs to them."""

    title: str
    runs: Sequence[Run]
    reference_value: float | None = None
    reference: Reference = field(default_factory=Reference)
    metric: str = "return_mean"
    meaning: str = "return"


def return_panel(group: Group, reference: Reference) -> Panel:
    """The returns of a group and the published return of its method."""
    return Panel(group.label, group.runs, group.reference_value(reference), reference)


def draw_learning_curves(
    rows: Mapping[str, Sequence[Panel]], stem: Path, *, title: str = ""
) -> Path:
    """Write `stem`.png: the panels of each key in rows of their own, with a shared y axis."""
    most = max(map(len, rows.values()))
    columns = -(-most // -(-most // MOST_COLUMNS))  # six panels in two rows of three
    heights = [-(-len(panels) // columns) for panels in rows.values()]
    height = PANEL_INCHES[1] * sum(heights) + (0.4 if title else 0)
    figure = new_figure(PANEL_INCHES[0] * max(columns, 2), height, title)
    for above, (name, panels) in zip(accumulate([0, *heights]), rows.items(), strict=False):
        first = None
        for number, content in enumerate(panels):
            index = above * columns + number + 1
            panel = figure.add_subplot(sum(heights), columns, index, sharey=first)
            first = first or panel
            draw_panel(panel, content)
            if number % columns == 0:
                panel.set_ylabel(f"{name}\n{content.meaning}")
            else:
                panel.tick_params(labelleft=False)
    lines = (line for panel in figure.axes for line in panel.lines)
    dashed = {str(line.get_label()) for line in lines if line.get_linestyle() == "--"}
    add_legend(figure, dashed=", ".join(sorted(dashed)))
    return save_figure(figure, stem)


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """A figure of this size in inches; lines of the title that are too long are wrapped."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        most = int(width * TITLE_LETTERS)
        lines = [part for line in title.split("\n") for part in textwrap.wrap(line, most)]
        figure.suptitle("\n".join(lines), fontsize=10)
    return figure


def draw_panel(panel: Axes, content: Panel) -> None:
    """Every seed, the mean and its band over environment steps, the published value dashed."""
    steps, values = common_curves(content.runs, content.metric)
    plural = "" if len(content.runs) == 1 else "s"
    panel.set_title(f"{content.title}, {len(content.runs)} seed{plural}", fontsize=10)
    panel.set_xlabel("environment steps (M)")
    missing = len(content.runs) - len(values)
    if missing:
        runs = "run" if missing == 1 else "runs"
        text = f"{missing} {runs} without a finished episode"
        panel.annotate(text, (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=7)
    panel.spines[["top", "right"]].set_visible(False)
    if len(steps) == 0:
        return
    width = -(-len(steps) // MOST_POINTS)
    draw_band(panel, thin(steps, width) / 1e6, thin(values, width))
    if content.reference_value is not None:
        _draw_reference(panel, content.reference_value, content.reference, steps[-1])
    panel.set_xlim(0, steps[-1] / 1e6)


def _draw_reference(panel: Axes, value: float, reference: Reference, drawn: float) -> None:
    """The published value as a line, or as text if it was measured after more steps than `drawn`.

    In that case a line would suggest that these runs should reach it, and flatten their curves.
    """
    text = f"{reference.source} {value:g}"
    place: dict[str, Any] = {"xy": (0.02, 0.93), "xycoords": "axes fraction"}
    if reference.steps is not None and drawn < reference.steps:
        text = f"{text}, at {in_millions(reference.steps)} steps"
    else:
        panel.axhline(value, color=ORANGE, linestyle="--", linewidth=1.2, label=reference.source)
        place = {"xy": (0.02, value), "xycoords": ("axes fraction", "data")}
        place |= {"xytext": (0, 3), "textcoords": "offset points"}
    panel.annotate(text, **place, color=ORANGE, fontsize=8, path_effects=HALO)


def draw_band(panel: Axes, x: Array, values: Array) -> None:
    """Curves [runs, time] over x [time]: each one thin, the mean thick, its 95 % band shaded."""
    for curve in values:
        panel.plot(x, curve, color=GREY, linewidth=0.5, alpha=0.6)
    low, high = bootstrap_band(values)
    panel.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0)
    panel.plot(x, values.mean(axis=0), color=BLUE, linewidth=1.8)
    panel.spines[["top", "right"]].set_visible(False)


def add_legend(figure: Figure, *, dashed: str = "") -> None:
    """Explain the lines of `draw_band`, and the dashed line if there is one."""
    meanings: dict[str, Artist] = {
        "mean": Line2D([], [], color=BLUE, linewidth=1.8),
        "95 % bootstrap interval": Patch(color=BLUE, alpha=0.2, linewidth=0),
        "one seed": Line2D([], [], color=GREY, linewidth=0.8),
    }
    if dashed:
        meanings[dashed] = Line2D([], [], color=ORANGE, linestyle="--", linewidth=1.2)
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


def save_figure(figure: Figure, stem: Path) -> Path:
    """Write `stem`.png; the same figure gives the same bytes."""
    path, buffer = with_ending(stem, "png"), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_durably(path, buffer.getvalue())
    return path
