"""The columns of metrics.csv, checked: the file can be cut, changed by hand, or made by anyone."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from emi.errors import UserError
from emi.report.statistics import Array
from emi.untrusted_file import read_file

METRICS_BYTES = 32_000_000  # about 80,000 iterations
MOST_COLUMNS = 1_000
LARGEST = 1e100  # so that a variance does not overflow
REQUIRED = ("iteration", "steps", "seconds", "return_mean")


class Metrics(dict[str, Array]):
    """The columns of a metrics file, each float64 [iterations]; NaN where there is no value.

    UserError for a column that the file does not have: not all methods and versions have the same.
    """

    def __init__(self, columns: Mapping[str, Array], file: Path) -> None:
        super().__init__(columns)
        self.file = file

    def __missing__(self, name: str) -> NoReturn:
        raise UserError(f"{self.file} has no column {name}")


def read_metrics(file: Path) -> Metrics:
    """The content of a metrics file; UserError if it cannot be drawn."""
    content = read_file(file, METRICS_BYTES)
    # What follows the last line break is a row that a running process is still writing.
    header, _, rows = content[: content.rfind(b"\n") + 1].partition(b"\n")
    columns = _columns(file, header)
    table = _numbers(file, rows, len(columns))
    metrics = Metrics(dict(zip(columns, table.T, strict=True)), file)
    for name, column in metrics.items():
        huge = np.abs(column) > LARGEST  # false for NaN
        if name in REQUIRED and huge.any():
            raise UserError(f"{name} in {file} must be below {LARGEST:g}")
        column[huge] = np.nan  # a loss that diverged cannot be drawn; the rest of the run can
    # Curves are interpolated over the steps, which therefore increase; NaN does not.
    if not (np.diff(metrics["steps"], prepend=0) > 0).all():
        raise UserError(f"steps in {file} must increase from row to row")
    return metrics


def _columns(file: Path, header: bytes) -> list[str]:
    count = header.count(b",") + 1
    if count > MOST_COLUMNS:
        raise UserError(f"{file} has {count:,} columns: {MOST_COLUMNS:,} are allowed")
    try:
        columns = next(csv.reader([header.decode().rstrip("\r")]), [])
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{file} does not begin with the names of its columns") from None
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise UserError(f"{file} has no column {missing[0]}")
    if len(set(columns)) < len(columns):
        raise UserError(f"{file} has two columns of the same name")
    return columns


def _numbers(file: Path, rows: bytes, columns: int) -> Array:
    if not rows.strip():
        return np.empty((0, columns))
    text = io.TextIOWrapper(io.BytesIO(rows), encoding="ascii", errors="replace")
    try:
        table = np.loadtxt(text, np.float64, comments=None, delimiter=",", ndmin=2)
        if table.shape[1] == columns:
            return table
    except ValueError:  # its text has a cell, of a file that may be a link to a secret
        pass
    raise UserError(f"a row of {file} does not hold {columns} numbers")
