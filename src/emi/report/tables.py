"""Tables of final returns as Markdown and CSV: one row per method or variant."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from emi.durable_file import write_durably
from emi.report.load import Run
from emi.report.reference import Reference
from emi.report.summary import LAST_ITERATIONS, Estimate, Rate, Summary


def return_table(rows: Sequence[Summary], reference: Reference) -> str:
    """Markdown table of one environment, with sentences on runs that are not complete."""
    solved = reference.solved_above
    at = "" if reference.steps is None else f", at {in_millions(reference.steps)} steps"
    header = [
        "method",
        "seeds",
        "final return, mean [95 % CI]",
        "IQM [95 % CI]",
        f"mean of the last {LAST_ITERATIONS} iterations",
        *([] if solved is None else [f"solved (> {solved:g}) [95 % CI]"]),
        "first reward, median steps (seeds that met one)",
        *([f"{reference.source}{at}"] if reference.returns else []),
    ]
    notes = [note for row in rows for note in _notes(row)]
    table = markdown_table(header, [_cells(row, reference) for row in rows])
    return "\n\n".join([table, *notes]) + "\n"


def _cells(row: Summary, reference: Reference) -> list[str]:
    decimals = 1 if reference.decimals is None else reference.decimals

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.{decimals}f}"

    known = row.first_reward is not None and math.isfinite(row.first_reward)
    median = f"{(row.first_reward or 0) / 1e6:.2f}M" if known else "–"
    cells = [
        row.label,
        str(row.seeds),
        estimate(row.mean, len(row.finals), decimals),
        estimate(row.iqm, len(row.finals), decimals),
        number(row.late),
    ]
    if reference.solved_above is not None:
        cells.append(rate_text(row.solved))
    cells.append(f"{median} ({row.rewarded}/{row.started})")
    return [*cells, number(row.reference_value)] if reference.returns else cells


def _notes(row: Summary) -> list[str]:
    def name(run: Run) -> str:
        return f"{run.method}, seed {run.seed}"

    unfinished = [
        f"Not finished: {name(run)}, {run.reached:.0f} of {run.steps} steps."
        for run in row.unfinished
    ]
    return unfinished + [f"No finished episode: {name(run)}." for run in row.without_return]


def estimate(value: Estimate | None, runs: int, decimals: int) -> str:
    """`1.5 [1.0, 2.0]`; a single run says nothing about others and has no interval."""
    if value is None:
        return "–"
    if runs == 1:
        return f"{value.value:.{decimals}f}"
    return f"{value.value:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


def rate_text(rate: Rate | None) -> str:
    """`2/5 [0.12, 0.77]`."""
    if rate is None:
        return "–"
    return f"{rate.successes}/{rate.trials} [{rate.low:.2f}, {rate.high:.2f}]"


def csv_row(row: Summary) -> dict[str, object]:
    """The numbers of a row; a single run has no interval."""
    several = len(row.finals) > 1
    estimates = {
        f"{name}{end}": value if several or not end else None
        for name, estimated in (("mean", row.mean), ("iqm", row.iqm))
        for end, value in zip(("", "_low", "_high"), estimated or [None] * 3, strict=True)
    }
    return {
        "env": row.env,
        "method": row.label,
        "seeds": row.seeds,
        "steps": row.steps,
        **estimates,
        "late_mean": row.late,
        "solved": row.solved and row.solved.successes,
        "first_reward_median": row.first_reward,
        "rewarded": row.rewarded,
        "reference": row.reference_value,
    }


def write_csv(stem: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write `stem`.csv: rows with the same keys, floats to six digits, nothing for None."""
    path, text = with_ending(stem, "csv"), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(
            f"{value:.6g}" if isinstance(value, float) else value for value in row.values()
        )
    write_durably(path, text.getvalue().encode())
    return path


def with_ending(stem: Path, ending: str) -> Path:
    """`stem`.`ending` in a folder that exists; the name of `stem` may contain dots."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    return stem.with_name(f"{stem.name}.{ending}")


def in_millions(steps: float) -> str:
    """`5M` for 5,000,000."""
    return f"{steps / 1e6:g}M"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is aligned to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
