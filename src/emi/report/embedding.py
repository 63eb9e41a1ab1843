"""Figures of what a run explored: its states in φ-space, and the error model over an episode.

Both are drawn from the embedding sample that a complete run of emi or emi-d writes: the
trajectories of its first environments in its last batch.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from emi.errors import UserError
from emi.intrinsic.table import title_of
from emi.report.load import Run
from emi.report.sample_file import Sample, read_sample_file
from emi.report.style import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    HALO,
    INK,
    PINK,
    SMALL,
    VERMILION,
    WIDTH,
    in_our_style,
    new_figure,
    save_figure,
)
from emi.report.tensors_file import Array

IntArray = npt.NDArray[np.int64]

FRAMES = (2, 3)  # rows and columns of frames next to a scatter of images
PEAKS_APART = 50  # the distance of two peaks is at least the episode's length divided by this
# The five transitions of highest ‖S‖.
PEAK_COLOURS = {"a": BLUE, "b": VERMILION, "c": GREEN, "d": PINK, "e": BROWN}
MARK: dict[str, Any] = {"color": "white", "markeredgecolor": INK, "linestyle": "none"}


class SampledEpisode(NamedTuple):
    rows: IntArray  # [steps] of the sample, in time order
    whole: bool  # whether the sample contains its end

    def describe(self) -> str:
        steps = f"{len(self.rows):,} steps"
        if self.whole:
            return f"a whole episode, {steps}"
        return f"one episode, {steps} up to the end of the sample"


@in_our_style
def draw_embedding(run: Run, stem: Path, *, note: str = "") -> Path:
    """Write `stem`.png: states in φ-space coloured by time, and one episode as a path.

    The right half shows numbered frames along the path (images) or the states coloured by their
    bonus (vectors). A `note` is added to the title.
    """
    sample = read_sample(run)
    clock = sample["clock"]
    points, labels = plane(sample["phi"], clock)
    episode = choose_episode(path_rows(sample))
    what = f"{len(points):,} states of the last batch; the line is {episode.describe()}"
    figure = new_figure(WIDTH, 3.9, _title(run, what, note))
    left, right = figure.subfigures(1, 2, squeeze=False)[0]
    by_time = left.subplots()
    _draw_states(by_time, points, clock, "step of the episode", percentiles=(0, 100))
    panels = [by_time]
    if "frame" in sample:
        shown = along(episode.rows, FRAMES[0] * FRAMES[1])
        by_time.plot(*points[shown].T, "o", **MARK, markersize=4, zorder=4)
        for number, row in enumerate(shown, 1):
            # Labels point in different directions, since points of a path can coincide.
            angle = 2 * np.pi * number / len(shown)
            _write_next_to(by_time, points[row], str(number), "black", angle)
        _draw_strip(right, sample["frame"][shown], clock[shown])
    else:
        panels.append(right.subplots())
        # A few bonuses can be many times larger than the others.
        _draw_states(panels[1], points, sample["bonus"], "bonus", percentiles=(1, 99))
    _draw_path(by_time, points[episode.rows])
    for panel in panels:
        panel.set(xlabel=labels[0], ylabel=labels[1], box_aspect=1)
        if sample["phi"].shape[1] > 1:  # equal units on both axes
            panel.set_aspect("equal", adjustable="datalim")
    return save_figure(figure, stem)


@in_our_style
def draw_error_model(run: Run, stem: Path, *, note: str = "") -> Path:
    """Write `stem`.png: ‖S(s, a)‖ over one episode, its five highest peaks marked.

    For images, the frames s and s' of each peak are shown below. A `note` is added to the title.
    """
    sample = read_sample(run)
    episode = choose_episode(path_rows(sample))
    clock, bonus = (sample[name][episode.rows] for name in ("clock", "bonus"))
    norm = np.linalg.norm(sample["error"][episode.rows], axis=1)
    marked = peaks(norm)
    title = _title(run, f"the error model in {episode.describe()}", note)
    figure = new_figure(WIDTH, 5.2 if "frame" in sample else 2.6, title)
    above: Figure | SubFigure = figure
    if "frame" in sample:
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.1))[:, 0]
        _draw_pairs(below, sample, episode.rows[marked])
    panel = above.subplots()
    panel.plot(clock, norm, color=GREY, linewidth=0.6)
    for (letter, colour), step in zip(PEAK_COLOURS.items(), marked, strict=False):
        label = f"{letter}: step {clock[step]:,}, bonus {bonus[step]:.3g}"
        panel.plot(clock[step], norm[step], "o", color=colour, markersize=4, label=label)
        _write_next_to(panel, (clock[step], norm[step]), letter, colour, np.pi / 2)
    panel.margins(x=0.02, y=0.12)
    panel.set(ylim=(0, None), xlabel="step of the episode", ylabel="‖S(s, a)‖")
    if len(marked):
        above.legend(loc="outside right center")
    return save_figure(figure, stem)


def read_sample(run: Run) -> Sample:
    """The embedding sample of a run; UserError if it has none or it is damaged."""
    if run.embedding is None:
        raise UserError(f"{run.path} has no embedding: complete runs of emi and emi-d have one")
    return read_sample_file(run.embedding)


def path_rows(sample: Sample) -> list[SampledEpisode]:
    """The episodes of a sample, by environment, each in time order."""
    env, ended = sample["env"], sample["ended"]
    rows = np.argsort(env, kind="stable")  # by environment, then by time
    last = ended[rows] | (np.diff(env[rows], append=-1) != 0)
    parts = np.split(rows, np.flatnonzero(last)[:-1] + 1)
    return [SampledEpisode(part, bool(ended[part[-1]])) for part in parts]


def choose_episode(episodes: list[SampledEpisode]) -> SampledEpisode:
    """The longest of the whole episodes, or of all if none is whole; the first of equals."""
    return max(episodes, key=lambda episode: (episode.whole, len(episode.rows)))


def peaks(norm: Array, count: int = len(PEAK_COLOURS), apart: int | None = None) -> IntArray:
    """The indices of the highest local maxima, at least `apart` from each other.

    [steps] to [≤ count], in time order. The ends can be maxima; a constant has none.
    """
    apart = max(2, len(norm) // PEAKS_APART) if apart is None else apart
    before, after = np.r_[-np.inf, norm[:-1]], np.r_[norm[1:], -np.inf]
    summits = np.flatnonzero((norm > before) & (norm >= after) & (norm > norm.min()))
    chosen: list[int] = []
    for place in summits[np.argsort(-norm[summits], kind="stable")]:
        if len(chosen) < count and all(abs(place - other) >= apart for other in chosen):
            chosen.append(int(place))
    return np.array(sorted(chosen), dtype=np.int64)


def along(rows: IntArray, count: int) -> IntArray:
    """`count` evenly spaced rows including the first and the last; all if there are fewer."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]


