"""Ours: MiniGrid's DoorKey-8x8 within 150,000 frames, by PPO with and without a bonus.

The agent must pick up a key, open a door and reach the goal, and only the goal gives a reward:
1 − 0.9 · steps / 640. Every method has the same coefficient, which was chosen for NovelD on
development seeds.
"""

from pathlib import Path

import numpy as np

from emi.adapters.schedule import Decay
from emi.intrinsic.table import title_of
from emi.report.curves import Curve, Panel, arrange, fill_panels
from emi.report.style import in_our_style, look_of, save_figure
from emi.report.summary import Estimate, Rate
from emi.report.tables import estimate, rate_text
from emi.reproduction import ppo_runs
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.ppo_runs import LAST, PARTS, PPOArm, PPOTask, Runs

FOLDER = "door_key"
SEEDS = range(5)
STEPS = 150_000
SOLVED = 0.9  # mean return of the last episodes
TASK = PPOTask(
    "DoorKey 8×8",
    "MiniGrid-DoorKey-8x8-v0",
    goal=0.0,
    ppo=(("learning_rate", 5e-4), ("n_epochs", 4), ("ent_coef", 0.01)),
    normalize=False,
)
ETA = Decay(0.1)
METHODS = ("noveld", "e3b", "ngu", "pseudo-counts", "ride", "rnd", "emi", "icm")
ARMS = {
    "ppo": PPOArm("PPO", TASK),
    **{m: PPOArm(f"PPO + {title_of(m)}", TASK, m, ETA) for m in METHODS},
}
# The question first: an interrupted experiment has all seeds of NovelD and of PPO alone.
CELLS = tuple((arm, seed) for seed in SEEDS for arm in ("noveld", "ppo")) + tuple(
    (arm, seed) for seed in SEEDS for arm in METHODS[1:]
)


def table(runs: Runs) -> str:
    """Markdown: one line per arm."""
    lines = []
    for name, arm in ARMS.items():
        rows = [row for (own, _), row in runs.items() if own == name]
        if not rows:
            continue
        finals = np.array([row.final_return for row in rows])
        found = [row.first_reached for row in rows if row.first_reached is not None]
        lines.append(
            {
                "": arm.title,
                "seeds": str(len(rows)),
                "return, mean [95 % CI]": estimate(Estimate.of_mean(finals), len(rows), 3),
                "worst seed": f"{finals.min():.3f}",
                f"return ≥ {SOLVED:g} [95 % CI]": rate_text(
                    Rate.of(int((finals >= SOLVED).sum()), len(rows))
                ),
                "first at the goal, median steps": f"{np.median(found):,.0f}" if found else "–",
            }
        )
    note = (
        f"{TASK.env}, {STEPS:,} frames, mean return of the last {LAST} training episodes. "
        f"η falls from {ETA.start:g} to 0 over the first half of the training."
    )
    return f"{note}\n\n{table_of(lines)}"


@in_our_style
def draw_figure(runs: Runs, stem: Path, title: str) -> Path:
    """Share of episodes that reach the goal over training."""
    steps = max(row.steps for row in runs.values())
    x = (np.arange(PARTS) + 1) * steps / PARTS / 1000
    curves = []
    for name, arm in ARMS.items():
        values = [ppo_runs.curve_of(row) for (own, _), row in runs.items() if own == name]
        if values:
            curves.append(Curve(arm.title, name, x, np.nan_to_num(np.array(values)), float(x[-1])))
    looks = {
        curve.label: look_of("trpo" if curve.method == "ppo" else curve.method) for curve in curves
    }
    words = ("share of episodes at the goal", "environment steps (thousands)")
    figure, axes = arrange(1, title)
    fill_panels(figure, axes, [Panel(TASK.title, curves, *words)], looks)
    return save_figure(figure, stem)


def draw(found: Found, stem: Path) -> list[Path]:
    runs, scaled = ppo_runs.to_draw(found.root / FOLDER, ARMS, STEPS)
    return [draw_figure(runs, stem, scaled), write_markdown(found, stem, table(runs), scaled)]


EXPERIMENT = Experiment(
    name=FOLDER,
    question="Which bonus lets PPO solve DoorKey-8x8 within 150,000 frames?",
    paper="trains with TRPO only; DEIR reports 0.908 at 122,880 frames.",
    draw=draw,
    files=(f"{FOLDER}/{ppo_runs.FILE}",),
    maker=ppo_runs.maker_of(FOLDER, ARMS, CELLS, STEPS),
)
