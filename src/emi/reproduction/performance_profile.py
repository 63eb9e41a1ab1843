"""Ours: the share of runs that end above a return, and that have met a reward by a step."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from emi.intrinsic.table import order_of, title_of
from emi.report.curves import STEPS
from emi.report.first_reward import share_with_reward
from emi.report.load import Run, final_returns
from emi.report.statistics import performance_profile, performance_profile_band
from emi.report.style import (
    WIDTH,
    in_our_style,
    legend_below,
    look_of,
    new_figure,
    save_figure,
    set_heading,
)
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.table_1 import VECTOR_METHODS
from emi.reproduction.tasks import LOCOMOTION, task

THRESHOLDS = 200  # points of a profile
SHARES = (-0.03, 1.05)  # limits of the y axes
# Shares of a few runs often coincide: the first line is drawn widest and lies below the others.
WIDEST, NARROWEST = 2.6, 0.9


@in_our_style
def draw(found: Found, stem: Path) -> list[Path]:
    """A row for each environment: profiles on the left, first rewards on the right."""
    environments = found.environments
    figure = new_figure(WIDTH, 2.4 * len(environments) + 0.3, found.scaled())
    axes = figure.subplots(len(environments), 2, squeeze=False, sharey=True)
    for (left, right), env in zip(axes, environments, strict=True):
        methods = {group.method: group.runs for group in found.groups(env)}
        _draw_profiles(left, methods, env)
        _draw_first_rewards(right, methods, env)
        left.set_ylabel("share of runs")
    # Environments may have different methods.
    drawn = sorted({arm.method for arm in found.runs}, key=order_of)
    meanings: dict[str, Artist] = {
        title_of(method): Line2D([], [], color=look_of(method).colour) for method in drawn
    }
    if "emi" in drawn:
        meanings["95 % band of EMI"] = Patch(color=look_of("emi").colour, alpha=0.15, linewidth=0)
    legend_below(figure, meanings)
    return [save_figure(figure, stem)]


def _lines(methods: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each method with the colour and width of its line, from wide to narrow."""
    widths = np.linspace(WIDEST, NARROWEST, len(methods)) if len(methods) > 1 else [1.6]
    for method, width in zip(methods, widths, strict=True):
        yield method, {"color": look_of(method).colour, "linewidth": width}


def _draw_profiles(panel: Axes, methods: dict[str, Sequence[Run]], env: str) -> None:
    finals = {m: final_returns(runs) for m, runs in methods.items()}
    finals = {method: final for method, final in finals.items() if len(final)}
    highest = max((final.max() for final in finals.values()), default=0.0)
    thresholds = np.linspace(0, max(highest, 1e-9), THRESHOLDS)
    for method, line in _lines(list(finals)):
        final = finals[method]
        if method == "emi":  # the bands of all methods would overlap
            low, high = performance_profile_band(final, thresholds)
            panel.fill_between(
                thresholds, low, high, color=line["color"], alpha=0.15, linewidth=0, step="post"
            )
        share = performance_profile(final, thresholds)
        panel.step(thresholds, share, where="post", label=title_of(method), **line)
    panel.set_xlabel("final return τ")
    set_heading(panel, env, "runs that end above τ")
    panel.set(xlim=(0, thresholds[-1]), ylim=SHARES)
    panel.locator_params(axis="x", nbins=6)


def _draw_first_rewards(panel: Axes, methods: dict[str, Sequence[Run]], env: str) -> None:
    end = max(run.reached for runs in methods.values() for run in runs)
    for method, line in _lines(list(methods)):
        runs = methods[method]
        steps, share = share_with_reward([first for run in runs if (first := run.first_reward)])
        steps = np.append(steps, max(run.reached for run in runs)) / 1e6
        share = np.append(share, share[-1])
        panel.step(steps, share, where="post", **line)
    panel.set_xlabel(STEPS)
    set_heading(panel, env, "runs that have met a reward")
    panel.set(xlim=(0, end / 1e6), ylim=SHARES)


EXPERIMENT = Experiment(
    name="performance_profile",
    question="How many runs of a method end well, and how soon do they meet a reward?",
    paper="has no such figure.",
    draw=draw,
    arms=tuple(arm for env in LOCOMOTION for arm in task(env, VECTOR_METHODS)),
)
