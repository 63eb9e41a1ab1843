"""Not in the paper: which share of runs ends above a return, and which has met a reward by when."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from emi.report.curves import legend_below, new_figure, save_figure
from emi.report.first_reward import first_reward, share_with_reward
from emi.report.load import Run
from emi.report.statistics import performance_profile, performance_profile_band
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.paper_values import TITLES
from emi.reproduction.table_1 import VECTOR_METHODS
from emi.reproduction.tasks import LOCOMOTION, task

THRESHOLDS = 200  # points of a profile
# Okabe and Ito's colours, yellow darkened, each with a line of its own for print in grey.
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
    worlds = found.environments
    figure = new_figure(9, 3.3 * len(worlds) + 0.5, found.scaled())
    axes = figure.subplots(len(worlds), 2, squeeze=False)
    for (left, right), env in zip(axes, worlds, strict=True):
        methods = {runs[0].method: runs for runs in found.of(env)}
        _draw_profiles(left, methods)
        _draw_first_rewards(right, methods)
        left.set_ylabel(f"{env}\nshare of runs")
    # The worlds have not all the same methods.
    drawn = {str(line.get_label()): line for left in axes[:, 0] for line in left.get_lines()}
    legend_below(figure, {TITLES[m]: drawn[TITLES[m]] for m in STYLES if TITLES[m] in drawn})
    return save_figure(figure, stem)


def _draw_profiles(panel: Axes, methods: dict[str, list[Run]]) -> None:
    finals = {m: np.array([run.final_return() for run in runs]) for m, runs in methods.items()}
    highest = max(final.max() for final in finals.values())
    thresholds = np.linspace(0, max(highest, 1e-9), THRESHOLDS)
    for method, final in finals.items():
        colour, line, width = STYLES[method]
        if method == "emi":  # bands of all methods would hide one another
            low, high = performance_profile_band(final, thresholds)
            panel.fill_between(thresholds, low, high, color=colour, alpha=0.15, linewidth=0)
        share = performance_profile(final, thresholds)
        panel.plot(
            thresholds, share, color=colour, linestyle=line, linewidth=width, label=TITLES[method]
        )
    panel.set_xlabel("return τ")
    panel.set_title("runs that end above τ; 95 % band of EMI", fontsize=10)
    _frame(panel, thresholds[-1])


def _draw_first_rewards(panel: Axes, methods: dict[str, list[Run]]) -> None:
    end = max(run.metrics["steps"][-1] for runs in methods.values() for run in runs)
    for method, runs in methods.items():
        colour, line, width = STYLES[method]
        curve = share_with_reward(
            [first_reward(run.metrics["steps"], run.metrics["return_max"]) for run in runs]
        )
        last = max(run.metrics["steps"][-1] for run in runs)
        steps = np.append(curve.steps, last) / 1e6
        share = np.append(curve.share, curve.share[-1])
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
    question="How many runs of a method end well, and how soon do they meet a reward at all?",
    paper="has no such figure.",
    groups=tuple(group for env in LOCOMOTION for group in task(env, VECTOR_METHODS)),
    draw=draw,
)
