import csv
import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from run_files import write_run

from emi.report.load import collect, load_run, load_runs


def manifest_rows(results: Path) -> list[dict[str, str]]:
    with (results / "MANIFEST.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_directory_is_read_whole(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [0.0, 10.0, 30.0], method="emi-d", seed=3))
    assert (run.env, run.method, run.seed, run.steps) == ("SparseHalfCheetah", "emi-d", 3, 15_000)
    assert run.metrics["steps"].tolist() == [5_000, 10_000, 15_000]
    assert run.metrics["return_mean"].tolist() == [0.0, 10.0, 30.0]
    assert run.metrics["emi/loss_info"].tolist() == [0.5, 0.5, 0.5]
    assert run.provenance["starts"][0]["commit"] == "c0ffee"
    assert run.finished


def test_final_return_is_the_last_iteration_or_a_mean_of_the_last_ones(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [500.0, 10.0, 30.0]))
    assert run.final_return() == 30.0
    assert run.final_return(2) == 20.0
    cut = load_run(write_run(tmp_path / "cut", [10.0, 30.0, math.nan]))
    assert cut.final_return() == 30.0
    assert cut.final_return(2) == 20.0
    assert math.isnan(load_run(write_run(tmp_path / "no", [math.nan] * 2)).final_return())


def test_a_half_written_row_of_a_live_run_is_left_out(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [1.0, 2.0], iterations=4)
    with (directory / "metrics.csv").open("a") as file:
        file.write("3,15000,9")
    run = load_run(directory)
    assert run.metrics["return_mean"].tolist() == [1.0, 2.0]
    assert not run.finished


def test_a_missing_return_is_nan(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [float("nan"), 2.0]))
    assert np.isnan(run.metrics["return_mean"][0])


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing holds no run: there is no config\.json"):
        load_run(tmp_path / "nothing")
    with pytest.raises(ValueError, match="no runs below"):
        load_runs(tmp_path)


def test_collected_runs_read_back_equal_and_in_order(tmp_path: Path) -> None:
    directories = [write_run(tmp_path / f"run{k}", [0.0, float(k)], seed=k) for k in (2, 0, 1)]
    experiment = tmp_path / "results" / "sparse_half_cheetah"
    targets = collect(directories, experiment)
    assert targets[0] == experiment / "SparseHalfCheetah" / "emi" / "seed2"
    assert sorted(path.name for path in targets[0].iterdir()) == [
        "config.json",
        "metrics.csv.gz",
        "provenance.json",
    ]
    packed = gzip.decompress((targets[0] / "metrics.csv.gz").read_bytes())
    assert packed == (directories[0] / "metrics.csv").read_bytes()
    assert [(run.seed, run.final_return()) for run in load_runs(experiment)] == [
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
    ]


def test_manifest_has_one_row_per_run_and_is_updated_in_place(tmp_path: Path) -> None:
    results = tmp_path / "results"
    collect([write_run(tmp_path / "b", [1.0], seed=1)], results / "one")
    collect([write_run(tmp_path / "a", [1.0, 2.0], seed=0)], results / "one")
    assert manifest_rows(results) == [
        {
            "run": f"one/SparseHalfCheetah/emi/seed{seed}",
            "commit": "c0ffee",
            "command": f"emi train SparseHalfCheetah --seed {seed}",
            "seed": str(seed),
            "machine": "Some CPU, fast, 2 cores",
            "minutes": minutes,
        }
        for seed, minutes in ((0, "1.0"), (1, "0.5"))
    ]
    again = write_run(tmp_path / "c", [1.0] * 100, seed=1, starts=[("d00d", False)])
    collect([again], results / "one")
    assert [(row["seed"], row["commit"], row["minutes"]) for row in manifest_rows(results)] == [
        ("0", "c0ffee", "1.0"),
        ("1", "d00d", "50.0"),
    ]


def test_manifest_says_which_commits_made_a_resumed_or_modified_run(tmp_path: Path) -> None:
    starts = [("c0ffee", False), ("c0ffee", False), ("d00d", True), (None, None)]
    directory = write_run(tmp_path / "run", [1.0], starts=starts)
    collect([directory], tmp_path / "results" / "one")
    (row,) = manifest_rows(tmp_path / "results")
    assert row["commit"] == "c0ffee d00d+modified unknown"
    assert row["command"] == "emi train SparseHalfCheetah --seed 0"


def test_collecting_twice_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_run(tmp_path / "run", [1.0, 2.0])
    (target,) = collect([directory], tmp_path / "results" / "one")
    first = {path.name: path.read_bytes() for path in target.iterdir()}
    monkeypatch.setattr("time.time", lambda: 2e9)
    collect([directory], tmp_path / "results" / "one")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == first
    assert first["metrics.csv.gz"][4:8] == b"\0\0\0\0"  # the header's time stamp


def test_an_unfinished_run_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", [1.0, 2.0])
    stopped = write_run(tmp_path / "stopped", [1.0, 2.0], seed=1, iterations=3)
    with pytest.raises(ValueError, match="stopped has not reached its 15000 steps"):
        collect([whole, stopped], tmp_path / "results" / "one")
    assert not (tmp_path / "results").exists()
