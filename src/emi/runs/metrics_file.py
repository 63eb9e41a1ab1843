"""metrics.csv: one row per iteration, none lost and none repeated across stops and resumes."""

import csv
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path

from emi.durable_file import write_durably
from emi.errors import FAILED, UserError

COLUMNS = (
    "iteration",
    "steps",
    "seconds",
    "steps_per_second",
    "episodes",
    "return_mean",
    "return_std",
    "return_max",
    "bonus_mean",
    "bonus_std",
    "kl",
    "entropy",
    "explained_variance",
)
"""Always there, in this order; the method's own scalars follow."""
_COUNTS = frozenset({"iteration", "steps", "episodes"})

Row = dict[str, float]


@dataclass(frozen=True)
class Position:
    """Where metrics.csv ends."""

    iteration: int
    steps: int
    seconds: float


class MetricsFile:
    """Appends rows; the first one, or the file that is there already, sets the columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] | None = None
        self._file: io.FileIO | None = None

    def append(self, row: Row) -> None:
        """Write `row` and hand it to the operating system."""
        text = ""
        if self._file is None:
            self._columns = _read(self.path)[0] if self.path.exists() else []
            if not self._columns:
                self._columns = _ordered(row)
                text = _line(self._columns)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        assert self._columns is not None
        unknown = row.keys() - set(self._columns)
        if unknown:
            raise ValueError(f"{min(unknown)!r} is not a column of {self.path}")
        text += _line([_cell(name, row.get(name, math.nan)) for name in self._columns])
        data = text.encode()
        while data:  # a nearly full disk may take a part only, before it says that it is full
            data = data[self._file.write(data) :]

    def sync(self) -> None:
        """Flush to disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def keep_until(path: Path, iteration: int) -> Position:
    """Drop all rows after `iteration`, and a half-written last line; say where the file ends."""
    columns, rows = _read(path) if path.exists() else ([], [])
    kept = rows[:iteration]
    if len(kept) < iteration:
        raise UserError(
            f"{path} ends at iteration {len(kept)}, before the checkpoint's {iteration}:"
            " put the complete file back, or start a new run",
            FAILED,
        )
    if path.exists():
        text = "".join(_line(cells) for cells in ([columns] if columns else []) + kept)
        if text.encode() != path.read_bytes():
            write_durably(path, text.encode())
    if not kept:
        return Position(0, 0, 0.0)
    last = dict(zip(columns, kept[-1], strict=True))
    return Position(iteration, int(last["steps"]), float(last["seconds"]))


def last_row(path: Path) -> Row | None:
    """The newest whole row, without reading the rest; None if there is none yet."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            end = file.seek(0, os.SEEK_END)
            file.seek(max(len(header), end - 8192))
            lines = file.read().split(b"\n")
        names = header.decode().rstrip("\n").split(",")
        cells = lines[-2].decode().split(",")  # what follows the last line break is unfinished
        return {name: float(cell) for name, cell in zip(names, cells, strict=True)}
    except (OSError, ValueError, IndexError):
        return None


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the whole lines; the rows must count 1, 2, 3, …"""
    whole = path.read_bytes().rpartition(b"\n")[0]
    try:
        lines = list(csv.reader(io.StringIO(whole.decode())))
    except (UnicodeDecodeError, csv.Error):
        lines = [[]]
    if not whole:
        return [], []
    columns, rows = lines[0], lines[1:]
    sound = tuple(columns[: len(COLUMNS)]) == COLUMNS and all(
        len(row) == len(columns) and row[0] == str(number) for number, row in enumerate(rows, 1)
    )
    if not sound:
        raise UserError(f"{path} was changed by hand: put the original back", FAILED)
    return columns, rows


def _ordered(row: Row) -> list[str]:
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise ValueError(f"a row of metrics lacks {missing[0]!r}")
    return [*COLUMNS, *(name for name in row if name not in COLUMNS)]


def _cell(name: str, value: float) -> str:
    # repr of a float reads back as the same float.
    return str(int(value)) if name in _COUNTS else repr(float(value))


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
