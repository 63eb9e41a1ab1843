"""metrics.csv never loses or repeats a row."""

import csv
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from emi import durable_file
from emi.errors import UserError
from emi.runs import metrics_file
from emi.runs.metrics_file import COLUMNS, MetricsFile, Position, Row, keep_until, last_row


def row(iteration: int) -> Row:
    return dict.fromkeys(COLUMNS, 0.0) | {
        "emi/loss_info": 0.1 * iteration,
        "iteration": iteration,
        "steps": 100 * iteration,
        "seconds": 1.5 * iteration,
        "return_mean": math.nan,
        "abc/first": 1.0,
    }


def write(path: Path, count: int) -> None:
    file = MetricsFile(path)
    for iteration in range(1, count + 1):
        file.append(row(iteration))
    file.close()


def iterations(path: Path) -> list[int]:
    with path.open() as file:
        return [int(line["iteration"]) for line in csv.DictReader(file)]


def test_standard_columns_come_first_then_those_of_the_method_in_its_order(tmp_path: Path) -> None:
    write(tmp_path / "m.csv", 1)
    assert (tmp_path / "m.csv").read_text() == (
        "iteration,steps,seconds,steps_per_second,episodes,return_mean,return_std,return_max,"
        "bonus_mean,bonus_std,kl,entropy,explained_variance,emi/loss_info,abc/first\n"
        "1,100,1.5,0.0,0,nan,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.1,1.0\n"
    )


def test_floats_read_back_exactly(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1e-320, -1.7976931348623157e308, np.float64(1 / 3), np.float32(0.1)]
    file = MetricsFile(tmp_path / "m.csv")
    for iteration, value in enumerate(values, 1):
        file.append(row(iteration) | {"kl": value})
    with (tmp_path / "m.csv").open() as lines:  # before close: each row is handed over at once
        assert [float(line["kl"]) for line in csv.DictReader(lines)] == values
    file.close()


def test_a_later_process_keeps_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write(path, 2)
    file = MetricsFile(path)
    file.append(dict(reversed(list(row(3).items()))))
    file.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert lines[3].startswith("3,300,4.5,")


