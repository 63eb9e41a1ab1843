"""Ours: one page of all runs behind the paper's tables and figures, to explore in a browser."""

from pathlib import Path

from emi.report.page.html import write_page
from emi.report.page.limits import Limits
from emi.report.tables import with_ending
from emi.reproduction import (
    ablation,
    emi_d_coefficient,
    emi_d_comparison,
    statistical_tests,
    table_1,
)
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.paper_values import PAPER

# The page is committed, so it must stay below 2 MB; the frames of one game take a third of that.
LIMITS = Limits(points=125, states=7_000)

SHOWN = (table_1, ablation, emi_d_comparison, emi_d_coefficient, statistical_tests)


def draw(found: Found, stem: Path) -> list[Path]:
    # Absolute paths: the names of runs on the page must not depend on the current directory.
    folders = sorted({found.root.resolve() / arm.folder for arm in found.runs})
    return [write_page(folders, with_ending(stem, "html"), PAPER, LIMITS)]


EXPERIMENT = Experiment(
    name="report_page",
    question="What did each of these runs do, and what does its embedding look like?",
    paper="has no such page.",
    draw=draw,
    arms=tuple(dict.fromkeys(arm for each in SHOWN for arm in each.EXPERIMENT.arms)),
)
