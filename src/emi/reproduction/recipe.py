"""Ours: does the recommended bonus harm a policy that needs none?

PPO with `VecNormalize` solves MountainCar-v0 without a bonus. With the recipe of docs/trainers.md,
`emi.bonus` and a coefficient that decays from 1 to 0, every method should leave that as it is. The
last arm keeps the coefficient at 1.
"""

from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from emi.adapters.schedule import Decay
from emi.batch import FloatArray
from emi.intrinsic.table import METHODS as TABLE
from emi.intrinsic.table import title_of
from emi.report.statistics import bootstrap_band
from emi.report.style import (
    GREY,
    NORMAL,
    PALE,
    VERMILION,
    WIDTH,
    Look,
    in_our_style,
    legend_below,
    look_of,
    new_figure,
    save_figure,
    set_heading,
)
from emi.report.summary import Estimate
from emi.report.tables import estimate
from emi.reproduction import ppo_runs
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.ppo_runs import LAST, PARTS, PPOArm, PPOTask, Runs

FOLDER = "recipe"
SEEDS = range(5)
STEPS = 81_920  # 40 rollouts
MOUNTAIN_CAR = PPOTask("MountainCar", "MountainCar-v0", goal=-200.0)
# A variant is a class with another setting.
METHODS = tuple(name for name, e in TABLE.items() if e.home is not None and not e.settings)
CONSTANT = "emi-constant"
ARMS = {
    "ppo": PPOArm("PPO", MOUNTAIN_CAR),
    **{m: PPOArm(f"PPO + {title_of(m)}", MOUNTAIN_CAR, m, Decay()) for m in METHODS},
    CONSTANT: PPOArm("PPO + EMI, constant η = 1", MOUNTAIN_CAR, "emi", 1.0),
}
# Seed by seed, so that an interrupted experiment compares all arms.
CELLS = tuple((arm, seed) for seed in SEEDS for arm in ARMS)
ALONE, OF_METHOD = Look(GREY, (0, (5, 1.5))), look_of("emi")
OF_CONSTANT = Look(VERMILION, (0, (1, 1)))
COLUMNS, HEIGHT = 4, 1.3  # of the panels of the figure, in inches


def draw(found: Found, stem: Path) -> list[Path]:
    runs, scaled = ppo_runs.to_draw(found.root / FOLDER, ARMS, STEPS)
    return [_draw_figure(runs, stem, scaled), write_markdown(found, stem, table(runs), scaled)]


def table(runs: Runs) -> str:
    """Markdown: one line per arm."""
    lines = []
    for name, arm in ARMS.items():
        rows = [row for (own, _), row in runs.items() if own == name]
        if not rows:
            continue
        reached = np.array([row.reached for row in rows])
        final = Estimate.of_mean(np.array([row.final_return for row in rows]))
        found = [row.first_reached for row in rows if row.first_reached is not None]
        line = {
            "": arm.title,
            "seeds": str(len(rows)),
            "steps": f"{min(row.steps for row in rows):,}",
            "at the flag, mean": f"{reached.mean():.0%}",
            "worst seed": f"{reached.min():.0%}",
            "return, mean [95 % CI]": estimate(final, len(rows), decimals=1),
            "first at the flag, median steps": f"{np.median(found):,.0f}" if found else "–",
            "late share of the bonus": f"{np.mean([row.late_share for row in rows]):.2f}",
            "warned": f"{sum(row.warned for row in rows)}/{len(rows)}",
            "seconds a run": f"{np.median([row.seconds for row in rows]):.0f}",
        }
        lines.append(line)
    note = (
        f"{MOUNTAIN_CAR.env}, PPO with VecNormalize, the last {LAST} training episodes of each run."
        " The late share is the mean of `intrinsic/share` over the second half of the training."
    )
    return f"{note}\n\n{table_of(lines)}"


@in_our_style
def _draw_figure(runs: Runs, stem: Path, title: str) -> Path:
    """Share of episodes at the flag over training: a panel per method, next to PPO alone."""
    steps = max(row.steps for row in runs.values())
    x = (np.arange(PARTS) + 1) * steps / PARTS / 1000
    curves = {}
    for name in ARMS:
        values = [ppo_runs.curve_of(row) for (own, _), row in runs.items() if own == name]
        if values:  # in a part in which no episode ended, the first one has not
            curves[name] = np.nan_to_num(np.array(values))  # [runs, parts]
    drawn = [method for method in METHODS if method in curves]
    rows = max(1, -(-len(drawn) // COLUMNS))
    figure = new_figure(WIDTH, HEIGHT * rows + 0.5, title)
    panels = list(figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat)
    for axis, method in zip(panels, drawn, strict=False):
        count = len(curves[method])
        set_heading(axis, title_of(method), f"{count} seed{'' if count == 1 else 's'}")
        _draw_curve(axis, x, curves.get("ppo"), ALONE)
        _draw_curve(axis, x, curves.get(CONSTANT) if method == "emi" else None, OF_CONSTANT)
        _draw_curve(axis, x, curves[method], OF_METHOD)
        axis.set(xlim=(0, x[-1]), ylim=(0, 1.02))
    for axis in panels[len(drawn) :]:
        axis.set_visible(False)
    for axis in panels[max(0, len(drawn) - COLUMNS) : len(drawn)]:  # the lowest of each column
        axis.tick_params(labelbottom=True)
        axis.set_xlabel("steps (thousands)")
    figure.supylabel("share of episodes at the flag", fontsize=NORMAL)
    meanings: dict[str, Artist] = {"PPO + the method, η = 1 → 0": _line(OF_METHOD)}
    if "ppo" in curves:
        meanings["PPO alone"] = _line(ALONE)
    if CONSTANT in curves and "emi" in drawn:
        meanings["PPO + EMI, constant η = 1"] = _line(OF_CONSTANT)
    if any(len(values) > 1 for values in curves.values()):
        meanings["95 % interval of the mean"] = Patch(color=PALE, linewidth=0)
    legend_below(figure, meanings)
    return save_figure(figure, stem)


def _draw_curve(axis: Axes, x: FloatArray, values: FloatArray | None, look: Look) -> None:
    """Mean and 95 % band of values [runs, parts], if there are any."""
    if values is None:
        return
    if len(values) > 1:
        low, high = bootstrap_band(values)
        axis.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axis.plot(x, values.mean(axis=0), color=look.colour, linestyle=look.dashes)


def _line(look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, linestyle=look.dashes)


EXPERIMENT = Experiment(
    name=FOLDER,
    question="Does a bonus by the recommended recipe harm PPO where it needs no bonus?",
    paper="trains with TRPO only.",
    draw=draw,
    files=(f"{FOLDER}/{ppo_runs.FILE}",),
    maker=ppo_runs.maker_of(FOLDER, ARMS, CELLS, STEPS),
)
