"""Ours: the same seed and settings at two commits whose linear algebra rounds differently."""

from pathlib import Path

from emi.report.curves import Panel, curve_of, draw_learning_curves
from emi.report.tables import write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Arm, Experiment, Found
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, CHEETAH_STEPS

ARMS = (
    Arm(CHEETAH_FOLDER, CHEETAH, "emi", (0,), CHEETAH_STEPS, label="current"),
    Arm("rounding", CHEETAH, "emi", (0,), CHEETAH_STEPS, label="at an earlier commit", past=True),
)


def draw(found: Found, stem: Path) -> list[Path]:
    curves = [curve_of(arm.title, runs) for arm, runs in found.runs.items()]
    panel = Panel(f"{CHEETAH}, EMI, seed 0", curves)
    finals = {arm.title: run.final_return() for arm, (run,) in found.runs.items()}
    lines = [{"seed 0 of EMI": t, "final return": f"{f:.1f}"} for t, f in finals.items()]
    rows = [{"variant": title, "seed": 0, "final_return": f} for title, f in finals.items()]
    return [
        draw_learning_curves([panel], stem, title=found.scaled()),
        write_markdown(found, stem, table_of(lines)),
        write_csv(stem, rows),
    ]


EXPERIMENT = Experiment(
    name="rounding",
    question="How much do two runs differ at the end if they differ in the ninth digit at first?",
    paper="does not examine this.",
    draw=draw,
    arms=ARMS,
)
