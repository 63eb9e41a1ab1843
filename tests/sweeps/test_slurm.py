"""The commands of a sweep, printed or as a Slurm script, without running any."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from emi.cli import main
from emi.runs import checkpoint, run_directory
from emi.runs.run_directory import RunDirectory
from emi.sweeps.sweep import Cell, plan
from emi.sweeps.slurm import slurm_script

SMALL = ["--steps", "200", "--set", "steps_per_iteration=100", "num_envs=2"]


def words(out: Path, *more: str, seeds: str = "0-2") -> list[str]:
    grid = ["sweep", "SparseHalfCheetah", "--methods", "trpo", "--seeds", seeds]
    return [*grid, "--out", str(out), *more, *SMALL]


def cells(out: Path) -> list[Cell]:
    overrides = ["steps_per_iteration=100", "num_envs=2"]
    seeds = range(3)
    return plan(out, ["SparseHalfCheetah"], ["trpo"], seeds, steps=200, overrides=overrides)


def pretend(cell: Cell, iteration: int) -> None:
    """Leave in its directory what a run that came to `iteration` leaves."""
    directory = RunDirectory(cell.path)
    directory.path.mkdir(parents=True)
    run_directory.write_config(directory, cell.config)
    checkpoint.save(directory.checkpoints, iteration, {})


class TestDryRun:
    def test_the_commands(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "my runs"
        pretend(cells(out)[0], 2)
        pretend(cells(out)[1], 1)
        before = sorted(tmp_path.rglob("*"))
        assert main(words(out, "--dry-run")) == 0
        lines = capsys.readouterr().out.splitlines()
        folder = out / "SparseHalfCheetah/trpo"
        assert lines[0] == "# skipped: SparseHalfCheetah trpo seed 0: complete"
        assert lines[1] == f"emi resume '{folder / 'seed1'}'"
        assert shlex.split(lines[2]) == [
            *("emi", "train", "SparseHalfCheetah", "--method", "trpo", "--seed", "2"),
            *("--threads", "1", "--out", str(folder / "seed2"), *SMALL),
        ]
        assert len(lines) == 3
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_conflict(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pretend(cells(tmp_path)[0], 1)
        assert main(words(tmp_path, "--dry-run", "--threads", "2", seeds="0")) == 1
        path = tmp_path / "SparseHalfCheetah/trpo/seed0"
        assert capsys.readouterr().out == (
            "# conflict: SparseHalfCheetah trpo seed 0:"
            f" {path} holds another run (threads differs)\n"
        )


class TestSlurm:
    def test_the_script(self, tmp_path: Path) -> None:
        script = slurm_script(cells(Path("my runs")), tmp_path / "it's here", jobs=2)
        lines = script.splitlines()
        assert lines[0] == "#!/bin/sh"
        options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
        assert options == [
            "--job-name=emi-sweep",
            "--array=0-2%2",
            "--ntasks=1",
            "--cpus-per-task=1",
            "--requeue",
            "--open-mode=append",
            "--signal=B:TERM@300",
        ]
        for shell in ("sh", "bash"):
            subprocess.run([shell, "-n"], input=script, text=True, check=True)

    def test_a_gpu_where_one_is_needed(self, tmp_path: Path) -> None:
        plain = cells(tmp_path)
        last = replace(plain[-1], config=replace(plain[-1].config, device="cuda"))
        assert "gpus" not in slurm_script(plain, tmp_path)
        script = slurm_script([*plain[:-1], last], tmp_path).splitlines()
        assert script.index("#SBATCH --gpus-per-task=1") < script.index("#SBATCH --requeue")

    def test_run_without_slurm(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out, file = tmp_path / "my runs", tmp_path / "sweep.sh"
        assert main(words(out, "--slurm", str(file))) == 0
        assert capsys.readouterr().out.splitlines() == [
            "3 runs: 3 waiting",
            f"wrote {file}: submit it with sbatch --time=HH:MM:SS {file}",
        ]
        assert not out.exists()

        def run(index: int | str) -> int:
            environment = os.environ | {"SLURM_ARRAY_TASK_ID": str(index)}
            return subprocess.run(["sh", str(file)], env=environment, check=False).returncode

        path = out / "SparseHalfCheetah/trpo/seed1"
        assert run(1) == 0
        assert checkpoint.latest_iteration(path / "checkpoints") == 2
        assert sorted(p.name for p in path.parent.iterdir()) == ["seed1", "seed1.log"]
        before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
        assert run(1) == 0
        assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
        assert path.with_name("seed1.log").read_text().count("complete: 2 iterations") == 2
        assert run(3) == 2

        # Written again, it holds only what is missing.
        assert main(words(out, "--slurm", str(file))) == 0
        assert "--array=0-1\n" in file.read_text()
        assert "seed1" not in file.read_text()

    def test_the_signal_reaches_emi_itself(self, tmp_path: Path) -> None:
        script = slurm_script(cells(tmp_path), tmp_path)
        fake = "import os, sys; print(os.getpid(), *sys.argv[1:])"
        program = shlex.join([sys.executable, "-m", "emi"])
        assert script.count(program) == 1
        script = script.replace(program, shlex.join([sys.executable, "-c", fake]))
        pretend(cells(tmp_path)[0], 1)
        environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
        with subprocess.Popen(["sh", "-c", script], env=environment) as shell:
            assert shell.wait() == 0
        path = tmp_path / "SparseHalfCheetah/trpo/seed0"
        told = path.with_name("seed0.log").read_text()
        assert told.startswith(f"{shell.pid} train --resume SparseHalfCheetah --method trpo")

    def test_another_run_in_the_folder_is_not_gone_on_with(self, tmp_path: Path) -> None:
        """Two scripts, written before either has begun, for one folder."""
        script = slurm_script(cells(tmp_path), tmp_path)
        other = replace(cells(tmp_path)[0].config, eta=0.5)
        pretend(replace(cells(tmp_path)[0], config=other), 1)
        environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
        done = subprocess.run(["sh", "-c", script], env=environment, check=False)
        assert done.returncode == 2
        log = tmp_path / "SparseHalfCheetah/trpo/seed0.log"
        assert "holds another run (eta differs)" in log.read_text()

    def test_a_file_that_is_something_else(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "thesis.tex"
        file.write_text("Chapter 1")
        assert main(words(tmp_path, "--slurm", str(file))) == 2
        assert "is not a script of emi sweep: choose another --slurm" in capsys.readouterr().err
        assert file.read_text() == "Chapter 1"
        assert main(words(tmp_path, "--slurm", str(tmp_path / "no/such/folder"))) == 2
        assert "cannot write" in capsys.readouterr().err

    def test_nothing_to_do(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pretend(cells(tmp_path)[0], 2)
        file = tmp_path / "sweep.sh"
        assert main(words(tmp_path, "--slurm", str(file), seeds="0")) == 0
        assert capsys.readouterr().out == "1 runs: 1 skipped\n"
        assert not file.exists()
