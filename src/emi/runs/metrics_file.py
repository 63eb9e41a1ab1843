"""metrics.csv: one row per iteration, none lost or repeated when a run is stopped and resumed."""

import csv
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path

from emi.durable_file import open_own, require_in_place, write_durably
from emi.errors import FAILED, UserError
from emi.untrusted_file import open_regular, read_file

COLUMNS = (
    *("iteration", "steps", "seconds", "steps_per_second"),
    *("episodes", "return_mean", "return_std", "return_max"),
    *("bonus_mean", "bonus_std"),
    *("kl", "entropy", "explained_variance"),
)
"""Always present, in this order; the method's own scalars follow."""
_COUNTS = frozenset({"iteration", "steps", "episodes"})
_POSITION = ("iteration", "steps", "seconds")  # what a resumed run needs
_FILE_BYTES = 256 * 1024 * 1024  # about 600,000 rows; parsed, they take ten times as much memory
_LINE_BYTES = 1024 * 1024  # some hundred for a row

Row = dict[str, float]


@dataclass(frozen=True)
class Position:
    """Where metrics.csv ends."""

    iteration: int
    steps: int
    seconds: float


class MetricsFile:
    """Appends rows. A row may have columns that the file lacks, or lack some of the file's.

    So a run can be resumed by a later version of emi that writes other metrics.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] = []
        self._file: io.FileIO | None = None

    def append(self, row: Row) -> None:
        """Write `row` and hand it to the operating system."""
        if self._file is None or not row.keys() <= set(self._columns):
            self.close()
            self._columns = _add_columns(self.path, row)
            self._file = open_own(self.path, os.O_APPEND)
        require_in_place(self.path, self._file.fileno())
        data = _line([_cell(name, row.get(name, math.nan)) for name in self._columns]).encode()
        while data:  # a nearly full disk may accept a part before it reports that it is full
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
    """Drop all rows after `iteration` and a half-written last line; return where the file ends."""
    if not path.exists() and iteration == 0:
        return Position(0, 0, 0.0)
    columns, rows = _read(path)
    kept = rows[:iteration]
    if len(kept) < iteration:
        raise UserError(
            f"{path} ends at iteration {len(kept)}, before the checkpoint's {iteration}:"
            " restore the complete file or start a new run",
            FAILED,
        )
    end = _position(path, kept[-1]) if kept else Position(0, 0, 0.0)
    _rewrite(path, columns, kept)
    return end


def last_row(path: Path) -> Row | None:
    """Return the newest complete row without reading the others; None if there is none yet."""
    try:
        with open_regular(path) as file:
            header = file.readline(_LINE_BYTES)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(len(header), end - 8192))
            lines = file.read().split(b"\n")
        names = header.decode().rstrip("\n").split(",")
        cells = lines[-2].decode().split(",")  # what follows the last line break is incomplete
        row = {name: float(cell) for name, cell in zip(names, cells, strict=True)}
    except (OSError, ValueError, IndexError):
        return None
    return row if all(0 <= row.get(name, 0.0) < math.inf for name in _POSITION) else None


def read_rows(path: Path) -> list[Row]:
    """Return all complete rows."""
    columns, rows = _read(path)
    try:
        return [dict(zip(columns, map(float, row), strict=True)) for row in rows]
    except ValueError:
        raise _changed_by_hand(path) from None


def _add_columns(path: Path, row: Row) -> list[str]:
    """Add the columns of `row` that the file lacks, NaN in all earlier rows; return all columns."""
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise ValueError(f"a row of metrics lacks {missing[0]!r}")
    old, rows = _read(path)
    others = [name for name in (*old, *row) if name not in COLUMNS]
    columns = [*COLUMNS, *dict.fromkeys(others)]
    if columns != old:
        cells = [dict(zip(old, values, strict=True)) for values in rows]
        _rewrite(path, columns, [[c.get(name, "nan") for name in columns] for c in cells])
    return columns


def _rewrite(path: Path, columns: list[str], rows: list[list[str]]) -> None:
    """Replace the file durably, if it differs: a crash leaves the old file or the new one."""
    data = "".join(map(_line, [columns, *rows] if columns else [])).encode()
    if not path.exists() or read_file(path, _FILE_BYTES) != data:
        write_durably(path, data)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the complete lines; the rows must count 1, 2, 3, …"""
    content = read_file(path, _FILE_BYTES) if path.exists() else b""
    lines = content.rpartition(b"\n")[0]
    if not lines:
        return [], []
    try:
        if max(map(len, lines.split(b"\n"))) > _LINE_BYTES:
            raise _changed_by_hand(path)
        columns, *rows = csv.reader(io.StringIO(lines.decode()))
    except (UnicodeDecodeError, csv.Error):
        columns, rows = [], []
    ordered = [name for name in COLUMNS if name in columns]
    sound = (
        tuple(columns[: len(_POSITION)]) == _POSITION
        and len(set(columns)) == len(columns)
        and [name for name in columns if name in COLUMNS] == ordered
        and all(len(r) == len(columns) and r[0] == str(n) for n, r in enumerate(rows, 1))
    )
    if not sound:
        raise _changed_by_hand(path)
    return columns, rows


def _position(path: Path, row: list[str]) -> Position:
    """The end of the file by its last row, which must have sensible numbers."""
    try:
        iteration, steps, seconds = int(row[0]), int(row[1]), float(row[2])
    except ValueError:
        raise _changed_by_hand(path) from None
    if not (0 <= steps < 2**63 and 0 <= seconds < math.inf):
        raise _changed_by_hand(path)
    return Position(iteration, steps, seconds)


def _changed_by_hand(path: Path) -> UserError:
    return UserError(f"{path} was changed by hand: restore the original", FAILED)


def _cell(name: str, value: float) -> str:
    # repr of a float reads back as the same float.
    return str(int(value)) if name in _COUNTS else repr(float(value))


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
