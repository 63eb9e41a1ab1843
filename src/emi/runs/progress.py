"""Progress of a run: a live display on a terminal, plain lines anywhere else."""

import contextlib
import importlib.util
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from emi.runs.metrics_file import Row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

PLAIN_SECONDS = 10.0
QUIET_SECONDS = 2.0  # a shorter command shows no plain line


class Progress:
    """Shows warnings only, for use from Python; the displays override what they show."""

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        """Start at `iteration`, the number of iterations done before."""

    def update(self, row: Row) -> None:
        """Take the row of metrics.csv that was just written."""

    def note(self, sentence: str) -> None:
        """Show a remark."""

    def warn(self, sentence: str) -> None:
        """Show a warning."""
        warnings.warn(sentence, stacklevel=2)

    def stopping(self) -> None:
        """Show that a signal was received; called inside the signal handler."""

    def end(self) -> None:
        """Leave the terminal as it was."""


@dataclass
class Pace:
    """How far a run is and how fast it is, measured since this start."""

    title: str
    first: int
    iterations: int
    began: float
    row: Row = field(default_factory=dict)
    updated: float = math.nan
    episode_return: float = math.nan

    def update(self, row: Row, now: float) -> None:
        self.row, self.updated = row, now
        if not math.isnan(row["return_mean"]):  # NaN: no episode finished in this iteration
            self.episode_return = row["return_mean"]

    @property
    def iteration(self) -> int:
        return int(self.row["iteration"]) if self.row else self.first

    def facts(self, now: float) -> list[str]:
        """What every display shows."""
        facts = [f"iteration {self.iteration}/{self.iterations}"]
        if not self.row:
            return facts
        done, left = self.iteration - self.first, self.iterations - self.iteration
        seconds = (self.updated - self.began) / done * left - (now - self.updated)
        value = "-" if math.isnan(self.episode_return) else f"{self.episode_return:.4g}"
        return [
            *facts,
            f"{int(self.row['steps']):,} steps",
            f"{self.row['steps_per_second']:,.0f} steps/s",
            f"{clock(max(0.0, seconds))} left",
            f"return {value}",
            f"bonus {self.row['bonus_mean']:.3g}",
        ]


def clock(seconds: float) -> str:
    """Format 3725.0 as 1:02:05."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def in_lines(facts: Sequence[str], width: int) -> list[str]:
    """Put facts into lines of at most `width`; a fact is never divided."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + 2 + len(fact) <= width:
            lines[-1] += f"  {fact}"
        else:
            lines.append(fact)
    return lines


class Lines:
    """Lines on a stream; a closed pipe ends the output, not the run."""

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


class PlainProgress(Progress):
    """The first and the last iteration, and one line every `every_seconds` between them."""

    def __init__(
        self,
        stream: TextIO,
        every_seconds: float = PLAIN_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = Lines(stream)
        self._every = every_seconds
        self._now = now
        self._written = -math.inf

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        self._pace = Pace(title, iteration, iterations, self._now())
        self._lines.write(f"{title}: {iterations} iterations, from {iteration}")

    def update(self, row: Row) -> None:
        now = self._now()
        self._pace.update(row, now)
        if self._pace.iteration == self._pace.iterations or now - self._written >= self._every:
            self._lines.write("  ".join(self._pace.facts(now)))
            self._written = now

    def note(self, sentence: str) -> None:
        self._lines.write(sentence)

    def warn(self, sentence: str) -> None:
        tell(f"warning: {sentence}")

    def stopping(self) -> None:
        tell("stopping after this iteration; a second signal stops at once")


class LiveProgress(Progress):
    """Two lines that rich keeps up to date."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._stopping = False

    def begin(self, title: str, iteration: int, iterations: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._pace = Pace(title, iteration, iterations, time.monotonic())
        self._console = Console()
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=4)
        self._live.start()

    def update(self, row: Row) -> None:
        self._pace.update(row, time.monotonic())

    def note(self, sentence: str) -> None:
        if self._live is None:
            print(sentence)
        else:
            self._live.console.print(sentence, highlight=False, markup=False)

    def warn(self, sentence: str) -> None:
        self.note(f"warning: {sentence}")

    def stopping(self) -> None:
        # Only a flag, because rich may be drawing. The cursor is shown again now, because a second
        # signal ends the process at once.
        self._stopping = True
        show_cursor()

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, pace = time.monotonic(), self._pace
        elapsed, width = clock(now - pace.began), self._console.width
        first = Table.grid(padding=(0, 2))
        left = max(5, min(30, width - len(pace.title) - len(elapsed) - 4))
        bar = ProgressBar(total=pace.iterations, completed=pace.iteration, width=left)
        first.add_row(Text(pace.title, style="bold"), bar, elapsed)
        second = Text("\n".join(in_lines(pace.facts(now), width)))
        if self._stopping:
            second.append("\nstopping after this iteration; Ctrl-C again to stop at once", "yellow")
        return Group(first, second)


@contextlib.contextmanager
def working(
    what: str,
    stream: TextIO | None = None,
    after_seconds: float | None = None,
    every_seconds: float = PLAIN_SECONDS,
) -> Iterator[Callable[[str], None]]:
    """Show on stderr that `what` is being done, until the end of the block.

    It gives a function that shows how far it is. On a terminal that is a line which vanishes at the
    end; elsewhere a plain line after `after_seconds` (default: QUIET_SECONDS), and then one every
    `every_seconds`.
    """
    stream = stream or sys.stderr
    if live_possible(stream):
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        console = Console(file=stream)
        # rich writes what is printed meanwhile above the line, but must not take it from a pipe.
        redirect = sys.stdout.isatty()
        with Bar(*columns, console=console, transient=True, redirect_stdout=redirect) as bar:
            task = bar.add_task(escape(what))
            yield lambda far: bar.update(task, description=escape(f"{what}: {far}"))
        return
    lines, written = Lines(stream), math.inf

    def write(text: str) -> None:
        nonlocal written
        written = time.monotonic()
        lines.write(text)

    def show(far: str) -> None:
        if time.monotonic() - written >= every_seconds:
            write(f"{what}: {far}")

    timer = threading.Timer(
        QUIET_SECONDS if after_seconds is None else after_seconds, write, [what]
    )
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()


def choose_progress() -> Progress:
    """Return the live display on a terminal if rich is installed, otherwise plain lines."""
    return LiveProgress() if live_possible() else PlainProgress(sys.stdout)


def live_possible(stream: TextIO | None = None) -> bool:
    """Return whether `stream` (default: stdout) is a terminal and rich is installed."""
    terminal = (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"
    return terminal and importlib.util.find_spec("rich") is not None


def show_cursor() -> None:
    """Show the terminal's cursor again; safe inside a signal handler."""
    os.write(sys.stdout.fileno(), b"\x1b[?25h")


def tell(sentence: str) -> None:
    """Write a sentence to stderr in one system call; safe inside a signal handler."""
    with contextlib.suppress(OSError):
        os.write(2, f"emi: {sentence}\n".encode(errors="replace"))
