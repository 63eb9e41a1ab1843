"""Runs as files: run directories and packed experiments give the same `Run`."""

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_files import write_run, write_sample

from emi.errors import UserError
from emi.report.embedding import read_sample
from emi.report.load import final_returns, find_runs, load_run
from emi.report.packed import RUNS, embedding_file, metrics_file, pack, read_records
from emi.report.record import Record


def pack_directory(directory: Path, experiment: Path, key: str) -> Path:
    """Pack a run directory; returns the path of the packed run."""
    run = load_run(directory)
    path = experiment / key
    path.parent.mkdir(parents=True, exist_ok=True)
    metrics = (directory / "metrics.csv").read_bytes()
    metrics_file(path).write_bytes(gzip.compress(metrics, mtime=0))
    if run.embedding is not None:
        embedding_file(path).write_bytes(gzip.compress(run.embedding.read_bytes(), mtime=0))
    records = read_records(experiment) | {key: Record(run.config, run.provenance)}
    (experiment / RUNS).write_bytes(pack(records))
    return path


def test_a_run_directory_is_read_completely(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [0.0, 10.0, 30.0], method="emi-d", seed=3))
    assert (run.env, run.method, run.seed, run.steps) == ("SparseHalfCheetah", "emi-d", 3, 15_000)
    assert run.metrics["steps"].tolist() == [5_000, 10_000, 15_000]
    assert run.metrics["return_mean"].tolist() == [0.0, 10.0, 30.0]
    assert run.metrics["emi/loss_info"].tolist() == [0.5, 0.5, 0.5]
    assert run.provenance["starts"][0]["commit"] == "c0ffee"
    assert run.finished
    assert run.reached == 15_000
    assert run.embedding is None


def test_final_return_is_the_last_iteration_or_a_mean_of_the_last_ones(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [500.0, 10.0, 30.0]))
    assert run.final_return() == 30.0
    assert run.final_return(2) == 20.0
    cut = load_run(write_run(tmp_path / "cut", [10.0, 30.0, math.nan]))
    assert cut.final_return() == 30.0
    assert cut.final_return(2) == 20.0
    without = load_run(write_run(tmp_path / "no", [math.nan] * 2))
    assert math.isnan(without.final_return())
    assert not without.has_return
    assert final_returns([run, without, cut]).tolist() == [30.0, 30.0]


def test_a_half_written_row_of_a_running_process_is_left_out(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [1.0, 2.0], iterations=4)
    with (directory / "metrics.csv").open("a") as file:
        file.write("3,15000,9")
    run = load_run(directory)
    assert run.metrics["return_mean"].tolist() == [1.0, 2.0]
    assert not run.finished


def test_a_missing_return_is_nan(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [float("nan"), 2.0]))
    assert np.isnan(run.metrics["return_mean"][0])


def test_a_run_without_an_iteration_has_no_first_reward(tmp_path: Path) -> None:
    assert load_run(write_run(tmp_path / "new", [], iterations=3)).first_reward is None
    run = load_run(write_run(tmp_path / "run", [math.nan, 0.0, 1.0]))
    assert run.first_reward == (15_000, True)


