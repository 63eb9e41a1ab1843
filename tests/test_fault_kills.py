"""A few kills by benchmarks/fault_kills.py, and the table in the docs of its long form."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\|.*\n\| ---.*\n(?:\|.*\n)+", re.M)


def test_a_killed_run_equals_an_undisturbed_one(tmp_path: Path) -> None:
    """It exits with 1 if a run differs, a report is half written or a file is left over."""
    program = [sys.executable, str(ROOT / "benchmarks/fault_kills.py"), "--seed", "3"]
    limits = ["--only", "CartPole-v1-icm", "--kills", "3", "--reports", "2"]
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "kills.txt")]
    done = subprocess.run([*program, *limits, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs, reports = TABLE.findall((tmp_path / "kills.txt").read_text())
    _, kills, start_up, iteration, writing, _, resumed, differ = cells(runs, "all")
    assert kills == start_up + iteration + writing >= 3
    assert resumed > 0
    assert differ == 0
    assert cells(reports, "page")[0] == cells(reports, "figures")[0] == 2
    assert cells(reports, "page")[-1] == cells(reports, "figures")[-1] == 0


def test_the_table_of_the_docs() -> None:
    printed = (ROOT / "results/reliability/kills.txt").read_text()
    assert ", modified" not in printed
    tables = TABLE.findall(printed)
    page = (ROOT / "docs/reliability.md").read_text()
    assert [table in page for table in tables] == [True, True]
    runs, reports = tables
    assert cells(runs, "all")[1] >= 200
    assert cells(runs, "all")[-1] == 0
    assert cells(reports, "page")[0] + cells(reports, "figures")[0] >= 50
    assert cells(reports, "page")[-1] + cells(reports, "figures")[-1] == 0


def cells(table: str, first: str) -> list[int]:
    """The numbers in the row that starts with `first`."""
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [int(cell) for cell in row.split("|") if cell.strip().isdigit()]
