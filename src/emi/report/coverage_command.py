"""What `emi coverage` prints and draws."""

from collections.abc import Sequence
from pathlib import Path

from emi.errors import UserError
from emi.report.coverage import coverage_of, coverage_rows
from emi.report.coverage_figure import draw_coverage
from emi.report.groups import group_runs
from emi.report.load import find_runs
from emi.report.tables import markdown_table


def parse_axes(text: str) -> tuple[int, int]:
    """`0,3` as two columns."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and len(part) < 7 for part in parts):
        raise UserError(f"--axes takes two columns of the observation, as in 0,3, got {text!r}")
    return int(parts[0]), int(parts[1])


def write_coverage(
    roots: Sequence[Path], out: Path, axes: tuple[int, int] | None = None
) -> list[str]:
    """Draw the coverage of all runs below `roots`; returns the lines to print."""
    groups, remarks = group_runs(find_runs(roots))
    found = [coverage_of(env, row, axes) for env, row in groups.items()]
    covered = [one for one in found if one is not None]
    if not covered:
        raise UserError("no run recorded the states it visited: train with --coverage")
    lines: list[str] = []
    for one in covered:
        rows = coverage_rows(one)
        kept = [name for name in rows[0] if any(row[name] != "–" for row in rows)]
        table = markdown_table(kept, [[row[name] for name in kept] for row in rows])
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in one.env)
        stem = out.stem if len(covered) == 1 else f"{out.stem}-{name}"
        lines += [one.env, "", *table.split("\n"), "", str(draw_coverage(one, out.with_name(stem)))]
    return [*lines, *remarks]
