"""Ours: does the recommended bonus harm a policy that needs none?

PPO with `VecNormalize` solves MountainCar-v0 without a bonus. With the recipe of docs/trainers.md,
`emi.bonus` and a coefficient that decays from 1 to 0, every method should leave that as it is. The
last arm keeps the coefficient at 1.
"""

from pathlib import Path

import numpy as np

from emi.adapters.schedule import Decay
from emi.intrinsic.table import title_of
from emi.report.curves import Curve, Panel, arrange, fill_panels
from emi.report.style import Look, in_our_style, look_of, save_figure
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
METHODS = ("emi", "icm", "rnd", "ex2", "simhash", "vime", "noise")
CONSTANT = "emi-constant"
ARMS = {
    "ppo": PPOArm("PPO", MOUNTAIN_CAR),
    **{m: PPOArm(f"PPO + {title_of(m)}", MOUNTAIN_CAR, m, Decay()) for m in METHODS},
    CONSTANT: PPOArm("PPO + EMI, constant η = 1", MOUNTAIN_CAR, "emi", 1.0),
}
# Seed by seed, so that an interrupted experiment compares all arms.
CELLS = tuple((arm, seed) for seed in SEEDS for arm in ARMS)
LOOKS = {
    "ppo": look_of("trpo"),
    **{method: look_of(method) for method in METHODS},
    CONSTANT: Look(look_of("emi").colour, ":"),
}


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
    """Share of episodes at the flag over training: the recipe of all methods, and EMI's two."""
    steps = max(row.steps for row in runs.values())
    x = (np.arange(PARTS) + 1) * steps / PARTS / 1000
    curves = {}
    for name, arm in ARMS.items():
        values = [ppo_runs.curve_of(row) for (own, _), row in runs.items() if own == name]
        if values:
            filled = np.nan_to_num(np.array(values))  # a part in which no episode ended: the first
            curves[name] = Curve(arm.title, name, x, filled, end=float(x[-1]))
    sides = {
        "η falls from 1 to 0": [name for name in curves if name != CONSTANT],
        "EMI, η falls or stays": [name for name in ("ppo", "emi", CONSTANT) if name in curves],
    }
    words = ("share of episodes at the flag", "environment steps (thousands)")
    panels = [Panel(heading, [curves[n] for n in own], *words) for heading, own in sides.items()]
    looks = {curve.label: LOOKS[name] for name, curve in curves.items()}
    figure, axes = arrange(len(panels), title)
    fill_panels(figure, axes, panels, looks)
    return save_figure(figure, stem)


EXPERIMENT = Experiment(
    name=FOLDER,
    question="Does a bonus by the recommended recipe harm PPO where it needs no bonus?",
    paper="trains with TRPO only.",
    draw=draw,
    files=(f"{FOLDER}/{ppo_runs.FILE}",),
    maker=ppo_runs.maker_of(FOLDER, ARMS, CELLS, STEPS),
)
