"""The other files of a stranger's run: metrics.csv, config.json, the lock, events, links."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emi.errors import UserError
from emi.runs.metrics_file import COLUMNS, MetricsFile, Position, keep_until, last_row
from emi.runs.run import run
from emi.runs.run_directory import RunDirectory, add_start, locked, read_config
from emi.runs.tensorboard_events import TensorBoardEvents
from emi.runs.watch import video_file
from emi.training.config import to_dict
from emi.training.presets import resolve

CONFIG = resolve(
    "gym:CartPole-v1",
    "trpo",
    {"steps": 200, "steps_per_iteration": 100, "num_envs": 1, "threads": 1},
)
ROW = dict.fromkeys(COLUMNS, 0.0) | {"iteration": 1, "steps": 100, "seconds": 1.5}


def metrics(path: Path, **cells: str) -> Path:
    """A file of one row, with some cells replaced."""
    row = {name: str(value) for name, value in ROW.items()} | cells
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    return path


class TestMetrics:
    @pytest.mark.parametrize(
        "cells",
        [
            {"steps": "1e400"},
            {"steps": "-1"},
            {"steps": "9" * 30},
            {"steps": "9" * 10_000},
            {"steps": "nan"},
            {"seconds": "nan"},
            {"seconds": "1e400"},
            {"seconds": "-3"},
            {"seconds": "soon"},
        ],
        ids=str,
    )
    def test_numbers_that_no_run_writes(self, tmp_path: Path, cells: dict[str, str]) -> None:
        path = metrics(tmp_path / "metrics.csv", **cells)
        before = path.read_bytes()
        with pytest.raises(UserError, match="was changed by hand: restore the original"):
            keep_until(path, 1)
        assert path.read_bytes() == before
        if set(cells.values()) != {"9" * 30}:
            assert last_row(path) is None

    def test_a_row_as_a_run_writes_it(self, tmp_path: Path) -> None:
        path = metrics(tmp_path / "metrics.csv", extra="nan")
        assert keep_until(path, 1) == Position(1, 100, 1.5)
        assert (last_row(path) or {})["steps"] == 100

    @pytest.mark.parametrize("content", [b"a," * 10**6, b"iteration,steps,seconds," + b"x" * 10**7])
    def test_a_long_line(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "metrics.csv"
        path.write_bytes(content + b"\n1,1,1\n")
        with pytest.raises(UserError, match="was changed by hand"):
            keep_until(path, 1)
        assert last_row(path) is None

    def test_a_column_that_occurs_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.csv"
        path.write_text(",".join([*COLUMNS, "x", "x"]) + "\n")
        with pytest.raises(UserError, match="was changed by hand"):
            keep_until(path, 0)

    def test_a_huge_file_is_not_read(self, tmp_path: Path) -> None:
        path = metrics(tmp_path / "metrics.csv")
        os.truncate(path, 2**40)  # sparse: no disk is used
        with pytest.raises(UserError, match=r"metrics\.csv is too large"):
            keep_until(path, 1)

    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.csv"
        os.mkfifo(path)
        with pytest.raises(UserError, match="is a FIFO, not a file"):
            keep_until(path, 1)
        assert last_row(path) is None

    def test_rows_are_not_appended_through_a_link(self, tmp_path: Path) -> None:
        own = MetricsFile(tmp_path / "own.csv")
        own.append(ROW)
        own.close()
        (tmp_path / "metrics.csv").symlink_to("own.csv")
        before = (tmp_path / "own.csv").read_bytes()
        file = MetricsFile(tmp_path / "metrics.csv")
        with pytest.raises(UserError, match="is a link or a device"):
            file.append(ROW | {"iteration": 2})
        assert (tmp_path / "own.csv").read_bytes() == before


class TestLinks:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> RunDirectory:
        made = RunDirectory(tmp_path / "run")
        made.path.mkdir()
        return made

    def test_the_lock(self, tmp_path: Path, directory: RunDirectory) -> None:
        (directory.path / ".lock").symlink_to(tmp_path / "made")
        with pytest.raises(UserError, match="is a link or a device"), locked(directory):
            pass
        assert not (tmp_path / "made").exists()

    def test_events(self, tmp_path: Path, directory: RunDirectory) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        directory.tensorboard.symlink_to(outside)
        with pytest.raises(UserError, match="is a link or a device"):
            TensorBoardEvents(directory.tensorboard, 0)
        assert list(outside.iterdir()) == []

    def test_provenance(self, tmp_path: Path, directory: RunDirectory) -> None:
        """A link is replaced by a file; what it leads to is left as it is."""
        outside = tmp_path / "outside"
        outside.write_text("mine")
        directory.provenance.symlink_to(outside)
        add_start(directory, CONFIG, ["emi"], 0)
        assert outside.read_text() == "mine"
        assert not directory.provenance.is_symlink()

    def test_a_huge_record_of_starts_is_not_read(self, directory: RunDirectory) -> None:
        directory.provenance.write_text("{}")
        os.truncate(directory.provenance, 2**40)
        add_start(directory, CONFIG, ["emi"], 0)
        assert len(json.loads(directory.provenance.read_text())["starts"]) == 1

    def test_a_video(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_text("mine")
        (tmp_path / ".watch.writing.gif").symlink_to(outside)
        with video_file(tmp_path / "watch.gif", 30) as add:
            add(np.zeros((8, 8, 3), np.uint8))
        assert outside.read_text() == "mine"
        assert (tmp_path / "watch.gif").stat().st_size > 0

    def test_checkpoints(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.json").write_text(json.dumps(to_dict(CONFIG)))
        (tmp_path / "run" / "checkpoints").symlink_to(outside)
        with pytest.raises(UserError, match="is a link or a device"):
            run(CONFIG, tmp_path / "run", resume=True)
        assert list(outside.iterdir()) == []


class TestConfig:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"num_envs": True}, "num_envs must be a whole number, got True"),
            ({"trpo": {"max_kl": "0.1"}}, "trpo.max_kl must be a number, got '0.1'"),
            ({"nonsense": 1}, "unknown setting 'nonsense': see the keys with --print-config"),
            ({"env": "gym:Cart\x1b[2J"}, r"env must be a name of at most 200 letters, got 'gym:Ca"),
        ],
        ids=str,
    )
    def test_the_sentence_names_file_and_field(
        self, tmp_path: Path, change: dict[str, Any], reason: str
    ) -> None:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(to_dict(CONFIG) | change))
        with pytest.raises(UserError) as caught:
            read_config(file)
        assert str(caught.value).startswith(f"cannot read {file}: {reason}")

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b'{"env": "x", "env": "y"}', "the key 'env' occurs twice"),
            (b'{"env": ' + b"[" * 100_000, "is nested too deeply"),
            (b'{"env": "' + b"x" * 2_000_000 + b'"}', "is too large: it may have 1,000,000 bytes"),
            (b'{"seed": ' + b"9" * 5_000 + b"}", "is not JSON"),
            (b'{"eta": NaN}', "NaN is not a JSON number"),
        ],
        ids=["twice", "deep", "large", "digits", "NaN"],
    )
    def test_what_is_not_a_config(self, tmp_path: Path, content: bytes, reason: str) -> None:
        file = tmp_path / "config.json"
        file.write_bytes(content)
        with pytest.raises(UserError, match=f"^(cannot read )?.*config.json:? .*{reason}"):
            read_config(file)

    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "config.json")
        with pytest.raises(UserError, match="is a FIFO, not a file"):
            read_config(tmp_path / "config.json")
