"""The process of a run ends with the process that started it, and waits for its turn."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emi.runs.run_directory import RunDirectory, locked
from emi.sweeps import run_process
from emi.sweeps.run_process import Ended, attend, start

# Stands in for `emi`: prints its arguments and how it ends.
FAKE = """
import os, signal, sys, time
def stop(number, frame):
    print("stopped by", number, flush=True)
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
print("arguments", *sys.argv[1:], "threads", os.environ["OMP_NUM_THREADS"], flush=True)
time.sleep(float(sys.argv[-1]) if sys.argv[1] == "train" else 0)
print("end", flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "fake.py"
    file.write_text(FAKE)
    monkeypatch.setattr(run_process, "PROGRAM", (sys.executable, "-S", str(file)))
    return file


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_a_new_run(tmp_path: Path, fake: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("before\n")
    assert start(["train", "a b", "0"], tmp_path / "run", log, 3).wait() == 0
    assert lines(log) == ["before", "$ emi train 'a b' 0", "arguments train a b 0 threads 3", "end"]


def test_relative_paths_start_at_the_given_directory(tmp_path: Path, fake: Path) -> None:
    fake.write_text("import os; print(os.getcwd())")
    log = tmp_path / "run.log"
    assert start(["train"], Path("run"), log, 1, cwd=tmp_path).wait() == 0
    assert lines(log) == ["$ emi train", str(tmp_path)]


def test_it_ends_with_the_process_that_started_it(tmp_path: Path, fake: Path) -> None:
    log = tmp_path / "run.log"
    program = f"""
import sys, time
from pathlib import Path
from emi.sweeps import run_process
run_process.PROGRAM = (sys.executable, "-S", {str(fake)!r})
run_process.start(["train", "30"], Path({str(tmp_path / "run")!r}), Path({str(log)!r}), 1)
time.sleep(30)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    until(lambda: "arguments train 30 threads 1" in lines(log))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: lines(log)[-1:] == ["stopped by 15"])


def test_it_ends_with_the_process_that_supervises_it(tmp_path: Path, fake: Path) -> None:
    log = tmp_path / "run.log"
    process = start(["train", "30"], tmp_path / "run", log, 1)
    until(lambda: "arguments train 30 threads 1" in lines(log))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    until(lambda: lines(log)[-1:] == ["stopped by 15"])


def test_only_the_first_of_many_signals_is_passed_on(tmp_path: Path, fake: Path) -> None:
    fake.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: print('signal', flush=True))\n"
        "print('started', flush=True)\n"
        "time.sleep(1.5)\n"
        "sys.exit(7)\n"
    )
    log = tmp_path / "run.log"
    process = start(["train"], tmp_path / "run", log, 1)
    until(lambda: "started" in lines(log))
    for _ in range(5):
        process.terminate()
        time.sleep(0.1)
    assert process.wait() == 7
    assert lines(log) == ["$ emi train", "started", "signal"]


def test_it_waits_for_the_process_that_writes_the_run(tmp_path: Path, fake: Path) -> None:
    directory, log = RunDirectory(tmp_path / "run"), tmp_path / "run.log"
    directory.path.mkdir()
    with locked(directory):
        process = start(["train", "0"], directory.path, log, 1)
        until(lambda: bool(lines(log)))
        time.sleep(0.2)
        assert process.poll() is None
    assert process.wait() == 0
    assert lines(log)[0] == "waiting for the process that writes this run"
    assert lines(log)[1] == "$ emi train 0"


def test_two_processes_take_turns(tmp_path: Path, fake: Path) -> None:
    log = tmp_path / "run.log"
    both = [start(["train", "0.2"], tmp_path / "run", log, 1) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    said = [line for line in lines(log) if not line.startswith("waiting")]
    assert said == ["$ emi train 0.2", "arguments train 0.2 threads 1", "end"] * 2
    with log.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is free again


class TestAttend:
    def test_the_exit_code_comes_back(self, tmp_path: Path, fake: Path) -> None:
        log = tmp_path / "run.log"
        log.touch()
        assert attend(["train", "0"], Path("run"), log, 2, tmp_path) == Ended(0)
        assert lines(log)[1] == "arguments train 0 threads 2"

    def test_an_interrupt_stops_the_run(self, tmp_path: Path, fake: Path) -> None:
        log = tmp_path / "run.log"
        log.touch()
        program = f"""
import sys
from pathlib import Path
from emi.sweeps import run_process
run_process.PROGRAM = (sys.executable, "-S", {str(fake)!r})
here = Path({str(tmp_path)!r})
print(run_process.attend(["train", "30"], here / "run", here / "run.log", 1, here))
assert "torch" not in sys.modules
"""
        task = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        until(lambda: "arguments train 30 threads 1" in lines(log))
        os.kill(task.pid, signal.SIGINT)
        out, _ = task.communicate()
        assert (task.returncode, out) == (0, "Ended(code=143, problem='')\n")
        assert lines(log)[-1] == "stopped by 15"

    def test_storage_that_is_not_shared(self, tmp_path: Path, fake: Path) -> None:
        ended = attend(["train", "0"], Path("run"), tmp_path / "run.log", 1, tmp_path)
        assert ended.code == 1
        assert "--out must be on storage that all nodes share" in ended.problem
        assert not (tmp_path / "run.log").exists()
