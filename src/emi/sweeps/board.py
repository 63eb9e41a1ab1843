"""Progress of a sweep: a live table on a terminal, one line per change anywhere else."""

import math
import sys
from typing import TYPE_CHECKING

from emi.runs.metrics_file import last_row
from emi.runs.progress import Lines, clock, live_possible, show_cursor, tell
from emi.sweeps.plan import STATES, Cell, State, counts

if TYPE_CHECKING:
    from rich.table import Table

_TABLE_ROWS = 20


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
        from rich.live import Live

        self._cells = cells
        self._stopping = False
        self._live = Live(get_renderable=self.draw, refresh_per_second=2)

    def show(self) -> None:
        if not self._live.is_started:
            self._live.start()

    def stopping(self) -> None:
        self._stopping = True
        show_cursor()  # a second signal ends the process at once

    def end(self) -> None:
        self._live.stop()

    def draw(self) -> "Table":
        from rich.table import Table

        cells = list(self._cells)
        stopping = "; stopping after the current iterations" if self._stopping else ""
        table = Table(caption=counts(cells) + stopping, caption_justify="left")
        for title in ("run", "state", "iteration", "steps/s", "left", "return", "bonus"):
            table.add_column(title, justify="left" if title in ("run", "state") else "right")
        for cell in sorted(cells, key=lambda cell: STATES.index(cell.state))[:_TABLE_ROWS]:
            table.add_row(cell.name, cell.state, *_facts(cell))
        return table


Board = PlainBoard | LiveBoard


def choose_board(cells: list[Cell]) -> Board:
    """Return the display of `cells`, a list that the sweep keeps up to date."""
    return LiveBoard(cells) if live_possible() else PlainBoard(cells)


def _facts(cell: Cell) -> list[str]:
    """Return iteration, steps/s, time left, return and bonus; empty before the first row."""
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
