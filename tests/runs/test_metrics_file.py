"""metrics.csv never loses or repeats a row."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from emi.errors import UserError
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


def test_the_columns_of_the_design_come_first_then_the_method_in_its_order(tmp_path: Path) -> None:
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


def test_rows_must_fit(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.csv")
    with pytest.raises(ValueError, match="lacks 'kl'"):
        file.append({name: 0.0 for name in COLUMNS if name != "kl"})
    file.append(row(1))
    with pytest.raises(ValueError, match="'new' is not a column"):
        file.append(row(2) | {"new": 1.0})
    file.append({k: v for k, v in row(2).items() if k != "abc/first"})
    file.close()
    assert (tmp_path / "m.csv").read_text().splitlines()[2].endswith(",0.2,nan")


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
    with pytest.raises(UserError, match="was changed by hand"):
        keep_until(path, 3)
    assert path.read_text() == changed


def test_last_row_reads_the_newest_whole_one(tmp_path: Path) -> None:
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
