"""A grid of runs that can be started again at any time."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from emi.runs import checkpoint, run_directory
from emi.sweeps import run_process, sweep
from emi.training.config import ConfigError
from emi.runs.run_directory import RunDirectory, RunDirectoryError
from emi.sweeps.sweep import Cell, parse_seeds, plan
from emi.sweeps.board import LiveTable

SMALL = ["steps_per_iteration=100", "num_envs=2"]

# Stands for `emi` in a pool: notes when it ran and with what, and ends as its seed says.
FAKE = """
import json, os, signal, sys, time
here = __file__.rsplit("/", 1)[0]
words = sys.argv[1:]
began = time.time()
def note(how):
    record = {"words": words, "began": began, "ended": time.time(), "how": how,
              "threads": os.environ["OMP_NUM_THREADS"]}
    with open(f"{here}/{os.getpid()}.json", "w") as file:
        json.dump(record, file)
def stop(number, frame):
    note("stopped")
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
seed = words[words.index("--seed") + 1] if "--seed" in words else "0"
print("hello", flush=True)
if seed == "3":
    print("emi: bonus became NaN in iteration 3", file=sys.stderr)
    sys.exit(1)
if seed == "4":
    os.kill(os.getpid(), signal.SIGKILL)
if seed == "5":
    sys.exit("Traceback: the last line")
time.sleep(30 if seed == "9" else 0.15)
note("done")
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace `python -m emi`; the directory where the fake leaves its notes."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "fake.py").write_text(FAKE)
    monkeypatch.setattr(run_process, "PROGRAM", (sys.executable, "-S", str(notes / "fake.py")))
    return notes


def records(notes: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in notes.glob("*.json")]


def grid(out: Path, seeds: str, methods: str = "trpo", threads: int = 1) -> list[Cell]:
    return plan(
        out,
        ["SparseHalfCheetah"],
        methods.split(","),
        parse_seeds(seeds),
        steps=200,
        threads=threads,
        overrides=SMALL,
    )


class TestPlan:
    def test_seeds(self) -> None:
        assert parse_seeds("0-4,7") == [0, 1, 2, 3, 4, 7]
        assert parse_seeds("3") == [3]
        assert parse_seeds("1,0-2") == [1, 0, 2]

    @pytest.mark.parametrize("text", ["", "a", "4-0", "1,,2", "0-", "-3", "0-999999999999", "1.5"])
    def test_strange_seeds(self, text: str) -> None:
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(text)

    def test_every_method_before_the_next_seed(self, tmp_path: Path) -> None:
        cells = grid(tmp_path, "0-1", "emi,trpo")
        assert [str(cell.path.relative_to(tmp_path)) for cell in cells] == [
            "SparseHalfCheetah/emi/seed0",
            "SparseHalfCheetah/trpo/seed0",
            "SparseHalfCheetah/emi/seed1",
            "SparseHalfCheetah/trpo/seed1",
        ]
        assert not any(tmp_path.iterdir())

    def test_the_command_of_a_run(self, tmp_path: Path) -> None:
        (cell,) = grid(tmp_path, "2")
        assert list(cell.words) == [
            *("train", "SparseHalfCheetah", "--method", "trpo", "--seed", "2", "--threads", "1"),
            *("--out", str(tmp_path / "SparseHalfCheetah/trpo/seed2"), "--steps", "200"),
            *("--set", "steps_per_iteration=100", "num_envs=2"),
        ]

    def test_what_makes_no_sense(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="did you mean 'trpo'"):
            grid(tmp_path, "0", "emi,trop")
        with pytest.raises(ConfigError, match="not with --set seed="):
            plan(tmp_path, ["SparseHalfCheetah"], ["emi"], [0, 1], overrides=["seed=1"])
        with pytest.raises(ConfigError, match="nothing to do"):
            plan(tmp_path, ["SparseHalfCheetah"], [], [0])
        with pytest.raises(ConfigError, match="--jobs must be positive"):
            sweep.sweep(grid(tmp_path, "0"), jobs=0)
        assert not any(tmp_path.iterdir())

    def test_what_is_there_already(self, tmp_path: Path) -> None:
        for seed, iteration in ((0, 2), (1, 1)):
            (cell,) = grid(tmp_path, str(seed))
            directory = RunDirectory(cell.path)
            directory.path.mkdir(parents=True)
            run_directory.write_config(directory, cell.config)
            checkpoint.save(directory.checkpoints, iteration, {})
        (other,) = grid(tmp_path, "2", threads=2)
        other.path.mkdir()
        run_directory.write_config(RunDirectory(other.path), other.config)
        broken = tmp_path / "SparseHalfCheetah/trpo/seed3"
        broken.mkdir()
        (broken / "config.json").write_text("{")

        complete, stopped, differs, unreadable, new = grid(tmp_path, "0-4")
        assert complete.state == "skipped"
        assert (stopped.state, stopped.words) == ("waiting", ("resume", str(stopped.path)))
        assert (differs.state, differs.problem) == (
            "conflict",
            f"{differs.path} holds another run (threads differs)",
        )
        assert unreadable.state == "conflict"
        assert (new.state, new.words[0]) == ("waiting", "train")

    def test_a_finished_run_that_is_kept_without_checkpoints(self, tmp_path: Path) -> None:
        """As in results/: to start over there would hide what was kept."""
        (cell,) = grid(tmp_path, "0")
        cell.path.mkdir(parents=True)
        run_directory.write_config(RunDirectory(cell.path), cell.config)
        (cell.path / "metrics.csv.gz").touch()
        (kept,) = grid(tmp_path, "0")
        assert kept.state == "conflict"
        assert "keeps the results of a finished run" in kept.problem


