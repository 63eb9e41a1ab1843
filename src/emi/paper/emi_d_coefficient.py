"""Supplementary figure 2: the coefficient α of EMI-D's bonus on SparseHalfCheetah."""

from pathlib import Path

from emi.paper.experiment import Experiment, Found, Group, write_page
from emi.paper.tasks import CHEETAH, CHEETAH_FOLDER, CHEETAH_STEPS
from emi.report.curves import Panel, draw_learning_curves
from emi.report.tables import csv_row, return_table, summarise, write_csv

# The paper names 0.1 only; the others are decades around it.
COEFFICIENTS = (0.001, 0.01, 0.1, 1.0)
PAPERS = 0.1  # the preset's, whose runs are those of the comparison
SEEDS = (0, 1, 2)


def _group(alpha: float) -> Group:
    folder = CHEETAH_FOLDER if alpha == PAPERS else f"emi_d_coefficient_{alpha:g}"
    return Group(
        folder, CHEETAH, "emi-d", SEEDS, CHEETAH_STEPS, (f"eta={alpha:g}",), f"α = {alpha:g}"
    )


def draw(found: Found, stem: Path) -> list[Path]:
    panels = [Panel(group.title, runs) for group, runs in found.runs.items()]
    pictures = draw_learning_curves({f"{CHEETAH}, EMI-D": panels}, stem, title=found.scaled())
    rows = [summarise(runs, label=group.title) for group, runs in found.runs.items()]
    page = write_page(found, stem, return_table(rows))
    return [*pictures, page, write_csv(stem.with_name(f"{stem.name}.csv"), [*map(csv_row, rows)])]


EXPERIMENT = Experiment(
    name="emi_d_coefficient",
    question="How much does EMI-D depend on the coefficient α of its bonus?",
    paper="α = 0.1 is best, other choices are comparable (curves only; the other values are not "
    "named in the text).",
    groups=tuple(map(_group, COEFFICIENTS)),
    draw=draw,
)