def test_a_row_must_have_every_standard_column(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.csv")
    with pytest.raises(ValueError, match="lacks 'kl'"):
        file.append({name: 0.0 for name in COLUMNS if name != "kl"})
    assert not any(tmp_path.iterdir())


def test_a_row_may_lack_a_column_of_the_method(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.csv")
    file.append(row(1))
    file.append({k: v for k, v in row(2).items() if k != "abc/first"})
    file.close()
    assert (tmp_path / "m.csv").read_text().splitlines()[2].endswith(",0.2,nan")


class TestNewColumns:
    """A later version of emi writes other metrics; an older run is resumed with it."""

    def test_a_new_column_is_nan_in_the_rows_before(self, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        write(path, 2)
        old = path.read_text().splitlines()
        assert keep_until(path, 2) == Position(2, 200, 3.0)
        file = MetricsFile(path)
        file.append(row(3) | {"new/b": 7.0, "new/a": 0.25})
        file.append(row(4) | {"new/b": 8.0, "new/a": 0.5})
        file.close()
        lines = path.read_text().splitlines()
        assert lines[0] == old[0] + ",new/b,new/a"
        assert lines[1:3] == [f"{line},nan,nan" for line in old[1:]]
        assert lines[3].endswith(",1.0,7.0,0.25")
        assert lines[4].endswith(",1.0,8.0,0.5")
        assert keep_until(path, 4) == Position(4, 400, 6.0)
        newest = last_row(path)
        assert newest is not None
        assert (newest["iteration"], newest["abc/first"], newest["new/b"]) == (4, 1.0, 8.0)

    def test_a_column_that_is_no_longer_written_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        write(path, 1)
        file = MetricsFile(path)
        new = row(2) | {"new": 3.0}
        del new["emi/loss_info"]
        file.append(new)
        file.close()
        lines = [line.split(",") for line in path.read_text().splitlines()]
        assert lines[0][len(COLUMNS) :] == ["emi/loss_info", "abc/first", "new"]
        assert lines[1][len(COLUMNS) :] == ["0.1", "1.0", "nan"]
        assert lines[2][len(COLUMNS) :] == ["nan", "1.0", "3.0"]

    def test_standard_columns_come_first_whichever_version_added_them(self, tmp_path: Path) -> None:
        """The old version had `retired` among the first columns, and neither kl nor episodes."""
        path = tmp_path / "m.csv"
        path.write_text(
            "iteration,steps,seconds,steps_per_second,retired,return_mean,return_std,return_max,"
            "bonus_mean,bonus_std,entropy,explained_variance,own\n"
            "1,100,1.5,50.0,9.0,nan,0.0,0.0,0.0,0.0,0.0,0.0,4.0\n"
        )
        assert keep_until(path, 1) == Position(1, 100, 1.5)
        file = MetricsFile(path)
        file.append(row(2))
        file.close()
        with path.open() as lines:
            table = list(csv.DictReader(lines))
        assert list(table[0]) == [*COLUMNS, "retired", "own", "emi/loss_info", "abc/first"]
        assert [line["kl"] for line in table] == ["nan", "0.0"]
        assert [line["episodes"] for line in table] == ["nan", "0"]
        assert [line["retired"] for line in table] == ["9.0", "nan"]
        assert [line["own"] for line in table] == ["4.0", "nan"]
        assert keep_until(path, 2) == Position(2, 200, 3.0)

    def test_a_method_may_begin_to_report_a_scalar_later(self, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        file = MetricsFile(path)
        file.append(row(1))
        file.append(row(2) | {"late": 5.0})
        file.append(row(3))
        file.close()
        with path.open() as lines:
            assert [line["late"] for line in csv.DictReader(lines)] == ["nan", "5.0", "nan"]

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_sigkill_at_any_moment_leaves_the_old_or_the_new_file(self, tmp_path: Path) -> None:
        """The process is killed before each line of code that the rewrite executes."""
        path = tmp_path / "m.csv"
        write(path, 2)
        old = path.read_bytes()
        append_new(path)
        new = path.read_bytes()
        without_row = new[: new.rstrip(b"\n").rindex(b"\n") + 1]
        assert len(old.splitlines()) == len(without_row.splitlines()) == 3
        outcomes = []
        while True:
            path.write_bytes(old)
            status = killed_at_line(len(outcomes), lambda: append_new(path))
            found = path.read_bytes()
            outcomes.append([old, without_row, new].index(found))
            keep_until(path, 2)  # resumed, it has the same end
            append_new(path)
            assert path.read_bytes() == new
            if not os.WIFSIGNALED(status):
                break
        assert sorted(outcomes) == outcomes
        assert set(outcomes) == {0, 1, 2}
        assert len(outcomes) > 30, len(outcomes)


def append_new(path: Path) -> None:
    file = MetricsFile(path)
    file.append(row(3) | {"new": 1.0})
    file.close()


def killed_at_line(number: int, work: Callable[[], None]) -> int:
    """Do `work` in a forked child, killed before its n-th line in our files; its wait status."""
    child = os.fork()
    if child == 0:
        count, last = 0, 0

        def trace(frame: FrameType, event: str, argument: object) -> object:
            nonlocal count, last
            if frame.f_code.co_filename not in (metrics_file.__file__, durable_file.__file__):
                return None
            if event == "line" and frame.f_lineno != last:  # a comprehension stays on its line
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count, last = count + 1, frame.f_lineno
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("kept", [0, 1, 3, 5])
def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "m.csv"
    write(path, 5)
    assert keep_until(path, kept) == Position(kept, 100 * kept, 1.5 * kept)
    assert iterations(path) == list(range(1, kept + 1))
    file = MetricsFile(path)
    file.append(row(kept + 1))
    file.close()
    assert iterations(path) == list(range(1, kept + 2))


def test_any_half_written_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write(path, 3)
    whole = path.read_bytes()
    two_rows = whole.rstrip(b"\n").rpartition(b"\n")[0] + b"\n"
    for end in range(len(two_rows), len(whole)):
        path.write_bytes(whole[:end])
        assert keep_until(path, 2) == Position(2, 200, 3.0)
        assert path.read_bytes() == two_rows
    header_end = whole.index(b"\n")
    for end in range(header_end + 1):
        path.write_bytes(whole[:end])
        assert keep_until(path, 0) == Position(0, 0, 0.0)
        write(path, 3)
        assert path.read_bytes() == whole
        path.unlink()


def test_a_missing_file_is_an_empty_one(tmp_path: Path) -> None:
    assert keep_until(tmp_path / "m.csv", 0) == Position(0, 0, 0.0)
    assert not (tmp_path / "m.csv").exists()
    with pytest.raises(UserError, match="ends at iteration 0, before the checkpoint's 4"):
        keep_until(tmp_path / "m.csv", 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("2,200", "7,200"),
        lambda text: text.replace("2,200,", "2,200,0.0,"),
        lambda text: text.replace("steps,seconds", "seconds,steps"),
        lambda text: text.replace("\n2,", "\n\n2,"),
        lambda text: text.replace("2,200", "\x00\x00"),
    ],
)
def test_a_changed_file_is_refused_and_kept(tmp_path: Path, change: object) -> None:
    path = tmp_path / "m.csv"
    write(path, 3)
    changed = change(path.read_text())  # type: ignore[operator]
    path.write_text(changed)
    with pytest.raises(UserError, match="was changed by hand: restore the original"):
        keep_until(path, 3)
    assert path.read_text() == changed


def test_last_row_reads_the_newest_complete_row(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    assert last_row(path) is None
    path.write_text("iteration,steps")
    assert last_row(path) is None
    path.write_text("iteration,steps\n")
    assert last_row(path) is None
    path.unlink()
    write(path, 500)
    with path.open("a") as file:
        file.write("501,50")
    newest = last_row(path)
    assert newest is not None
    assert (newest["iteration"], newest["steps"], newest["seconds"]) == (500, 50_000, 750.0)
