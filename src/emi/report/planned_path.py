"""A figure of a plan: the path in φ-space and the distance to the goal over time."""

from pathlib import Path

from emi.report.plan_file import Plan
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


@in_our_style
def draw_plan(plan: Plan, stem: Path) -> Path:
    """Write `stem`.png: visited states, the plan and the path in φ, and the distance."""
    figure = new_figure(WIDTH, 3.3, plan.title)
    plane, time = figure.subplots(1, 2)
    visited, planned, path = plan.plane()
    plane.plot(*visited.T, ".", color=PALE, markersize=2, label="visited")
    plane.plot(*planned.T, "--", color=VERMILION, linewidth=1.2, label="plan")
    plane.plot(*path.T, color=BLUE, linewidth=1.2, label="path")
    plane.plot(*path[0], "o", color=INK, markersize=4, label="start")
    plane.plot(*planned[-1], "x", color=VERMILION, markersize=6, label="goal")
    plane.set(box_aspect=1, aspect="equal", adjustable="datalim")
    set_heading(plane, "φ(s)")
    time.plot(plan.distance, color=BLUE)
    time.set(xlabel="step", ylabel="distance, steps of the linear model", ylim=(0, None))
    set_heading(time, "Distance to the goal")
    plane.legend(loc="best")
    return save_figure(figure, stem)
