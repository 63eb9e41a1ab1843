"""A figure of a plan: the path in φ-space and the distance to the goal over time."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from emi.report.style import (
    BLUE,
    INK,
    PALE,
    VERMILION,
    WIDTH,
    in_our_style,
    new_figure,
    save_figure,
    set_heading,
)

Array = npt.NDArray[np.float64]


@in_our_style
def draw_plan(
    visited: Array, plan: Array, phi: Array, distance: Array, stem: Path, title: str
) -> Path:
    """Write `stem`.png: visited states, the plan and the path in φ, all [n, d]; distance [n].

    More than two dimensions are projected to the two principal axes of the visited states.
    """
    centre, axes = visited.mean(0), np.eye(max(2, visited.shape[1]))[:2, : visited.shape[1]]
    if visited.shape[1] > 2:
        axes = np.linalg.svd(visited - centre, full_matrices=False)[2][:2]
    figure = new_figure(WIDTH, 3.3, title)
    plane, time = figure.subplots(1, 2)
    shown = [(points - centre) @ axes.T for points in (visited, plan, phi)]
    plane.plot(*shown[0].T, ".", color=PALE, markersize=2, label="visited")
    plane.plot(*shown[1].T, "--", color=VERMILION, linewidth=1.2, label="plan")
    plane.plot(*shown[2].T, color=BLUE, linewidth=1.2, label="path")
    plane.plot(*shown[2][0], "o", color=INK, markersize=4, label="start")
    plane.plot(*shown[1][-1], "x", color=VERMILION, markersize=6, label="goal")
    plane.set(box_aspect=1, aspect="equal", adjustable="datalim")
    set_heading(plane, "φ(s)")
    time.plot(distance, color=BLUE)
    time.set(xlabel="step", ylabel="distance, steps of the linear model", ylim=(0, None))
    set_heading(time, "Distance to the goal")
    plane.legend(loc="best")
    return save_figure(figure, stem)
