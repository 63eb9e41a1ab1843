"""A sweep killed with SIGKILL and started again does no finished work twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from emi.runs import checkpoint
from emi.runs.metrics_file import last_row

ITERATIONS = 100
GRID = ["sweep", "SparseHalfCheetah", "--methods", "trpo", "--seeds", "0-2", "--jobs", "1"]
SETTINGS = ["--steps", str(ITERATIONS * 200), "--set", "steps_per_iteration=200", "num_envs=2"]


def starts(run: Path) -> list[int]:
    """Return the iterations from which the run was started."""
    return [s["iteration"] for s in json.loads((run / "provenance.json").read_bytes())["starts"]]


def contents(run: Path) -> dict[str, tuple[int, bytes]]:
    files = [p for p in sorted(run.rglob("*")) if p.is_file()]
    return {p.relative_to(run).as_posix(): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def test_a_sweep_continues_after_sigkill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "emi", *GRID, "--out", str(tmp_path), *SETTINGS]
    finished, stopped, untouched = (
        tmp_path / "SparseHalfCheetah/trpo" / f"seed{seed}" for seed in range(3)
    )
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 300
    while (row := last_row(stopped / "metrics.csv")) is None or row["iteration"] < 3:
        assert time.monotonic() < limit
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = contents(finished)
    assert not untouched.exists()

    # Immediately: the run that was stopped is still writing its checkpoint.
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.splitlines()[-2] == "3 runs: 2 done, 1 skipped"
    assert contents(finished) == before
    assert starts(finished) == [0]
    assert starts(untouched) == [0]
    began, resumed = starts(stopped)
    assert began == 0
    assert 3 <= resumed < ITERATIONS  # the run ended with the sweep, but after a checkpoint
    for run in (finished, stopped, untouched):
        assert checkpoint.latest_iteration(run / "checkpoints") == ITERATIONS
        assert len((run / "metrics.csv").read_text().splitlines()) == 1 + ITERATIONS
