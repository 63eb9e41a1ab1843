"""Ours: one episode of a trained agent as an animation, in the simulation and in the embedding.

The episode is that of the embedding's figure: the first of the last batch of seed 0. Its
observations hold the pose of the cheetah, so neither a checkpoint nor a renderer is needed.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator
from PIL import Image

from emi.batch import FloatArray
from emi.errors import UserError
from emi.intrinsic.table import title_of
from emi.report.embedding import choose_episode, path_rows, plane, read_sample
from emi.report.load import Run, embedding_of, load_run
from emi.report.style import (
    GREEN,
    INK,
    NORMAL,
    PALE,
    SMALL,
    in_our_style,
    new_figure,
    save_animation,
    set_heading,
)
from emi.report.tables import in_millions
from emi.reproduction.cheetah_pose import CENTRE_X, load_skeleton
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, run_of_emi, task

LINE = 5.0  # metres from the start; beyond it every step has a reward of 1
SIZE = (9.0, 3.75)  # inches
DPI = 100
STRIDE = 4  # steps of 0.01 s from frame to frame
FRAME_SECONDS, LAST_SECONDS = 0.05, 1.5
SEEN = 4.0  # metres of the ground in view
RECENT = 60  # steps of the path that are drawn bold
TORSO, HIND_LEG, FRONT_LEG = "#d9a05b", "#8c5a2b", "#b97a3d"


class Episode:
    """What is drawn of a run's episode, one row per step."""

    def __init__(self, run: Run) -> None:
        sample = read_sample(run)
        if "obs" not in sample or sample["obs"].shape[1] <= CENTRE_X:
            raise UserError(f"the embedding sample of {run.place} has no observations of {run.env}")
        rows = choose_episode(path_rows(sample)).rows
        steps = in_millions(run.reached)
        self.title = f"{run.env} after {steps} steps with {title_of(run.method)} (seed {run.seed})"
        self.states, self.axes = plane(sample["phi"], sample["clock"])  # of the whole batch, [n, 2]
        self.path = self.states[rows]
        self.bonus, self.range = sample["bonus"][rows], np.percentile(sample["bonus"], (1, 99))
        self.total = np.cumsum(sample["reward"][rows])
        self.skeleton = load_skeleton()
        self.pose = self.skeleton.pose(sample["obs"][rows].astype(np.float64))
        self.x = sample["obs"][rows, CENTRE_X].astype(np.float64)

    def __len__(self) -> int:
        return len(self.path)

    @cached_property
    def camera(self) -> FloatArray:
        """The middle of the view: x without the swing of the gait."""
        width = min(41, 2 * ((len(self) - 1) // 2) + 1)
        padded = np.pad(self.x, width // 2, mode="edge")
        return np.convolve(padded, np.full(width, 1 / width), mode="valid")


@in_our_style
def draw(found: Found, stem: Path) -> list[Path]:
    """One animation; nothing if the embedding sample is missing."""
    (place,) = found.experiment.embeddings
    if embedding_of(found.root / place) is None:
        return []
    episode = Episode(load_run(found.root / place))
    frames = list(draw_frames(episode, found.scaled()))
    seconds = [FRAME_SECONDS] * (len(frames) - 1) + [LAST_SECONDS]
    return [save_animation(frames, seconds, stem)]


def draw_frames(episode: Episode, note: str = "") -> Iterator[Image.Image]:
    """Every STRIDE-th step and the last: the scene, the return so far, the embedding."""
    figure = new_figure(*SIZE, note)
    figure.set_dpi(DPI)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.45, 1), height_ratios=(2, 1))
    ground, returns = (figure.add_subplot(grid[row, 0]) for row in (0, 1))
    embedding = figure.add_subplot(grid[:, 1])
    scene, curve = _Scene(ground, episode), _Return(returns, episode)
    path = _Path(figure, embedding, episode)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # computed once: nothing may jump from frame to frame
    for step in [*range(0, len(episode) - 1, STRIDE), len(episode) - 1]:
        for part in (scene, curve, path):
            part.show(step)
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
        yield Image.fromarray(pixels[..., :3].copy())


class _Scene:
    """The cheetah from the side; the view follows it, and the rewarded ground is green."""

    def __init__(self, axis: Axes, episode: Episode) -> None:
        self.axis, self.episode = axis, episode
        axis.set(ylim=(-0.12, 1.35), xlabel="x (metres)", yticks=[], aspect="equal")
        axis.set_adjustable("box")
        axis.xaxis.set_major_locator(MultipleLocator(1))
        axis.spines["left"].set_visible(False)
        axis.spines["bottom"].set_position(("data", -0.12))
        axis.axhspan(-0.12, 0, color=PALE, linewidth=0, zorder=1.5)
        for side in (-1, 1):
            axis.axvspan(side * LINE, side * 1000, color=GREEN, alpha=0.1, linewidth=0)
            axis.axvline(side * LINE, color=GREEN, linewidth=1.5)
            axis.annotate(
                "reward 1 per step",
                (side * LINE, 1.3),
                xytext=(4 * side, 0),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="top",
                fontsize=SMALL,
                color=GREEN,
                annotation_clip=True,
            )
        set_heading(axis, episode.title)
        axis.set_xlim(0, SEEN)
        self.outlines: list[Line2D] = []
        self.fills: list[Line2D] = []
        for limb in episode.skeleton.limbs:
            leg = HIND_LEG if limb.name.startswith("b") else FRONT_LEG
            colour = TORSO if limb.body == 0 else leg
            for lines, own in ((self.outlines, INK), (self.fills, colour)):
                (line,) = axis.plot([], [], color=own, solid_capstyle="round", zorder=3)
                lines.append(line)

    def show(self, step: int) -> None:
        middle = self.episode.camera[step]
        self.axis.set_xlim(middle - SEEN / 2, middle + SEEN / 2)
        points = 72 / DPI * self.axis.get_window_extent().width / SEEN  # per metre
        limbs = zip(self.episode.skeleton.limbs, self.episode.pose[step], strict=True)
        for (limb, ends), outline, fill in zip(limbs, self.outlines, self.fills, strict=True):
            for line, more in ((outline, 0.6), (fill, -0.6)):
                line.set_data(*ends.T)
                line.set_linewidth(2 * limb.radius * points + more)


class _Return:
    """The return so far."""

    def __init__(self, axis: Axes, episode: Episode) -> None:
        self.episode = episode
        axis.set(xlim=(0, len(episode)), ylim=(0, max(1.0, 1.15 * episode.total[-1])))
        axis.set(xlabel="step of the episode", ylabel="return so far")
        axis.locator_params(axis="y", nbins=3)
        (self.line,) = axis.plot([], [], color=GREEN, linewidth=1.8)
        self.number = axis.annotate(
            "", (0, 0), xytext=(-3, 4), textcoords="offset points", ha="right", fontsize=NORMAL
        )

    def show(self, step: int) -> None:
        total = self.episode.total
        self.line.set_data(np.arange(step + 1), total[: step + 1])
        self.number.xy = (step, total[step])
        self.number.set_text(f"{total[step]:.0f}" if total[step] else "")


class _Path:
    """All states of the batch, the path so far coloured by its bonus, the state now."""

    def __init__(self, figure: Figure, axis: Axes, episode: Episode) -> None:
        self.episode = episode
        x, y = episode.states.T
        axis.scatter(x, y, s=3, color=PALE, linewidths=0)
        axis.set(box_aspect=1, aspect="equal", adjustable="datalim")
        axis.set(xlabel=episode.axes[0], ylabel=episode.axes[1])
        set_heading(axis, "The path in EMI's embedding", "all states of the last batch in grey")
        style: dict[str, Any] = {
            "cmap": matplotlib.colormaps["viridis"].resampled(32),
            "norm": Normalize(*episode.range),
            "capstyle": "round",
        }
        self.old = LineCollection([], linewidths=0.7, alpha=0.55, **style)
        self.recent = LineCollection([], linewidths=2.2, **style)
        for lines in (self.old, self.recent):
            axis.add_collection(lines, autolim=False)
        (self.now,) = axis.plot([], [], "o", color=INK, markeredgecolor="white", markersize=8)
        bar = figure.colorbar(self.recent, ax=axis, extend="both", shrink=0.75, aspect=25)
        bar.set_label("bonus")
        bar.outline.set_visible(False)
        points = episode.path
        self.segments = np.stack([points[:-1], points[1:]], axis=1)

    def show(self, step: int) -> None:
        since = max(0, step - RECENT)
        for lines, part in ((self.old, slice(0, since)), (self.recent, slice(since, step))):
            lines.set_segments(list(self.segments[part]))
            lines.set_array(self.episode.bonus[part])
        self.now.set_data(*self.episode.path[step][:, None])


EXPERIMENT = Experiment(
    name="crossing",
    question="What happens in the embedding while the cheetah runs across the line?",
    paper="has no such figure.",
    draw=draw,
    arms=task(CHEETAH, ("emi",), (0,)),
    embeddings=(run_of_emi(CHEETAH),),
)
