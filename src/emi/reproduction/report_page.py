"""Ours: one page of all runs behind the paper's tables and figures, to explore in a browser."""

from pathlib import Path

from emi.report.page.html import write_page
from emi.reproduction import (
    ablation,
    emi_d_coefficient,
    emi_d_comparison,
    statistical_tests,
    table_1,
)
from emi.reproduction.experiment import Experiment, Found

SHOWN = (table_1, ablation, emi_d_comparison, emi_d_coefficient, statistical_tests)


def draw(found: Found, stem: Path) -> list[Path]:
    # From the root of the disk: what the page calls a run must not depend on where we stand.
    folders = sorted({found.results.resolve() / group.folder for group in found.runs})
    return [write_page(folders, stem.with_name(f"{stem.name}.html"))]


EXPERIMENT = Experiment(
    name="report_page",
    question="What did each of these runs do, and what does its embedding look like?",
    paper="has no such page.",
    groups=tuple(dict.fromkeys(group for each in SHOWN for group in each.EXPERIMENT.groups)),
    draw=draw,
)
