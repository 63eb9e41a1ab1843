"""Progress of a sweep: a live table on a terminal, one line per change anywhere else."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emi.runs.metrics_file import last_row
from emi.runs.progress import Lines, clock, live_possible, show_cursor, tell
from emi.sweeps.plan import STATES, Cell, State, counts

if TYPE_CHECKING:
    from rich.table import Table

_TABLE_ROWS = 20
_COLUMNS = ("run", "state", "iteration", "steps/s", "left", "return", "bonus")
# On a narrow terminal: columns to drop, and how far names are shortened before.
_DROPPED_FIRST = ("bonus", "steps/s", "left", "iteration")
_NAME_WIDTH = 24
_GAP = 2  # spaces between columns


class PlainBoard:
    """One line whenever the state of a run in `cells` changes."""

    def __init__(self, cells: list[Cell]) -> None:
        self._cells = cells
        self._shown: list[State] = ["waiting"] * len(cells)
        self._lines = Lines(sys.stdout)

    def show(self) -> None:
        for index, cell in enumerate(self._cells):
            if cell.state != self._shown[index]:
                self._shown[index] = cell.state
                self._lines.write(f"{cell.name}: {cell.state}")

    def stopping(self) -> None:
        tell("stopping after the current iterations")

    def end(self) -> None:
        self.show()


class LiveBoard:
    """A table of `cells`, running and failed ones first, drawn with rich."""

    def __init__(self, cells: list[Cell]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._cells = cells
        self._stopping = self._ended = False
        self._console = Console()
        self._live = Live(console=self._console, get_renderable=self.draw, refresh_per_second=2)

    def show(self) -> None:
        if not self._live.is_started:
            self._live.start()

    def stopping(self) -> None:
        self._stopping = True
        show_cursor()  # a second signal ends the process at once

    def end(self) -> None:
        self._ended = True
        self._live.stop()

    def draw(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        cells = list(self._cells)
        caption = counts(cells)
        if self._stopping:
            caption += "; stopping after the current iterations"
        # The last table has no caption, because the summary of the sweep follows it.
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, caption_justify="left")
        table.caption = None if self._ended else caption
        shown = sorted(cells, key=lambda cell: STATES.index(cell.state))[:_TABLE_ROWS]
        rows = [dict(zip(_COLUMNS, _facts(cell), strict=True)) for cell in shown]
        columns = fitting(rows, self._console.width)
        for title in columns:
            left = title in ("run", "state")
            table.add_column(title, justify="left" if left else "right", no_wrap=True)
        for texts in zip(*columns.values(), strict=True):
            table.add_row(*map(Text, texts))
        return table


Board = PlainBoard | LiveBoard


def choose_board(cells: list[Cell]) -> Board:
    """Return the display of `cells`, a list that the sweep keeps up to date."""
    return LiveBoard(cells) if live_possible() else PlainBoard(cells)


def fitting(rows: Sequence[Mapping[str, str]], width: int) -> dict[str, list[str]]:
    """Return the columns of a table that is at most `width` wide.

    Long names of runs are shortened a little, then less important columns are dropped.
    """
    columns = {title: [row[title] for row in rows] for title in _COLUMNS}
    widths = {title: max(map(len, (title, *texts))) for title, texts in columns.items()}
    for title in (*_DROPPED_FIRST, None):
        others = sum(widths.values()) - widths["run"] + _GAP * (len(widths) - 1)
        if title is None or width - others >= min(widths["run"], _NAME_WIDTH):
            break
        del columns[title], widths[title]
    columns["run"] = [shortened(name, width - others) for name in columns["run"]]
    return columns


def shortened(name: str, width: int) -> str:
    """Leave out the middle of a name that is too long: its end is the seed."""
    width = max(width, 3)
    first = (width - 1) // 3
    return name if len(name) <= width else f"{name[:first]}…{name[first + 1 - width :]}"


def _facts(cell: Cell) -> list[str]:
    """Return a text for each column; most are empty before the first iteration."""
    row = last_row(cell.path / "metrics.csv")
    if row is None or cell.state == "conflict":
        return [cell.name, cell.state, *[""] * 5]
    left = (cell.config.steps - row["steps"]) / row["steps_per_second"]
    value = row["return_mean"]
    return [
        cell.name,
        cell.state,
        f"{row['iteration']:.0f}/{cell.config.iterations}",
        f"{row['steps_per_second']:,.0f}",
        clock(max(0.0, left)) if cell.state == "running" else "",
        "-" if math.isnan(value) else f"{value:.4g}",
        f"{row['bonus_mean']:.3g}",
    ]
