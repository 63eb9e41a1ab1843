"""The figure of `emi coverage`: maps of visits and of the bonus, and what was covered over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from emi.report.coverage import Coverage, GroupCoverage, RunCoverage, cells_text
from emi.report.curves import STEPS
from emi.report.statistics import Array
from emi.report.style import (
    GREY,
    NORMAL,
    PALE,
    SMALL,
    WIDTH,
    in_our_style,
    legend_below,
    looks,
    new_figure,
    save_figure,
    set_heading,
    wrapped,
)

COLUMNS = 5  # maps in a row
FEW = 2  # groups whose two maps are next to each other
GROWTH = 2.1  # inches, the height of the curves
FLAT = 0.45  # the least height of a map, as a share of its width


@in_our_style
def draw_coverage(found: Coverage, stem: Path) -> Path:
    """Write `stem`.png: the visits and the bonus of each group, and what was covered over time."""
    mapped = [group for group in found.groups if group.plane is not None]
    rows = 1 if len(mapped) <= FEW else 2  # of a block: visits and bonus side by side or stacked
    columns = min(COLUMNS, 2 * len(mapped) if rows == 1 else len(mapped))
    blocks, shape = -(-len(mapped) // columns), _shape(mapped)
    maps = blocks * rows * (shape * (WIDTH / max(columns, 3) - 0.42) + 0.5)
    figure = new_figure(WIDTH, maps + GROWTH + 0.6, _title(found))
    if not mapped:
        _draw_growth(figure, figure, found)
        return save_figure(figure, stem)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(maps, GROWTH))[:, 0]
    axes = above.subplots(rows * blocks, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for block in range(blocks):
        row = mapped[block * columns : (block + 1) * columns]
        pairs = zip(*axes[2 * block : 2 * block + 2], strict=True) if rows == 2 else _pairs(axes[0])
        for group, (visits, bonus) in zip(row, pairs, strict=False):
            for axis in (visits, bonus):
                _prepare(axis, shape)
            _draw_visits(visits, group, mapped, bar=group is row[-1])
            _draw_bonus(bonus, group)
            visits.tick_params(labelbottom=rows == 1)
            left = visits if rows == 1 else bonus
            if group is row[0] and group.plane is not None:
                left.set_ylabel(wrapped(group.plane.names[1], 1.3, SMALL), fontsize=SMALL)
    _draw_growth(figure, below, found)
    return save_figure(figure, stem)


def _pairs(axes: Sequence[Axes]) -> list[tuple[Axes, Axes]]:
    return list(zip(axes[::2], axes[1::2], strict=True))


def _shape(groups: Sequence[GroupCoverage]) -> float:
    """Height of a map as a share of its width: true to scale, if both axes have the same unit."""
    if not groups or groups[0].plane is None or not _to_scale(groups):
        return 0.8
    plane = groups[0].plane
    return float(np.clip(np.ptp(plane.y) / np.ptp(plane.x), FLAT, 1.4))


def _to_scale(groups: Sequence[GroupCoverage]) -> bool:
    """Whether the environment has a map, which is drawn with equal units."""
    return all(group.plane is not None and group.plane.free is not None for group in groups)


def _title(found: Coverage) -> str:
    seeds = sorted({len(group.runs) for group in found.groups})
    each = " and ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")
    of = "sampled states" if found.sampled else "all visited states"
    if not found.shared and any(group.plane is not None for group in found.groups):
        of = "sampled frames in the φ-space of one run each"
    return f"{found.env}: {of}, {each}"


def _prepare(axis: Axes, shape: float) -> None:
    """A panel for a map."""
    axis.set_axis_on()
    axis.set(box_aspect=shape)
    axis.grid(visible=False)
    axis.spines[["top", "right"]].set_visible(True)
    axis.locator_params(nbins=3)
    axis.tick_params(labelsize=SMALL - 1)


def _draw_visits(
    axis: Axes, group: GroupCoverage, every: Sequence[GroupCoverage], *, bar: bool
) -> None:
    """Visits per seed, in colours that all groups share; the last map of a row has their scale."""
    counts = np.concatenate([_per_seed(other).ravel() for other in every])
    least = float(counts[counts > 0].min())
    norm = LogNorm(least, max(float(counts.max()), 10 * least))
    image = _show(axis, group, _per_seed(group), norm, "viridis")
    cells = cells_text(group)
    set_heading(axis, _short(group.label), "" if cells == "–" else f"{cells} cells")
    if bar:
        scale = axis.figure.colorbar(image, cax=axis.inset_axes((1.06, 0, 0.07, 1)))
        scale.set_label("visits per seed", fontsize=SMALL)
        scale.outline.set_visible(False)


def _per_seed(group: GroupCoverage) -> Array:
    return group.visits.sum(0) / max(1, len(group.runs))


def mean_bonus(group: GroupCoverage) -> Array:
    """[x, y]: the mean bonus of all visits of a cell; NaN where there are none."""
    visits = group.visits.sum(0)
    return np.where(visits > 0, group.bonus.sum(0) / np.maximum(visits, 1), np.nan)


def _draw_bonus(axis: Axes, group: GroupCoverage) -> None:
    """The mean bonus of a visit; the unit of a bonus is that of its method."""
    bonus = mean_bonus(group)
    low, high = np.nanpercentile(bonus, (1, 99))  # a few can be many times larger
    none = not np.nanmax(np.abs(bonus))
    norm = Normalize(low, high if high > low else low + 1)
    _show(axis, group, bonus, norm, "Greys" if none else "magma")
    set_heading(axis, "", "no bonus" if none else f"bonus {low:.2g} to {high:.2g}")
    assert group.plane is not None
    axis.set_xlabel(wrapped(group.plane.names[0], 1.3, SMALL), fontsize=SMALL)


def _show(
    axis: Axes, group: GroupCoverage, values: Array, norm: Normalize, colours: str
) -> QuadMesh:
    """Values [x, y] as a picture; cells without visits are white, walls are grey."""
    assert group.plane is not None
    plane, visited = group.plane, group.visits.sum(0) > 0
    if plane.free is not None:
        walls = np.ma.masked_where(plane.free | visited, np.zeros(values.shape))
        axis.pcolormesh(plane.x, plane.y, walls.T, cmap="gray", vmin=-4, vmax=1)
    seen = np.ma.masked_where(~visited, values)
    return axis.pcolormesh(plane.x, plane.y, seen.T, norm=norm, cmap=colours, rasterized=True)


def _short(label: str) -> str:
    return wrapped(label, 1.3, NORMAL)


def _draw_growth(figure: Figure, part: Figure | SubFigure, found: Coverage) -> None:
    """Cells visited, or distinct frames, up to each time; a thin line is one seed."""
    axis = part.subplots()
    styles = looks({group.label: group.method for group in found.groups})
    of_frames = not any(len(run.cells) for group in found.groups for run in group.runs)
    for group in found.groups:
        look = styles[group.label]
        curves = [_curve(run, of_frames) for run in group.runs]
        for steps, values in curves if len(curves) > 1 else ():
            axis.plot(steps / 1e6, values, color=look.colour, linewidth=0.5, alpha=0.4)
        length = min(len(values) for _, values in curves)
        if length:
            mean = np.mean([values[:length] for _, values in curves], axis=0)
            line = {"color": look.colour, "linestyle": look.dashes}
            axis.plot(curves[0][0][:length] / 1e6, mean, **line)
    known = found.groups[0].plane.known if found.shared and found.groups[0].plane else None
    if known is not None:
        axis.axhline(known, color=PALE, linewidth=0.8)
        above: dict[str, Any] = {"xytext": (4, 2), "textcoords": "offset points", "va": "bottom"}
        axis.annotate(f"all {known:,} cells", (0, known), **above, fontsize=SMALL, color=GREY)
    axis.set(xlabel=STEPS, ylabel="distinct frames" if of_frames else "cells visited")
    axis.set_ylim(0, None if known is None else 1.13 * known)
    axis.margins(x=0.01)
    lines = {
        label: Line2D([], [], color=look.colour, linestyle=look.dashes)
        for label, look in styles.items()
    }
    legend_below(figure, lines)


def _curve(run: RunCoverage, of_frames: bool) -> tuple[Array, Array]:
    """Steps and values, both from 0 on."""
    values = run.frames if of_frames else run.cells
    return np.append(0, run.steps[: len(values)]), np.append(0, values)
