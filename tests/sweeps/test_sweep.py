"""A sweep can be started again at any time, and gives every run exactly its settings."""

import io
import json
import os
import shlex
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from emi.cli import main
from emi.errors import UserError
from emi.runs import checkpoint, run_directory
from emi.runs.run_directory import RunDirectory, config_bytes, read_config
from emi.sweeps import run_process, sweep
from emi.sweeps.board import LiveBoard
from emi.sweeps.plan import claimed
from emi.sweeps.sweep import Cell, parse_seeds, plan

SMALL = {"steps": 200, "steps_per_iteration": 100, "num_envs": 2}

# Stands in for `emi`: records when it ran and its arguments, and ends as its seed says.
FAKE = """
import json, os, signal, sys, time
here = __file__.rsplit("/", 1)[0]
arguments = sys.argv[1:]
began = time.time()
def note(how):
    record = {"arguments": arguments, "began": began, "ended": time.time(), "how": how,
              "threads": os.environ["OMP_NUM_THREADS"]}
    with open(f"{here}/{os.getpid()}.json", "w") as file:
        json.dump(record, file)
def stop(number, frame):
    note("stopped")
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
config = json.load(open(arguments[arguments.index("--config") + 1]))
seed = str(config["seed"])
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
    """Replace `python -m emi`; return the directory of its records."""
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
        {**SMALL, "threads": threads},
    )


class TestPlan:
    def test_seeds(self) -> None:
        assert parse_seeds("0-4,7") == [0, 1, 2, 3, 4, 7]
        assert parse_seeds("3") == [3]
        assert parse_seeds("1,0-2") == [1, 0, 2]

    @pytest.mark.parametrize("text", ["", "a", "4-0", "1,,2", "0-", "-3", "0-999999999999", "1.5"])
    def test_bad_seeds(self, text: str) -> None:
        with pytest.raises(UserError, match="--seeds"):
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
        path = tmp_path / "SparseHalfCheetah/trpo/seed2"
        file = f"{path}.json"
        assert cell.arguments == ("train", "--config", file, "--out", str(path), "--resume")
        command = shlex.split(cell.command)
        assert command[:6] == ["emi", "train", "SparseHalfCheetah", "--method", "trpo", "--seed"]
        assert command[-3:] == ["--out", str(path), "--resume"]

    def test_bad_arguments(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="did you mean 'trpo'"):
            grid(tmp_path, "0", "emi,trop")
        with pytest.raises(UserError, match="not with --set seed="):
            plan(tmp_path, ["SparseHalfCheetah"], ["emi"], [0, 1], words=["seed=1"])
        with pytest.raises(UserError, match="nothing to do"):
            plan(tmp_path, ["SparseHalfCheetah"], [], [0])
        with pytest.raises(UserError, match="--jobs must be positive"):
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
        assert stopped.state == "waiting"
        assert (differs.state, differs.problem) == (
            "conflict",
            f"{differs.path} holds another run (threads differs)",
        )
        assert unreadable.state == "conflict"
        assert new.state == "waiting"


class TestSweep:
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

    def test_failures_are_listed_and_the_others_continue(
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
        assert log[0].startswith("$ emi train --config ")
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
            "run the same command again to continue",
        ]
        assert err == "emi: stopping after the current iterations\n"

    def test_a_run_that_another_process_completed_is_skipped(
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

    def test_a_log_that_is_a_link_is_not_written(self, tmp_path: Path, fake: Path) -> None:
        (tmp_path / "victim").write_text("precious")
        (cell,) = cells = grid(tmp_path, "0")
        cell.log.parent.mkdir(parents=True)
        cell.log.symlink_to(tmp_path / "victim")
        with pytest.raises(UserError, match=r"seed0\.log is a link"):
            sweep.sweep(cells)
        assert (tmp_path / "victim").read_text() == "precious"
        assert not records(fake)

    def test_an_unwritable_directory(self, tmp_path: Path, fake: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match=r"cannot write in .*: choose another --out"):
            sweep.sweep(grid(tmp_path / "file", "0"))
        assert not records(fake)


def drawn_table(cells: list[Cell], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the live table on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    console = Console(width=width, file=io.StringIO())
    console.print(LiveBoard(cells).draw())
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [line.rstrip() for line in lines]


def running(cell: Cell) -> Cell:
    cell.path.mkdir(parents=True)
    (cell.path / "metrics.csv").write_text(
        "iteration,steps,steps_per_second,return_mean,bonus_mean\n1,100,50.0,nan,0.125\n"
    )
    return replace(cell, state="running")


@pytest.mark.parametrize(
    ("width", "header", "facts"),
    [
        (
            120,
            "run                             state    iteration  steps/s  left  return  bonus",
            "SparseHalfCheetah trpo seed 25  running        1/2       50  0:02       -  0.125",
        ),
        (
            80,
            "run                             state    iteration  steps/s  left  return  bonus",
            "SparseHalfCheetah trpo seed 25  running        1/2       50  0:02       -  0.125",
        ),
        (
            60,
            "run                         state    iteration  left  return",
            "SparseHa…etah trpo seed 25  running        1/2  0:02       -",
        ),
        (
            40,
            "run                      state    return",
            "SparseH…ah trpo seed 25  running       -",
        ),
    ],
)
def test_the_live_table_shows_running_runs_first_at_any_width(
    width: int, header: str, facts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid(tmp_path, "0-30")
    cells[25] = running(cells[25])
    lines = drawn_table(cells, width, monkeypatch)
    assert lines[:2] == [header, facts]
    assert len(lines) == 22
    assert lines[-1] == "31 runs: 1 running, 30 waiting"


def test_the_summary_follows_the_last_table_and_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    board = LiveBoard(grid(tmp_path, "0-1"))
    board.show()
    board.end()
    assert "2 waiting" not in capsys.readouterr().out
    console = Console(width=80, file=io.StringIO())
    console.print(board.draw())
    assert "waiting" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 runs" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_real_sweep_is_idempotent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.sweep(grid(tmp_path, "0"), jobs=1) == 0
    path = tmp_path / "SparseHalfCheetah/trpo/seed0"
    first = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    assert checkpoint.latest_iteration(path / "checkpoints") == 2
    assert sweep.sweep(grid(tmp_path, "0"), jobs=1) == 0
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == first
    assert capsys.readouterr().out.splitlines()[-1] == "1 run: 1 skipped"


# A tuple, booleans, floats that no decimal represents exactly, a choice, and nested settings.
SETTINGS = [
    *("steps=200", "steps_per_iteration=100", "num_envs=2", "clip_rewards=true"),
    *("eta=0.1", "discount=0.30000000000000004", "policy.hidden=7,5", "trpo.max_kl=1e-05"),
    *("intrinsic.reward=diversity", "intrinsic.lambda_error=123.456"),
]


def sweep_command(out: Path, *options: str) -> list[str]:
    return ["sweep", "SparseHalfCheetah", "--out", str(out), *options, "--set", *SETTINGS]


class TestSettings:
    def test_they_reach_the_run_exactly(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(sweep_command(tmp_path / "a", "--methods", "emi", "--seeds", "3")) == 0
        path = tmp_path / "a/SparseHalfCheetah/emi/seed3"
        config = read_config(RunDirectory(path).config)
        assert (config.seed, config.steps, config.threads) == (3, 200, 1)
        assert config.clip_rewards is True
        assert (config.eta, config.discount) == (0.1, 0.30000000000000004)
        assert config.policy.hidden == (7, 5)
        assert config.trpo.max_kl == 1e-05
        assert (config.intrinsic.reward, config.intrinsic.lambda_error) == ("diversity", 123.456)
        assert path.with_name("seed3.json").read_bytes() == (path / "config.json").read_bytes()
        changed = json.loads((path / "provenance.json").read_text())["changed"]
        words = {word.partition("=")[0] for word in SETTINGS}
        assert {"seed", *words} <= set(changed) <= {"seed", "threads", *words}

        # The command that --dry-run prints for a person gives the same config.
        capsys.readouterr()
        dry = sweep_command(tmp_path / "b", "--methods", "emi", "--seeds", "3", "--dry-run")
        assert main(dry) == 0
        command = shlex.split(capsys.readouterr().out)[1:]
        assert main([*command, "--print-config"]) == 0
        assert capsys.readouterr().out.encode() == (path / "config.json").read_bytes()

    def test_the_first_sweep_keeps_its_runs(
        self, tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Two sweeps with different settings in one directory, planned at the same time."""
        first, second = grid(tmp_path, "0"), grid(tmp_path, "0-1", threads=2)
        assert [cell.state for cell in first + second] == ["waiting"] * 3
        assert sweep.sweep(first) == 0
        assert sweep.sweep(second) == 1
        folder = tmp_path / "SparseHalfCheetah/trpo"
        assert capsys.readouterr().out.splitlines()[-2:] == [
            "2 runs: 1 conflict, 1 done",
            f"conflict: SparseHalfCheetah trpo seed 0: {folder / 'seed0.json'} holds another run"
            " (threads differs)",
        ]
        assert sorted(str(r["threads"]) for r in records(fake)) == ["1", "2"]
        assert (folder / "seed0.json").read_bytes() == config_bytes(first[0].config)
        assert (folder / "seed1.json").read_bytes() == config_bytes(second[1].config)

    @pytest.mark.parametrize("hard_links", [True, False])
    def test_a_config_file_is_never_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
    ) -> None:
        """Also if another sweep writes the file between the check and the write."""
        (first,), (second,) = grid(tmp_path, "0"), grid(tmp_path, "0", threads=2)
        link, calls = os.link, []

        def late(source: Path, target: Path) -> None:
            calls.append(target)
            if len(calls) == 1:
                aside = source.rename(source.with_name("aside"))  # the process id is the same here
                assert claimed(first).state == "waiting"
                aside.rename(source)
            if not hard_links:
                raise PermissionError(1, "Operation not permitted")
            link(source, target)

        monkeypatch.setattr(os, "link", late)
        assert claimed(second).state == "conflict"
        assert len(calls) == 2
        assert first.config_file.read_bytes() == config_bytes(first.config)
        assert [p.name for p in first.path.parent.iterdir()] == ["seed0.json"]
        assert claimed(first).state == "waiting"

    def test_a_config_file_of_an_older_version(self, tmp_path: Path, fake: Path) -> None:
        """A key that it lacks has its default; the file is not a conflict."""
        (cell,) = grid(tmp_path, "0")
        values = json.loads(config_bytes(cell.config))
        del values["bootstrap_timeouts"]
        cell.config_file.parent.mkdir(parents=True)
        cell.config_file.write_text(json.dumps(values))
        assert grid(tmp_path, "0")[0].state == "waiting"
        assert sweep.sweep([cell]) == 0
        assert json.loads(cell.config_file.read_text()) == values


def test_environments_and_methods_as_directory_names(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, ["gym:CartPole-v1"], ["emi.intrinsic.rnd:RND"], [0], {"steps": 100})
    assert cell.path == tmp_path / "gym-CartPole-v1/emi.intrinsic.rnd-RND/seed0"
    assert cell.name == "gym:CartPole-v1 emi.intrinsic.rnd:RND seed 0"
