"""Curves over training: one panel per environment, in which all methods share the axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from emi.intrinsic.table import order_of
from emi.report.groups import Group
from emi.report.load import Run
from emi.report.reference import Reference
from emi.report.statistics import Array, bootstrap_band, thin
from emi.report.style import (
    GREY,
    NORMAL,
    PALE,
    SMALL,
    WIDTH,
    Look,
    in_our_style,
    legend_below,
    looks,
    new_figure,
    save_figure,
    set_heading,
    spread,
    wrapped,
)
from emi.report.summary import common_curves
from emi.report.tables import in_millions

STEPS = "environment steps (millions)"
SPACE = "\u00a0"  # at which no line is broken
ALONE = 4.6  # inches, the width of a figure with one panel
HEIGHT = 2.5  # inches of a row of panels
MOST_POINTS = 200  # per curve; longer curves are thinned
MANY = 6  # curves; with more, a panel needs its width
MOST_WITH_SEEDS = 3  # curves of a panel; with more, single seeds would hide the means


@dataclass(frozen=True)
class Curve:
    """Runs that differ only in their seed: values [runs, time] over x [time]."""

    label: str
    method: str  # decides the colour
    x: Array
    values: Array
    end: float  # of the x axis; x itself may be thinned
    without: int = 0  # further runs, which have no value
    reference_value: float | None = None

    @property
    def seeds(self) -> int:
        return len(self.values) + self.without


@dataclass(frozen=True)
class Panel:
    """The curves that share axes, and the published values that belong to them."""

    title: str
    curves: Sequence[Curve]
    meaning: str = "return"
    x_meaning: str = STEPS
    reference: Reference = field(default_factory=Reference)


def curve_of(
    label: str, runs: Sequence[Run], metric: str = "return_mean", reference: float | None = None
) -> Curve:
    """A metric of runs of one method over millions of environment steps."""
    steps, values = common_curves(runs, metric)
    width = max(1, -(-len(steps) // MOST_POINTS))
    without = len(runs) - len(values)
    x, end = thin(steps, width) / 1e6, float(steps[-1]) / 1e6 if len(steps) else 0.0
    return Curve(label, runs[0].method, x, thin(values, width), end, without, reference)


def metric_panel(title: str, groups: Iterable[Group], metric: str, meaning: str) -> Panel:
    """A metric of each group."""
    return Panel(title, [curve_of(g.label, g.runs, metric) for g in groups], meaning)


def return_panel(title: str, groups: Iterable[Group], reference: Reference) -> Panel:
    """The returns of each group, and the published return of its method."""
    curves = [curve_of(g.label, g.runs, reference=g.reference_value(reference)) for g in groups]
    return Panel(title, curves, reference=reference)


@in_our_style
def draw_learning_curves(panels: Sequence[Panel], stem: Path, *, title: str = "") -> Path:
    """Write `stem`.png: equal panels, and one legend for all of them."""
    curves = sorted((c for p in panels for c in p.curves), key=lambda curve: order_of(curve.method))
    styles = looks({curve.label: curve.method for curve in curves})
    most = max(len(panel.curves) for panel in panels)
    wide = most > MANY or any(map(_has_labels, panels))
    figure, axes = arrange(len(panels), title, wide=wide)
    fill_panels(figure, axes, panels, styles)
    return save_figure(figure, stem)


def fill_panels(
    figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel], styles: Mapping[str, Look]
) -> None:
    """Draw each panel, and the legend of all of them."""
    with_seeds = all(len(panel.curves) <= MOST_WITH_SEEDS for panel in panels)
    texts = [wrapped(_about(p), _inches(a), SMALL) for a, p in zip(axes, panels, strict=True)]
    most = max(text.count("\n") for text in texts)
    for axis, panel, text in zip(axes, panels, texts, strict=True):
        # The same number of lines, so that the titles are at the same height.
        name = wrapped(panel.title, 0.9 * _inches(axis), NORMAL)  # bold letters are wider
        set_heading(axis, name, text + "\n" * (most - text.count("\n")))
        _draw_panel(axis, panel, styles, with_seeds)
    _explain(figure, panels, styles, with_seeds)


def arrange(count: int, title: str = "", *, wide: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with so many equal panels, an incomplete last row centred.

    There are two `wide` panels in a row, or up to three others.
    """
    columns = min(count, 2 if wide or count == 4 else 3)
    rows = -(-count // columns)
    width = ALONE if count == 1 and not wide else WIDTH
    figure = new_figure(width, HEIGHT * rows + 0.3, title)
    grid = GridSpec(rows, 2 * columns, figure)
    axes = []
    for number in range(count):
        row, column = divmod(number, columns)
        left = 2 * column + max(0, (row + 1) * columns - count)
        axes.append(figure.add_subplot(grid[row, left : left + 2]))
    return figure, axes


def _draw_panel(axis: Axes, panel: Panel, styles: Mapping[str, Look], with_seeds: bool) -> None:
    """Mean and 95 % band of each curve, published values dashed."""
    drawn = [curve for curve in panel.curves if len(curve.x)]
    axis.set(xlabel=panel.x_meaning, ylabel=panel.meaning)
    if not drawn:
        axis.set(xticks=[], yticks=[])
        axis.annotate("no finished episode", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    # The first curve is drawn last: it is the one that the others are compared with.
    for curve in reversed(drawn):
        _draw_curve(axis, curve, styles[curve.label], with_seeds)
    axis.set_xlim(0, max(curve.end for curve in drawn))
    _draw_references(axis, panel, styles)


def _draw_curve(axis: Axes, curve: Curve, look: Look, with_seeds: bool) -> None:
    # One point is no line.
    marker: dict[str, Any] = {"marker": "o", "clip_on": False} if len(curve.x) == 1 else {}
    if len(curve.values) > 1:
        low, high = bootstrap_band(curve.values)
        alpha = 0.18 if with_seeds else 0.12  # many bands overlap
        axis.fill_between(curve.x, low, high, color=look.colour, alpha=alpha, linewidth=0)
        if with_seeds:
            seeds = curve.values.T
            axis.plot(curve.x, seeds, color=look.colour, linewidth=0.5, alpha=0.35, ms=2, **marker)
    mean = curve.values.mean(axis=0)
    axis.plot(curve.x, mean, color=look.colour, linestyle=look.dashes, ms=4, **marker)


def _explain(
    figure: Figure, panels: Sequence[Panel], styles: Mapping[str, Look], with_seeds: bool
) -> None:
    """The legend of all panels: what was drawn, and nothing else."""
    curves = [curve for panel in panels for curve in panel.curves if len(curve.x)]
    drawn = {curve.label for curve in curves}
    meanings: dict[str, Artist] = {
        label: Line2D([], [], color=look.colour, linestyle=look.dashes)
        for label, look in styles.items()
        if label in drawn
    }
    if any(len(curve.values) > 1 for curve in curves):
        meanings["95 % interval of the mean"] = Patch(color=PALE, linewidth=0)
        if with_seeds:
            meanings["one seed"] = Line2D([], [], color=GREY, linewidth=0.5)
    sources = {panel.reference.source for panel in panels if _has_labels(panel)}
    for source in sorted(sources):
        meanings[source] = Line2D([], [], color=GREY, linestyle="--", linewidth=0.8)
    if meanings:
        legend_below(figure, meanings)


def _inches(axis: Axes) -> float:
    """The width of a panel; the layout will make it a little wider than it is now."""
    return 1.05 * float(axis.get_window_extent().width / axis.figure.dpi)


def _is_reached(curve: Curve, reference: Reference) -> bool:
    """Whether a curve has as many steps as its published value.

    If not, a line would suggest that these runs should reach it, and flatten their curves.
    """
    enough = reference.steps is None or curve.end * 1e6 >= reference.steps
    return curve.reference_value is not None and len(curve.x) > 0 and enough


def _has_labels(panel: Panel) -> bool:
    return any(_is_reached(curve, panel.reference) for curve in panel.curves)


def _about(panel: Panel) -> str:
    """Seeds, runs without a value, and published values after more steps than these runs."""
    counts = {curve.seeds for curve in panel.curves}
    if len(counts) == 1:
        (count,) = counts
        each = " each" if len(panel.curves) > 1 else ""
        parts = [f"{count} seed{'' if count == 1 else 's'}{each}"]
    else:
        parts = ["seeds: " + ", ".join(f"{c.label}{SPACE}{c.seeds}" for c in panel.curves)]
    without = [f"{c.without}{SPACE}of{SPACE}{c.label}" for c in panel.curves if c.without]
    if without:
        parts.append(f"runs without a finished episode: {', '.join(without)}")
    reference = panel.reference
    later = [
        f"{curve.label}{SPACE}{curve.reference_value:g}"
        for curve in panel.curves
        if curve.reference_value is not None and not _is_reached(curve, reference)
    ]
    if later:
        after = "" if reference.steps is None else f" at {in_millions(reference.steps)} steps"
        parts.append(f"{reference.source}{after}: {', '.join(later)}")
    return "; ".join(parts)


def _draw_references(axis: Axes, panel: Panel, styles: Mapping[str, Look]) -> None:
    """Published values as dashed lines, named at the right of the panel."""
    known = [curve for curve in panel.curves if _is_reached(curve, panel.reference)]
    known.sort(key=lambda curve: curve.reference_value or 0.0)
    for curve in known:
        value, colour = curve.reference_value, styles[curve.label].colour
        assert value is not None, "it has a published value"
        axis.axhline(value, color=colour, linestyle="--", linewidth=0.8, alpha=0.8, zorder=1.9)
    if not known:
        return
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    gap = 1.3 * SMALL / (72 * 0.6 * HEIGHT) * (high - low)
    values = [curve.reference_value or 0.0 for curve in known]
    for curve, place in zip(known, spread(values, gap, low, high), strict=True):
        axis.annotate(
            f"{curve.label} {curve.reference_value:g}",
            (1, place),
            xytext=(3, 0),
            xycoords=axis.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=styles[curve.label].colour,
            annotation_clip=False,
        )
    axis.annotate(
        panel.reference.source,
        (1, 1),
        xytext=(3, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=SMALL,
        color=GREY,
    )
