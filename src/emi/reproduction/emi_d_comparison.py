"""Supplementary figures 1 and 3: EMI-D, which pays for diversity, beside EMI and the others."""

from dataclasses import replace
from pathlib import Path

from emi.report.tables import csv_row, return_table, summarise_method, write_csv
from emi.reproduction import locomotion_curves
from emi.reproduction.experiment import Experiment, Found, write_page
from emi.reproduction.tasks import ATARI, LOCOMOTION, task

METHODS = ("emi", "emi-d", "ex2", "icm", "rnd", "trpo")


def draw(found: Found, stem: Path) -> list[Path]:
    """The tasks of which there are runs of EMI-D; without it there is nothing to compare."""
    compared = {group.env for group in found.runs if group.method == "emi-d"}
    if not compared:
        return []
    runs = {group: row for group, row in found.runs.items() if group.env in compared}
    found = replace(found, runs=runs)
    parts, rows = [], []
    for env in found.environments:
        own = [summarise_method(runs) for runs in found.of(env)]
        rows += own
        parts.append(f"**{env}**\n\n{return_table(own)}")
    page = write_page(found, stem, "\n".join(parts))
    table = write_csv(stem.with_name(f"{stem.name}.csv"), [*map(csv_row, rows)])
    return [*locomotion_curves.draw(found, stem), page, table]


EXPERIMENT = Experiment(
    name="emi_d_comparison",
    question="Is a bonus for diversity of the embedded states as good as one for prediction error?",
    paper="EMI-D is comparable to EMI in most environments (curves only, no numbers).",
    groups=tuple(group for env in (*LOCOMOTION, *ATARI) for group in task(env, METHODS)),
    draw=draw,
)
