"""Variants of one method beside each other: a panel and a row of the table for each."""

from pathlib import Path

from emi.report.curves import Panel, draw_learning_curves
from emi.report.tables import csv_row, return_table, summarise, write_csv
from emi.reproduction.experiment import Found, write_page


def draw_variants(found: Found, stem: Path, heading: str) -> list[Path]:
    """Learning curves under `heading`, and the table of final returns."""
    panels = [Panel(group.title, runs) for group, runs in found.runs.items()]
    pictures = draw_learning_curves({heading: panels}, stem, title=found.scaled())
    rows = [summarise(runs, label=group.title) for group, runs in found.runs.items()]
    page = write_page(found, stem, return_table(rows))
    return [*pictures, page, write_csv(stem.with_name(f"{stem.name}.csv"), [*map(csv_row, rows)])]