def plane(phi: Array, clock: IntArray) -> tuple[Array, tuple[str, str]]:
    """[n, d], [n] to points [n, 2] and the names of the axes.

    φ itself if d is 2, φ over time if d is 1, otherwise its first two principal components.
    """
    d = phi.shape[1]
    if d == 1:
        return np.column_stack([clock, phi[:, 0]]), ("step of the episode", "φ(s)")
    if d == 2:
        return phi, ("φ₁(s)", "φ₂(s)")
    centred = phi - phi.mean(0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    share = lengths**2 / max(np.sum(lengths**2), np.finfo(float).tiny)
    # The sign of a component is arbitrary: make its largest entry positive.
    largest = np.abs(directions[:2]).argmax(1)
    signs = np.sign(directions[[0, 1], largest])
    names = [f"principal component {k + 1} of {d}, {share[k]:.0%} of the variance" for k in (0, 1)]
    return centred @ (directions[:2] * signs[:, None]).T, (names[0], names[1])


def _title(run: Run, what: str, note: str) -> str:
    first = f"{run.env}, {title_of(run.method)}, seed {run.seed}, {run.reached:,.0f} steps"
    return "\n".join(filter(None, (first, what, note)))


def _draw_states(
    panel: Axes, points: Array, value: Array, meaning: str, *, percentiles: tuple[int, int]
) -> None:
    """The points, coloured by `value`; the colours range between two of its percentiles."""
    low, high = np.percentile(value, percentiles)
    x, y = points.T
    dots = panel.scatter(x, y, c=value, vmin=low, vmax=high, s=4, linewidths=0)
    beyond = "neither" if percentiles == (0, 100) else "both"
    # Inside the panel's own coordinates, so that it is as wide as the panel.
    above = panel.inset_axes((0, 1.03, 1, 0.04))
    bar = panel.figure.colorbar(dots, cax=above, extend=beyond, orientation="horizontal")
    bar.set_label(meaning)
    above.xaxis.set(ticks_position="top", label_position="top")
    bar.outline.set_visible(False)
    bar.ax.locator_params(nbins=5)
    panel.spines[["top", "right"]].set_visible(True)


def _draw_path(panel: Axes, points: Array) -> None:
    panel.plot(*points.T, color=INK, linewidth=0.4, alpha=0.7)
    for name, marker, end in (("start", "o", points[0]), ("end", "s", points[-1])):
        panel.plot(*end, marker, **MARK, markersize=5, zorder=4, label=name)
    # Not "best": searching a free place among thousands of states takes seconds.
    panel.legend(
        loc="upper right",
        frameon=True,
        edgecolor="none",
        borderpad=0.2,
        borderaxespad=0.2,
        handlelength=1,
    )


def _write_next_to(panel: Axes, point: Any, text: str, colour: str, angle: float) -> None:
    """Text next to a point, in the direction of `angle` from it."""
    panel.annotate(
        text,
        point,
        xytext=(8 * np.cos(angle), 8 * np.sin(angle)),
        textcoords="offset points",
        ha="center",
        va="center",
        color=colour,
        weight="bold",
        path_effects=HALO,
    )


def _draw_strip(figure: SubFigure, frames: Array, clock: IntArray) -> None:
    """Numbered frames [≤ 6, C, H, W] from the start of the path to its end."""
    panels = figure.subplots(*FRAMES)
    for panel in panels.flat:
        panel.set_axis_off()
    for number, (panel, frame) in enumerate(zip(panels.flat, frames, strict=False), 1):
        _show(panel, frame, "black")
        panel.set_title(
            f"{number}: step {clock[number - 1]:,}", fontsize=SMALL, weight="normal", pad=4
        )


def _draw_pairs(figure: SubFigure, sample: Sample, rows: IntArray) -> None:
    """s above s' for each of the rows, framed in the colour of its letter."""
    panels = figure.subplots(2, len(PEAK_COLOURS))
    for panel in panels.flat:
        panel.set_axis_off()
    for (letter, colour), (above, below), row in zip(
        PEAK_COLOURS.items(), panels.T, rows, strict=False
    ):
        _show(above, sample["frame"][row], colour)
        _show(below, sample["frame_next"][row], colour)
        above.set_title(letter, color=colour, loc="center", pad=4)
    for panel, name in zip(panels[:, 0], ("s", "s'"), strict=True):
        panel.set_ylabel(name, rotation="horizontal", ha="right")


def _show(panel: Axes, frame: Array, colour: str) -> None:
    """A frame [C, H, W], grey or in colour, with a border."""
    panel.set_axis_on()
    pixels = frame.transpose(1, 2, 0)
    panel.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set(color=colour, linewidth=1.5, visible=True)
