"""Ours: the share of runs that end above a return, and that have met a reward by a step."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from emi.intrinsic.table import title_of
from emi.report.curves import legend_below, new_figure, save_figure
from emi.report.first_reward import share_with_reward
from emi.report.load import Run, final_returns
from emi.report.statistics import performance_profile, performance_profile_band
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.table_1 import VECTOR_METHODS
from emi.reproduction.tasks import LOCOMOTION, task

THRESHOLDS = 200  # points of a profile
# Okabe and Ito's palette, yellow darkened; different line styles for print in grey.
STYLES = {
    "emi": ("#0072B2", "-", 2.4),
    "ex2": ("#D55E00", "--", 1.8),
    "icm": ("#009E73", "-.", 1.5),
    "rnd": ("#CC79A7", ":", 1.8),
    "simhash": ("#B8860B", (0, (6, 1, 1, 1, 1, 1)), 1.5),
    "vime": ("#56B4E9", (0, (8, 2)), 1.5),
    "trpo": ("#000000", (0, (1, 2)), 1.2),
}


def draw(found: Found, stem: Path) -> list[Path]:
    """A row for each environment: profiles on the left, first rewards on the right."""
    environments = found.environments
    figure = new_figure(9, 3.3 * len(environments) + 0.5, found.scaled())
    axes = figure.subplots(len(environments), 2, squeeze=False)
    for (left, right), env in zip(axes, environments, strict=True):
        methods = {group.method: group.runs for group in found.groups(env)}
        _draw_profiles(left, methods)
        _draw_first_rewards(right, methods)
        left.set_ylabel(f"{env}\nshare of runs")
    # Environments may have different methods.
    drawn = {str(line.get_label()): line for left in axes[:, 0] for line in left.get_lines()}
    titles = map(title_of, STYLES)
    legend_below(figure, {title: drawn[title] for title in titles if title in drawn})
    return [save_figure(figure, stem)]


def _draw_profiles(panel: Axes, methods: dict[str, Sequence[Run]]) -> None:
    finals = {m: final_returns(runs) for m, runs in methods.items()}
    finals = {method: final for method, final in finals.items() if len(final)}
    highest = max((final.max() for final in finals.values()), default=0.0)
    thresholds = np.linspace(0, max(highest, 1e-9), THRESHOLDS)
    for method, final in finals.items():
        colour, line, width = STYLES[method]
        if method == "emi":  # the bands of all methods would overlap
            low, high = performance_profile_band(final, thresholds)
            panel.fill_between(thresholds, low, high, color=colour, alpha=0.15, linewidth=0)
        share = performance_profile(final, thresholds)
        (drawn,) = panel.plot(thresholds, share, color=colour, linestyle=line, linewidth=width)
        drawn.set_label(title_of(method))
    panel.set_xlabel("return τ")
    panel.set_title("runs that end above τ; 95 % band of EMI", fontsize=10)
    _frame(panel, thresholds[-1])


def _draw_first_rewards(panel: Axes, methods: dict[str, Sequence[Run]]) -> None:
    end = max(run.reached for runs in methods.values() for run in runs)
    for method, runs in methods.items():
        colour, line, width = STYLES[method]
        steps, share = share_with_reward([first for run in runs if (first := run.first_reward)])
        steps = np.append(steps, max(run.reached for run in runs)) / 1e6
        share = np.append(share, share[-1])
        panel.step(steps, share, where="post", color=colour, linestyle=line, linewidth=width)
    panel.set_xlabel("environment steps (M)")
    panel.set_title("runs that have met a reward", fontsize=10)
    _frame(panel, end / 1e6)


def _frame(panel: Axes, right: float) -> None:
    panel.set_ylim(-0.03, 1.03)
    panel.set_xlim(0, right)
    panel.spines[["top", "right"]].set_visible(False)


EXPERIMENT = Experiment(
    name="performance_profile",
    question="How many runs of a method end well, and how soon do they meet a reward?",
    paper="has no such figure.",
    draw=draw,
    arms=tuple(arm for env in LOCOMOTION for arm in task(env, VECTOR_METHODS)),
)
