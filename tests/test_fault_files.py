"""A short run of benchmarks/fault_files.py, which damages files and calls what reads them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
READERS = ("resume", "report", "doctor --bonus", "train --config", "paper list", "callback.load")


def test_damaged_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "benchmarks" / "fault_files.py")]
    options = ["--cases", "150", "--seeds", "0", "--readers", *READERS, "--runs", "rnd", "cheetah"]
    done = subprocess.run(
        [*program, *options, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "163 cases, 0 failed" in done.stdout
    total = re.search(r"\| all \|.* (\d+) / (\d+) / 0 \|\n", done.stdout)
    assert total is not None
    assert int(total[1]) == 163
    assert 75 <= int(total[2]) <= 125  # damage that a reader does not notice is accepted


def test_what_must_not_happen_is_seen(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import fault_files as job
from file_mutations import MODULE

def write_outside(place):
    (place.top.parent / "home" / "outside" / "file").write_text("changed")
    return 0

job.SECONDS = 2.0
calls = {{
    "hang": lambda place: time.sleep(60),
    "spin": lambda place: sum(iter(int, 1)),
    "crash": lambda place: os.abort(),
    "memory": lambda place: len(b"x" * 2_000_000_000),
    "raise": lambda place: 1 // 0,
    "bug": lambda place: print("this is a bug in emi"),
    "silent": lambda place: 2,
    "import": lambda place: __import__(MODULE) and 0,
    "write": write_outside,
    "fine": lambda place: 0,
}}
job.RUNS.clear()
job.READERS.clear()
job.READERS.update((name, job.Reader(("box_image",), call)) for name, call in calls.items())
sys.argv[1:] = ["--cases", "0", "--seeds", "0", "--out", {str(tmp_path)!r}]
sys.exit(job.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    failures = [line.split(" ", 2)[2] for line in done.stdout.splitlines() if "FAILED" in line]
    assert done.returncode == 1, done.stderr
    expected = {
        "hang": "took more than 2 s",
        "spin": "took more than 2 s",
        "crash": "died (exit code -6)",
        "memory": "raised MemoryError",
        "raise": "raised ZeroDivisionError",
        "bug": "reported a bug",
        "silent": "exit code 2 without a sentence",
        "import": "imported a module",
        "write": "wrote outside",
    }
    assert [line.split()[0] for line in failures] == list(expected)
    for line, (name, outcome) in zip(failures, expected.items(), strict=True):
        assert line.startswith(f"{name} unchanged  {outcome}")
