"""What a sweep shows: a live table on a terminal, a line per change anywhere else."""

import math
import os
import sys
from typing import TYPE_CHECKING, Protocol

from emi.runs.metrics_file import last_row
from emi.runs.progress import Lines, clock, live_possible, tell
from emi.sweeps.plan import STATES, Cell, State, counts

if TYPE_CHECKING:
    from rich.table import Table

_TABLE_ROWS = 20


class Board(Protocol):
    """Shows a list of cells that the sweep keeps up to date."""

    def show(self) -> None: ...
    def stopping(self) -> None: ...
    def end(self) -> None: ...


def choose_board(cells: list[Cell]) -> Board:
    return LiveTable(cells) if live_possible() else PlainLines(cells)


class PlainLines:
    """One line whenever a run changes its state."""

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
        tell("stopping after the iterations under way")

    def end(self) -> None:
        self.show()


class LiveTable:
    """The runs that matter now, drawn with rich."""

    def __init__(self, cells: list[Cell]) -> None:
        from rich.live import Live

        self._cells = cells
        self._stopping = False
        self._live = Live(get_renderable=self.draw, refresh_per_second=2)
        self._started = False

    def show(self) -> None:
        if not self._started:
            self._live.start()
            self._started = True

    def stopping(self) -> None:
        self._stopping = True
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # the next signal ends us as we stand

    def end(self) -> None:
        self._live.stop()

    def draw(self) -> "Table":
        from rich.table import Table

        cells = list(self._cells)
        stopping = "; stopping after the iterations under way" if self._stopping else ""
        table = Table(caption=counts(cells) + stopping, caption_justify="left")
        for title in ("run", "state", "iteration", "steps/s", "left", "return", "bonus"):
            table.add_column(title, justify="left" if title in ("run", "state") else "right")
        for cell in sorted(cells, key=lambda cell: STATES.index(cell.state))[:_TABLE_ROWS]:
            table.add_row(cell.name, cell.state, *_facts(cell))
        return table


def _facts(cell: Cell) -> list[str]:
    """Iteration, steps/s, time left, return and bonus, as far as the run has come."""
    row = last_row(cell.path / "metrics.csv")
    if row is None or cell.state == "conflict":
        return [""] * 5
    left = (cell.config.steps - row["steps"]) / row["steps_per_second"]
    value = row["return_mean"]
    return [
        f"{row['iteration']:.0f}/{cell.config.iterations}",
        f"{row['steps_per_second']:,.0f}",
        clock(max(0.0, left)) if cell.state == "running" else "",
        "-" if math.isnan(value) else f"{value:.4g}",
        f"{row['bonus_mean']:.3g}",
    ]