@pytest.mark.parametrize(
    ("stored", "changed"),
    [
        ([], []),
        (["eta", "seed", "steps", "threads", "device", "trpo.slices"], ["eta"]),
        (["steps"], []),  # a shorter run of the preset is a run of the preset
        (None, None),  # a run of an older version
    ],
)
def test_changed_settings_come_from_the_provenance(
    tmp_path: Path, stored: list[str] | None, changed: list[str] | None
) -> None:
    assert load_run(write_run(tmp_path / "run", [1.0], changed=stored)).changed == changed


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing cannot be read as a run \(it has no config"):
        load_run(tmp_path / "nothing")
    with pytest.raises(UserError, match="no runs in "):
        find_runs([tmp_path])
    with pytest.raises(UserError, match=r"there is no .*nowhere: give the folder"):
        find_runs([tmp_path / "nowhere"])


def test_runs_are_found_once_and_in_order(tmp_path: Path) -> None:
    for number, (method, seed) in enumerate([("trpo", 0), ("emi", 1), ("emi", 0)]):
        write_run(tmp_path / str(number), [1.0], method=method, seed=seed)
    runs = find_runs([tmp_path, tmp_path / "0"]).runs
    assert [(run.method, run.seed) for run in runs] == [("emi", 0), ("emi", 1), ("trpo", 0)]


class TestPacked:
    def test_a_packed_run_is_the_same_run(self, tmp_path: Path) -> None:
        directory = write_run(tmp_path / "run", [1.0, math.nan, 3.0], seed=2, changed=["eta"])
        sample = write_sample(directory, [[5]])
        path = pack_directory(directory, tmp_path / "packed", "SparseHalfCheetah/emi/seed2")
        before, after = load_run(directory), load_run(path)
        assert after.config == before.config
        assert after.provenance == before.provenance
        assert after.same_metrics(before)
        assert after.changed == ["eta"]
        np.testing.assert_array_equal(read_sample(after)["phi"], sample["phi"])

    def test_records_come_back_whatever_they_share(self, tmp_path: Path) -> None:
        def start(commit: str, **more: object) -> dict[str, object]:
            return {"commit": commit, "machine": {"cores": 2}, **more}

        records = {
            "Env/emi/seed10": Record({"seed": 10, "a": {"b": [1, 2]}}, {"starts": [start("x")]}),
            "Env/emi/seed2": Record(
                {"seed": 2, "a": {"b": [1, 2]}, "new": None},
                {"starts": [start("x", time=1), start("y")], "changed": []},
            ),
            "Env/trpo/seed0": Record({"seed": 0}, {"starts": [], "changed": ["a.b"]}),
        }
        content = pack(records)
        assert pack(dict(reversed(records.items()))) == content
        (tmp_path / RUNS).write_bytes(content)
        assert read_records(tmp_path) == records
        stored = json.loads(content)
        assert stored["Env/emi"]["config"] == {"a": {"b": [1, 2]}}  # written once
        assert list(stored["Env/emi"]["runs"]) == ["seed2", "seed10"]

    def test_folders_above_and_inside_an_experiment_can_be_given(self, tmp_path: Path) -> None:
        for seed in (0, 1):
            directory = write_run(tmp_path / f"run{seed}", [1.0], seed=seed)
            for experiment in ("one", "two"):
                key = f"SparseHalfCheetah/emi/seed{seed}"
                pack_directory(directory, tmp_path / "results" / experiment, key)
        results = tmp_path / "results"
        assert len(find_runs([results]).runs) == 4
        runs = find_runs([results / "one"]).runs
        assert [run.place for run in runs] == [
            "one/SparseHalfCheetah/emi/seed0",
            "one/SparseHalfCheetah/emi/seed1",
        ]
        assert len(find_runs([results / "one" / "SparseHalfCheetah"]).runs) == 2
        (run,) = find_runs([results / "two" / "SparseHalfCheetah" / "emi" / "seed1"]).runs
        assert (run.seed, run.place) == (1, "seed1")

    @pytest.mark.parametrize(
        "content", ["", "[]", "{}}", '{"Env/emi": {}}', '{"E/m": {"runs": {"seed0": {}}}}']
    )
    def test_a_damaged_file_is_named(self, tmp_path: Path, content: str) -> None:
        (tmp_path / RUNS).write_text(content)
        with pytest.raises(UserError, match=r"runs\.json is damaged \(.*\): restore it"):
            find_runs([tmp_path])

    def test_a_damaged_or_missing_metrics_file_is_named(self, tmp_path: Path) -> None:
        directory = write_run(tmp_path / "run", [1.0])
        path = pack_directory(directory, tmp_path / "packed", "SparseHalfCheetah/emi/seed0")
        content = metrics_file(path).read_bytes()
        metrics_file(path).write_bytes(content[:-9])
        with pytest.raises(
            UserError, match=r"emi/seed0 cannot be read \(.*\.csv\.gz ends too early"
        ):
            find_runs([tmp_path / "packed"])
        metrics_file(path).unlink()
        with pytest.raises(UserError, match="emi/seed0 cannot be read as a run \\("):
            load_run(path)


def test_the_report_needs_no_training_code() -> None:
    program = (
        "import sys, emi\n"
        "before = set(sys.modules)\n"
        "import emi.report.figures, emi.report.page.html\n"
        "files = ('emi.cells', 'emi.durable_file', 'emi.untrusted_file')\n"
        "allowed = ('emi.report', 'emi.errors', *files, 'emi.intrinsic.table')\n"
        "loaded = [n for n in sys.modules if n.startswith('emi.') and n not in before]\n"
        "print([n for n in loaded if not n.startswith(allowed) and n != 'emi.intrinsic'])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\nFalse\n", "")


def test_settings_of_the_environment_separate_runs(tmp_path: Path) -> None:
    """Empty ones are those of older runs, which do not have them."""
    settings = []
    for number, more in enumerate(
        (
            {},
            {"env_args": {}, "wrappers": [], "observation": None},
            {"env_args": {"size": 7}},
            {"env_args": {"size": 8}},
            {"wrappers": ["a:B"]},
            {"observation": "x"},
        )
    ):
        path = write_run(tmp_path / str(number), [1.0])
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | more))
        settings.append(json.dumps(load_run(path).settings, sort_keys=True))
    assert settings[0] == settings[1]
    assert len(set(settings)) == 5
