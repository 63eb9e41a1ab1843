"""What a long command shows."""

import io
import math
import time

import pytest

from emi.runs.metrics_file import COLUMNS, Row
from emi.runs.progress import (
    LiveProgress,
    PlainProgress,
    Progress,
    choose_progress,
    clock,
    in_lines,
    tell,
    working,
)


def row(iteration: int, return_mean: float = math.nan) -> Row:
    return dict.fromkeys(COLUMNS, 0.0) | {
        "iteration": iteration,
        "steps": 5_000 * iteration,
        "steps_per_second": 4321.4,
        "return_mean": return_mean,
        "bonus_mean": 0.01234,
    }


def plain(returns: list[float], seconds: float) -> list[str]:
    """Lines for iterations that take `seconds` each."""
    stream, time = io.StringIO(), 0.0
    lines = PlainProgress(stream, now=lambda: time)
    lines.begin("Env emi seed 0", 0, len(returns))
    for iteration, value in enumerate(returns, 1):
        time += seconds
        lines.update(row(iteration, value))
    lines.end()
    return stream.getvalue().splitlines()


def test_a_line_has_every_fact() -> None:
    assert plain([math.nan, 1.5, math.nan], 61.0) == [
        "Env emi seed 0: 3 iterations, from 0",
        "iteration 1/3  5,000 steps  4,321 steps/s  2:02 left  return -  bonus 0.0123",
        "iteration 2/3  10,000 steps  4,321 steps/s  1:01 left  return 1.5  bonus 0.0123",
        "iteration 3/3  15,000 steps  4,321 steps/s  0:00 left  return 1.5  bonus 0.0123",
    ]


def test_fast_iterations_give_a_line_in_ten_seconds_with_first_and_last() -> None:
    lines = plain([0.0] * 100, 0.5)
    assert [line.split("  ")[0] for line in lines[1:]] == [
        f"iteration {n}/100" for n in (1, 21, 41, 61, 81, 100)
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (59.6, "1:00"), (3725.0, "1:02:05"), (360_000.0, "100:00:00"), (math.nan, "?")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_reader_that_leaves_does_not_stop_the_run() -> None:
    class Gone(io.StringIO):
        attempts = 0

        def write(self, text: str) -> int:
            self.attempts += 1
            raise BrokenPipeError

    stream = Gone()
    lines = PlainProgress(stream, every_seconds=0.0)
    lines.begin("Env emi seed 0", 0, 2)
    lines.update(row(1))
    lines.update(row(2))
    assert stream.attempts == 1


def test_plain_lines_without_a_terminal() -> None:
    assert isinstance(choose_progress(), PlainProgress)


def test_python_users_get_warnings() -> None:
    with pytest.warns(UserWarning, match="checkpoint 3 is damaged"):
        Progress().warn("checkpoint 3 is damaged")


def test_a_fact_is_never_divided() -> None:
    facts = ["iteration 1/3", "5,000 steps", "return 1.5"]
    assert in_lines(facts, 38) == ["iteration 1/3  5,000 steps  return 1.5"]
    assert in_lines(facts, 37) == ["iteration 1/3  5,000 steps", "return 1.5"]
    assert in_lines(facts, 5) == facts


def test_a_long_command_shows_plain_lines() -> None:
    stream = io.StringIO()
    with working("drawing", stream, after_seconds=0.0, every_seconds=0.0) as show:
        while not stream.getvalue():  # a thread writes the first line
            time.sleep(0.001)
        show("3 of 5")
    assert stream.getvalue() == "drawing\ndrawing: 3 of 5\n"


def test_a_short_command_shows_nothing() -> None:
    stream = io.StringIO()
    with working("drawing", stream, after_seconds=60.0, every_seconds=60.0) as show:
        show("3 of 5")
    assert stream.getvalue() == ""


def test_a_line_vanishes_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with working("drawing [1]", stream) as show:
        show("3 of 5")
    assert "drawing [1]: 3 of 5" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")


def test_a_message_with_an_undecodable_name(capfd: pytest.CaptureFixture[str]) -> None:
    tell("cannot write \udcff")
    assert capfd.readouterr().err == "emi: cannot write ?\n"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_display_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", str(width))
    display = LiveProgress()
    display.begin("SparseHalfCheetah ae-simhash seed 10", 10, 2000)
    display.update(row(1500, 2.5))
    console = Console(width=width, file=io.StringIO())
    console.print(display._draw())
    display.end()
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("SparseHalfCheetah ae-simhash seed 10  ━")
    assert lines[0].rstrip().endswith("0:00")
    assert len(lines) == {60: 3, 80: 3, 120: 2}[width]
    assert lines[-1].endswith("bonus 0.0123")


def test_the_live_display_draws_the_same_facts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", "100")
    display = LiveProgress()
    display.begin("Env emi seed 0", 10, 20)
    display.update(row(15, 2.5))
    console = Console(width=100, file=io.StringIO())
    console.print(display._draw())
    display.note("a note")
    display.end()
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Env emi seed 0" in drawn
    assert "iteration 15/20  75,000 steps  4,321 steps/s" in drawn
    assert "return 2.5  bonus 0.0123" in drawn
    assert "a note" in capsys.readouterr().out
