"""What is said when a run ends."""

import math
import signal
from pathlib import Path

import pytest

from emi.errors import UserError
from emi.runs.ending import describe_ending
from emi.runs.metrics_file import COLUMNS, MetricsFile
from emi.runs.run import RunResult
from emi.runs.run_directory import RunDirectory


def ending(path: Path, returns: list[float], iterations: int, began: int = 0) -> list[str]:
    """The lines about a run with these returns, of 100 steps and 40 seconds per iteration."""
    path.mkdir()
    metrics = MetricsFile(path / "metrics.csv")
    for number, value in enumerate(returns, 1):
        own = {"iteration": number, "steps": 100 * number, "seconds": 40.0 * number}
        metrics.append(dict.fromkeys(COLUMNS, 0.0) | own | {"return_mean": value})
    metrics.close()
    stopped = signal.SIGINT if len(returns) < iterations else None
    result = RunResult(RunDirectory(path), len(returns), iterations, began, stopped)
    return describe_ending(result)


def test_a_complete_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMI_COMMAND", "./emi")
    returns = [100.0, math.nan, 30.0, *[float(n) for n in range(10)], math.nan]
    assert ending(Path("my run"), returns, 14) == [
        "complete: 14 iterations, 1,400 steps in 9:20",
        "return:   4.5 (last 10 iterations), best 100 (iteration 1)",
        "run:      my run",
        "watch:    ./emi watch 'my run'",
        "report:   ./emi report 'my run'",
    ]


def test_a_run_that_was_complete_already(tmp_path: Path) -> None:
    first = ending(tmp_path / "run", [1.0, 2.0], 2, began=2)[0]
    assert first == "complete: 2 iterations, 200 steps in 1:20; it was complete already"


def test_a_stopped_run(tmp_path: Path) -> None:
    assert ending(tmp_path / "run", [1.0], 2_000)[:2] == [
        "stopped:  1 of 2,000 iterations, 100 steps in 0:40",
        "return:   1 (one iteration), best 1 (iteration 1)",
    ]


@pytest.mark.parametrize("returns", [[], [math.nan, math.nan]])
def test_no_episode_has_ended(tmp_path: Path, returns: list[float]) -> None:
    lines = ending(tmp_path / "run", returns, 9)
    assert lines[1] == "return:   none, because no episode has ended"


def test_metrics_that_are_no_numbers(tmp_path: Path) -> None:
    ending(tmp_path / "run", [1.0], 1)
    file = tmp_path / "run" / "metrics.csv"
    file.write_text(file.read_text().replace("40.0", "forty"))
    with pytest.raises(UserError, match=r"metrics\.csv was changed by hand"):
        describe_ending(RunResult(RunDirectory(tmp_path / "run"), 1, 1, 1))