class TestPool:
    def test_no_more_than_jobs_at_a_time(
        self, tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert sweep.sweep(grid(tmp_path, "0-2,6", threads=3), jobs=2) == 0
        done = records(fake)
        assert len(done) == 4
        assert {r["threads"] for r in done} == {"3"}
        for r in done:
            together = [s for s in done if s["began"] <= r["began"] < s["ended"]]  # type: ignore[operator]
            assert len(together) <= 2
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == "4 runs: 4 done"
        assert "SparseHalfCheetah trpo seed 0: running" in lines
        assert "SparseHalfCheetah trpo seed 6: done" in lines

    def test_failures_are_listed_and_the_rest_goes_on(
        self, tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (conflict,) = grid(tmp_path, "1", threads=2)
        conflict.path.mkdir(parents=True)
        run_directory.write_config(RunDirectory(conflict.path), conflict.config)
        before = (conflict.path / "config.json").read_bytes()
        assert sweep.sweep(grid(tmp_path, "0-6"), jobs=3) == 1
        folder = tmp_path / "SparseHalfCheetah" / "trpo"
        name = "SparseHalfCheetah trpo seed"
        assert capsys.readouterr().out.splitlines()[-5:] == [
            "7 runs: 3 failed, 1 conflict, 3 done",
            f"conflict: {name} 1: {folder / 'seed1'} holds another run (threads differs)",
            f"failed: {name} 3: bonus became NaN in iteration 3 (log: {folder / 'seed3.log'})",
            f"failed: {name} 4: killed by signal 9 (log: {folder / 'seed4.log'})",
            f"failed: {name} 5: Traceback: the last line (log: {folder / 'seed5.log'})",
        ]
        log = (folder / "seed3.log").read_text().splitlines()
        assert log[0].startswith("$ emi train SparseHalfCheetah --method trpo --seed 3 ")
        assert log[1] == "hello"
        assert (conflict.path / "config.json").read_bytes() == before

    def test_a_signal_is_passed_on(
        self, tmp_path: Path, fake: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def when_both_run() -> None:
            logs = [tmp_path / f"SparseHalfCheetah/{m}/seed9.log" for m in ("emi", "trpo")]
            while not all(log.exists() and "hello" in log.read_text() for log in logs):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=when_both_run, daemon=True).start()
        began = time.monotonic()
        assert sweep.sweep(grid(tmp_path, "9,10", "emi,trpo"), jobs=2) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 15
        assert [r["how"] for r in records(fake)] == ["stopped", "stopped"]
        out, err = capfd.readouterr()
        assert out.splitlines()[-2:] == [
            "4 runs: 2 stopped, 2 waiting",
            "the same command goes on where this one stopped",
        ]
        assert err == "emi: stopping after the iterations under way\n"

    def test_what_others_finished_meanwhile_is_skipped(
        self, tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cells = grid(tmp_path, "0-1")
        directory = RunDirectory(cells[0].path)
        directory.path.mkdir(parents=True)
        run_directory.write_config(directory, cells[0].config)
        checkpoint.save(directory.checkpoints, 2, {})
        assert [cell.state for cell in cells] == ["waiting", "waiting"]
        assert sweep.sweep(cells, jobs=1) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "2 runs: 1 done, 1 skipped"
        assert len(records(fake)) == 1

    def test_an_unwritable_place(self, tmp_path: Path, fake: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(RunDirectoryError, match=r"cannot write in .*: choose another --out"):
            sweep.sweep(grid(tmp_path / "file", "0"))
        assert not records(fake)


def test_the_live_table_shows_what_matters(tmp_path: Path) -> None:
    import io
    from dataclasses import replace

    from rich.console import Console

    cells = grid(tmp_path, "0-30")
    cells[25] = replace(cells[25], state="running")
    cells[25].path.mkdir(parents=True)
    (cells[25].path / "metrics.csv").write_text(
        "iteration,steps,steps_per_second,return_mean,bonus_mean\n1,100,50.0,nan,0.125\n"
    )
    console = Console(width=120, file=io.StringIO())
    console.print(LiveTable(cells).draw())
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    row = next(line for line in drawn.splitlines() if "seed 25" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        *("SparseHalfCheetah trpo seed 25", "running", "1/2", "50", "0:02", "-", "0.125")
    ]
    assert drawn.count("SparseHalfCheetah") == 20
    assert "31 runs: 1 running, 30 waiting" in drawn


def test_a_real_sweep_is_idempotent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.sweep(grid(tmp_path, "0"), jobs=1) == 0
    path = tmp_path / "SparseHalfCheetah/trpo/seed0"
    first = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    assert checkpoint.latest_iteration(path / "checkpoints") == 2
    assert sweep.sweep(grid(tmp_path, "0"), jobs=1) == 0
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == first
    assert capsys.readouterr().out.splitlines()[-1] == "1 runs: 1 skipped"
