"""Files of an experiment that are not runs: made once, with a record and a manifest row."""

import csv
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emi.cli import main
from emi.reproduction import commands, made_files
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker

SEEDS = (0, 1, 2)
FILES = {seed: f"ink/{seed}.txt" for seed in SEEDS}


def make(root: Path, cells: Sequence[Cell], samples: int, budget: Budget) -> None:
    for _, seed in cells:
        if seed == 2 and (root / "broken").exists():
            raise KeyboardInterrupt
        (root / FILES[seed]).write_text("new")


def sizes(root: Path) -> dict[Cell, int]:
    return {("ink", seed): 1 for seed, name in FILES.items() if (root / name).exists()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    (target / "ink").mkdir(parents=True, exist_ok=True)
    names = [FILES[seed] for _, seed in cells]
    return [Path(shutil.copyfile(source / name, target / name)) for name in names]


INK = Experiment(
    name="ink",
    question="Is it written?",
    paper="is printed.",
    draw=lambda found, stem: [],
    files=tuple(FILES.values()),
    maker=FileMaker(tuple(("ink", seed) for seed in SEEDS), 1, 1, sizes, make, copy),
)


@pytest.fixture(autouse=True)
def _only_ink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(commands, "named", lambda names: (INK,))
    monkeypatch.chdir(tmp_path)


def emi(*words: object) -> int:
    return main(["paper", *map(str, words)])


def starts(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((root / "ink/provenance.json").read_text())["starts"]
    return found


def manifest(results: Path) -> list[dict[str, str]]:
    with (results / "MANIFEST.csv").open(newline="") as file:
        return list(csv.DictReader(file))


RUNS, RESULTS = Path("runs/paper"), Path("results")


def test_made_collected_and_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert emi("run", "ink", "--seeds", "0-1") == 0
    (first,) = starts(RUNS)
    assert first["command"] == "emi paper run ink --seeds 0-1"
    assert first["seeds"] == [0, 1]
    assert first["seconds"] >= 0
    capsys.readouterr()
    assert emi("collect", "ink") == 0
    assert capsys.readouterr().out.splitlines() == ["results/ink/0.txt", "results/ink/1.txt"]
    (row,) = manifest(RESULTS)
    assert row["run"] == "ink"
    assert row["seed"] == "0-1"
    assert row["command"] == "emi paper run ink --seeds 0-1"
    assert row["commit"].startswith(first["commit"] or "unknown")
    assert row["minutes"] == "0.0"

    # In another folder, what results/ has is not made again.
    assert emi("run", "ink", "--missing", "--out", "other") == 0
    assert [path.name for path in Path("other/ink").glob("*.txt")] == ["2.txt"]
    assert [start["seeds"] for start in starts(Path("other"))] == [[2]]
    capsys.readouterr()
    assert emi("collect", "ink", "--runs", "other") == 0
    assert capsys.readouterr().out.splitlines() == ["results/ink/2.txt"]
    (row,) = manifest(RESULTS)
    assert row["seed"] == "0-2"
    assert len(starts(RESULTS)) == 2

    # Nothing is missing any more.
    assert emi("run", "ink", "--missing") == 0
    said = "nothing is missing: every run of these grids is in results\n"
    assert capsys.readouterr().out == said
    assert emi("collect", "ink", "--runs", "other") == 0
    assert capsys.readouterr().out == "nothing new below other\n"


def test_only_the_missing_cells_of_a_seed_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two variants per seed, of which results/ has one of seed 0."""
    cells = tuple((variant, seed) for seed in (0, 1) for variant in ("red", "blue"))

    def place(root: Path, cell: Cell) -> Path:
        return root / f"ink/{cell[0]}{cell[1]}.txt"

    def write(root: Path, cells: Sequence[Cell], samples: int, budget: Budget) -> None:
        for cell in cells:
            place(root, cell).write_text("new")

    def count(root: Path) -> dict[Cell, int]:
        return {cell: 1 for cell in cells if place(root, cell).exists()}

    maker = FileMaker(cells, 1, 1, count, write, copy)
    coloured = dataclasses.replace(INK, maker=maker)
    monkeypatch.setattr(commands, "named", lambda names: (coloured,))
    place(RESULTS, cells[0]).parent.mkdir(parents=True)
    place(RESULTS, cells[0]).write_text("old")
    assert emi("run", "ink", "--missing", "--seeds", 0) == 0
    assert sorted(path.name for path in (RUNS / "ink").glob("*.txt")) == ["blue0.txt"]
    assert starts(RUNS)[0]["seeds"] == [0]


def test_records_of_two_machines_are_merged() -> None:
    for seed, out in ((0, "one"), (2, "two")):
        assert emi("run", "ink", "--seeds", seed, "--out", out) == 0
        record = Path(out) / "ink/provenance.json"
        found = json.loads(record.read_text())
        found["starts"][0] |= {"time": f"2026-01-0{seed + 1}", "commit": out, "seconds": 60}
        record.write_text(json.dumps(found))
        assert emi("collect", "ink", "--runs", out) == 0
    (row,) = manifest(RESULTS)
    assert [word.removesuffix("+modified") for word in row["commit"].split()] == ["one", "two"]
    assert (row["seed"], row["minutes"]) == ("0,2", "2.0")


def test_nothing_to_make_is_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert emi("run", "ink") == 0
    capsys.readouterr()
    assert emi("run", "ink") == 0
    assert capsys.readouterr().out.startswith("ink: complete in runs/paper/ink\n")
    assert len(starts(RUNS)) == 1


def test_bad_options_are_refused_before_anything_is_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--seeds", "9"], ["--engine", "rya"], ["--jobs", "0"]):
        assert emi("run", "ink", *words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not RUNS.exists()


def test_an_interrupted_start_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 100.0, 200.0, 230.0))
    monkeypatch.setattr(made_files, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    RUNS.mkdir(parents=True)
    (RUNS / "broken").touch()
    with pytest.raises(KeyboardInterrupt):
        commands.run_experiments(["ink"], RUNS, Budget(), command=["emi", "paper", "run", "ink"])
    (RUNS / "broken").unlink()
    record = RUNS / "ink/provenance.json"
    record.write_text(record.read_text().replace('"time": "', '"time": "1'))  # another second
    assert (
        commands.run_experiments(["ink"], RUNS, Budget(), command=["emi", "paper", "run", "ink"])
        == 0
    )
    assert [start["seconds"] for start in starts(RUNS)] == [90.0, 30.0]
    assert [start["seeds"] for start in starts(RUNS)] == [[0, 1], [2]]
    assert commands.collect_results(["ink"], RUNS, RESULTS) == 0
    (row,) = manifest(RESULTS)
    assert (row["seed"], row["minutes"]) == ("0-2", "2.0")


def test_a_start_that_made_nothing_is_not_recorded() -> None:
    RUNS.mkdir(parents=True)
    (RUNS / "broken").touch()
    with pytest.raises(KeyboardInterrupt):
        commands.run_experiments(["ink"], RUNS, Budget(seeds=(2,)), command=["emi", "--seeds", "2"])
    assert starts(RUNS) == []
    for seed in (0, 1):
        command = ["emi", "--seeds", str(seed)]
        assert commands.run_experiments(["ink"], RUNS, Budget(seeds=(seed,)), command=command) == 0
    assert commands.collect_results(["ink"], RUNS, RESULTS) == 0
    (row,) = manifest(RESULTS)
    assert (row["seed"], row["command"]) == ("0-1", "emi --seeds 0; emi --seeds 1")
