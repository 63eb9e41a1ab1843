"""Figures 4(a) and 4(b): learning curves on SwimmerGather and SparseHalfCheetah."""

from pathlib import Path

from emi.report.curves import draw_learning_curves, method_panel
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.table_1 import VECTOR_METHODS
from emi.reproduction.tasks import LOCOMOTION, task


def draw(found: Found, stem: Path) -> list[Path]:
    """A row of panels for each environment that is there."""
    rows = {env: [method_panel(runs) for runs in found.of(env)] for env in found.environments}
    return draw_learning_curves(rows, stem, title=found.scaled())


EXPERIMENT = Experiment(
    name="locomotion_curves",
    question="How do returns grow over training on the two locomotion tasks?",
    paper="EMI outperforms EX2, ICM, RND and TRPO on both tasks (means of 5 seeds, one standard "
    "deviation shaded; iterations of 50k and 5k steps).",
    groups=tuple(group for env in LOCOMOTION for group in task(env, VECTOR_METHODS)),
    draw=draw,
)
