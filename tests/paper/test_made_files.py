"""Files that no sweep trains: made once, with a record of how, and a row in the manifest."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emi.cli import main
from emi.paper import commands, made_files
from emi.paper.experiment import Budget, Experiment

SEEDS = (0, 1, 2)


def make(root: Path, budget: Budget) -> None:
    """As the real ones do: what is there is kept."""
    for seed in budget.chosen(SEEDS):
        path = root / f"ink/{seed}.txt"
        if not path.exists():
            if seed == 2 and (root / "broken").exists():
                raise KeyboardInterrupt
            path.write_text(f"{budget.scale:g}")


INK = Experiment(
    name="ink",
    question="Is it written?",
    paper="is printed.",
    groups=(),
    draw=lambda found, stem: [],
    files=tuple(f"ink/{seed}.txt" for seed in SEEDS),
    make=make,
    seeds=SEEDS,
)


@pytest.fixture(autouse=True)
def _only_ink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "named", lambda names: (INK,))


def emi(*words: object) -> int:
    return main(["paper", *map(str, words)])


def starts(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((root / "ink/provenance.json").read_text())["starts"]
    return found


def manifest(results: Path) -> list[dict[str, str]]:
    with (results / "MANIFEST.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_made_collected_and_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs, results = Path("runs/paper"), Path("results")
    assert emi("run", "ink", "--seeds", "0-1") == 0
    (first,) = starts(runs)
    assert first["command"] == "emi paper run ink --seeds 0-1"
    assert first["seeds"] == [0, 1]
    assert first["seconds"] >= 0
    capsys.readouterr()
    assert emi("collect", "ink") == 0
    assert capsys.readouterr().out.splitlines() == ["results/ink/0.txt", "results/ink/1.txt"]
    (row,) = manifest(results)
    assert row["run"] == "ink"
    assert row["seed"] == "0-1"
    assert row["command"] == "emi paper run ink --seeds 0-1"
    assert row["commit"].startswith(first["commit"] or "unknown")
    assert row["minutes"] == "0.0"

    # Elsewhere, what results/ has is not made again, and its record goes on.
    (results / "ink/0.txt").write_text("kept")
    assert emi("run", "ink", "--missing", "--out", "other") == 0
    assert Path("other/ink/0.txt").read_text() == "kept"
    assert [start["seeds"] for start in starts(Path("other"))] == [[0, 1], [0, 1, 2]]
    capsys.readouterr()
    assert emi("collect", "ink", "--runs", "other") == 0
    assert capsys.readouterr().out.splitlines() == ["results/ink/2.txt"]
    (row,) = manifest(results)
    assert row["seed"] == "0-2"
    assert len(starts(results)) == 2

    # Nothing is missing any more, and what is collected is not replaced.
    assert emi("run", "ink", "--missing") == 2
    assert "there is nothing to run" in capsys.readouterr().err
    Path("other/ink/0.txt").write_text("new")
    assert emi("collect", "ink", "--runs", "other") == 0
    assert capsys.readouterr().out == "nothing new below other\n"
    assert (results / "ink/0.txt").read_text() == "kept"


def test_what_was_interrupted_has_its_record_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((10.0, 100.0, 200.0, 230.0))
    monkeypatch.setattr(made_files, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "broken").touch()
    with pytest.raises(KeyboardInterrupt):
        commands.run(["ink"], runs, Budget(), words=["emi", "paper", "run", "ink"])
    (runs / "broken").unlink()
    assert commands.run(["ink"], runs, Budget(), words=["emi", "paper", "run", "ink"]) == 0
    assert [start["seconds"] for start in starts(runs)] == [90.0, 30.0]
    assert commands.collect(["ink"], runs, tmp_path / "results") == 0
    (row,) = manifest(tmp_path / "results")
    assert row["minutes"] == "2.0"
    assert row["seed"] == "0-2"
