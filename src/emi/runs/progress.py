"""What a long command shows: a live display on a terminal, plain lines anywhere else."""

import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TextIO

from emi.runs.metrics_file import Row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

PLAIN_SECONDS = 10.0


class Progress(Protocol):
    """Told of each step of a run; `stopping` may be called from a signal handler."""

    def begin(self, title: str, iteration: int, iterations: int) -> None: ...
    def update(self, row: Row) -> None: ...
    def note(self, sentence: str) -> None: ...
    def warn(self, sentence: str) -> None: ...
    def stopping(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Pace:
    """How far a run is and how fast it goes, measured over this start."""

    title: str
    first: int
    iterations: int
    began: float
    updated: float
    row: Row
    episode_return: float = math.nan

    def after(self, row: Row, now: float) -> "Pace":
        """With the next row; the last return stays where no episode finished."""
        value = row["return_mean"]
        known = self.episode_return if math.isnan(value) else value
        return replace(self, row=row, updated=now, episode_return=known)

    @property
    def iteration(self) -> int:
        return int(self.row["iteration"]) if self.row else self.first

    def seconds_left(self, now: float) -> float:
        done = self.iteration - self.first
        if done == 0:
            return math.nan
        in_all = (self.updated - self.began) / done * (self.iterations - self.iteration)
        return max(0.0, in_all - (now - self.updated))

    def facts(self, now: float) -> list[str]:
        """The same facts for every display."""
        if not self.row:
            return [f"iteration {self.iteration}/{self.iterations}"]
        return [
            f"iteration {self.iteration}/{self.iterations}",
            f"{int(self.row['steps']):,} steps",
            f"{self.row['steps_per_second']:,.0f} steps/s",
            f"{clock(self.seconds_left(now))} left",
            f"return {'-' if math.isnan(self.episode_return) else f'{self.episode_return:.4g}'}",
            f"bonus {self.row['bonus_mean']:.3g}",
        ]


def clock(seconds: float) -> str:
    """3725.0 to 1:02:05."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Lines:
    """Lines on a stream that may vanish: a run does not end because nobody reads along."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = True

    def write(self, text: str) -> None:
        if not self._open:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except OSError:
            self._open = False


class Silent:
    """Shows nothing but warnings: for use from Python."""

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        """Say nothing."""

    def update(self, row: Row) -> None:
        """Say nothing."""

    def note(self, sentence: str) -> None:
        """Say nothing."""

    def warn(self, sentence: str) -> None:
        warnings.warn(sentence, stacklevel=2)

    def stopping(self) -> None:
        """Say nothing."""

    def end(self) -> None:
        """Say nothing."""


class PlainLines:
    """The first and the last iteration, and one line about every `every_seconds` between them."""

    def __init__(
        self,
        stream: TextIO,
        every_seconds: float = PLAIN_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = Lines(stream)
        self._every = every_seconds
        self._now = now
        self._pace: Pace | None = None
        self._written = -math.inf

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        now = self._now()
        self._pace = Pace(title, iteration, iterations, now, now, {})
        self._written = -math.inf
        self._lines.write(f"{title}: {iterations} iterations, from {iteration}")

    def update(self, row: Row) -> None:
        assert self._pace is not None, "begin() comes first"
        now = self._now()
        self._pace = self._pace.after(row, now)
        if self._pace.iteration == self._pace.iterations or now - self._written >= self._every:
            self._lines.write("  ".join(self._pace.facts(now)))
            self._written = now

    def note(self, sentence: str) -> None:
        self._lines.write(sentence)

    def warn(self, sentence: str) -> None:
        tell(f"warning: {sentence}")

    def stopping(self) -> None:
        tell("stopping after this iteration; once more to stop at once")

    def end(self) -> None:
        """Nothing to clear."""


class LiveDisplay:
    """Two lines that keep themselves up to date, drawn with rich."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._pace: Pace | None = None
        self._stopping = False

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        from rich.live import Live

        now = time.monotonic()
        self._pace = Pace(title, iteration, iterations, now, now, {})
        self._live = Live(get_renderable=self._draw, refresh_per_second=4)
        self._live.start()

    def update(self, row: Row) -> None:
        assert self._pace is not None, "begin() comes first"
        self._pace = self._pace.after(row, time.monotonic())

    def note(self, sentence: str) -> None:
        if self._live is None:
            print(sentence)
        else:
            self._live.console.print(sentence, highlight=False, markup=False)

    def warn(self, sentence: str) -> None:
        self.note(f"warning: {sentence}")

    def stopping(self) -> None:
        # Only a flag, for rich may be in the middle of drawing; and the cursor comes back now,
        # because the next signal ends the process on the spot.
        self._stopping = True
        os.write(sys.stdout.fileno(), b"\x1b[?25h")

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._pace is not None
        now = time.monotonic()
        first = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self._pace.iterations, completed=self._pace.iteration, width=30)
        title = Text(self._pace.title, style="bold")
        first.add_row(title, bar, clock(now - self._pace.began))
        second = Text("  ".join(self._pace.facts(now)))
        if self._stopping:
            second.append("\nstopping after this iteration; Ctrl-C again to stop at once", "yellow")
        return Group(first, second)


def choose_progress() -> Progress:
    """Live on a terminal if rich is installed, else plain lines."""
    if live_possible():
        return LiveDisplay()
    return PlainLines(sys.stdout)


def live_possible() -> bool:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def tell(sentence: str) -> None:
    """A sentence to stderr in one system call, which is safe inside a signal handler."""
    try:
        os.write(2, f"emi: {sentence}\n".encode())
    except OSError:
        return
