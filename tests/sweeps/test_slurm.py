"""The commands of a sweep, printed by --dry-run or written as a Slurm script."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from emi.cli import main
from emi.runs import checkpoint, run_directory
from emi.runs.run_directory import RunDirectory, config_bytes
from emi.sweeps.slurm import slurm_script
from emi.sweeps.sweep import Cell, plan, write_job_array

SMALL = ["--steps", "200", "--set", "steps_per_iteration=100", "num_envs=2"]


def arguments(out: Path, *more: str, seeds: str = "0-2") -> list[str]:
    grid = ["sweep", "SparseHalfCheetah", "--methods", "trpo", "--seeds", seeds]
    return [*grid, "--out", str(out), *more, *SMALL]


def cells(out: Path) -> list[Cell]:
    settings = {"steps": 200, "steps_per_iteration": 100, "num_envs": 2}
    return plan(out, ["SparseHalfCheetah"], ["trpo"], range(3), settings)


def pretend(cell: Cell, iteration: int) -> None:
    """Write what a run leaves that was stopped at `iteration`."""
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
        assert main(arguments(out, "--dry-run")) == 0
        lines = capsys.readouterr().out.splitlines()
        folder = out / "SparseHalfCheetah/trpo"
        assert lines[0] == "# skipped: SparseHalfCheetah trpo seed 0: complete"
        assert len(lines) == 3
        for seed in (1, 2):
            emi, *command = shlex.split(lines[seed])
            assert emi == "emi"
            assert command[-3:] == ["--out", str(folder / f"seed{seed}"), "--resume"]
            assert main([*command, "--print-config"]) == 0
            printed = capsys.readouterr().out.encode()
            assert printed == config_bytes(cells(out)[seed].config)
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_conflict(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pretend(cells(tmp_path)[0], 1)
        assert main(arguments(tmp_path, "--dry-run", "--threads", "2", seeds="0")) == 1
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
        assert main(arguments(out, "--slurm", str(file))) == 0
        assert capsys.readouterr().out.splitlines() == [
            "3 runs: 3 waiting",
            f"wrote {file}: submit it with sbatch --time=HH:MM:SS {file}",
        ]
        files = sorted(p.name for p in (out / "SparseHalfCheetah/trpo").iterdir())
        assert files == ["seed0.json", "seed1.json", "seed2.json"]

        def run(index: int | str) -> int:
            environment = os.environ | {"SLURM_ARRAY_TASK_ID": str(index)}
            return subprocess.run(["sh", str(file)], env=environment, check=False).returncode

        path = out / "SparseHalfCheetah/trpo/seed1"
        assert run(1) == 0
        assert checkpoint.latest_iteration(path / "checkpoints") == 2
        assert sorted(p.name for p in path.parent.iterdir()) == [
            "seed0.json",
            "seed1",
            "seed1.json",
            "seed1.log",
            "seed2.json",
        ]
        before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
        assert run(1) == 0
        assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
        assert path.with_name("seed1.log").read_text().count("complete: 2 iterations") == 2
        assert run(3) == 2

        # Written again, it holds only what is missing.
        assert main(arguments(out, "--slurm", str(file))) == 0
        assert "--array=0-1\n" in file.read_text()
        assert "seed1" not in file.read_text()

    def test_the_signal_reaches_emi_itself(self, tmp_path: Path) -> None:
        script = slurm_script(cells(tmp_path), tmp_path)
        fake = "import os, sys; print(os.getpid(), *sys.argv[1:])"
        program = shlex.join([sys.executable, "-P", "-m", "emi"])
        assert script.count(program) == 1
        script = script.replace(program, shlex.join([sys.executable, "-c", fake]))
        pretend(cells(tmp_path)[0], 1)
        environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
        with subprocess.Popen(["sh", "-c", script], env=environment) as shell:
            assert shell.wait() == 0
        path = tmp_path / "SparseHalfCheetah/trpo/seed0"
        printed = path.with_name("seed0.log").read_text()
        assert printed == f"{shell.pid} train --config {path}.json --out {path} --resume\n"

    def test_another_run_in_the_directory_is_not_resumed(self, tmp_path: Path) -> None:
        script = slurm_script(cells(tmp_path), tmp_path)
        assert write_job_array(cells(tmp_path), tmp_path / "sweep.sh") == 0
        other = replace(cells(tmp_path)[0].config, eta=0.5)
        pretend(replace(cells(tmp_path)[0], config=other), 1)
        environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
        done = subprocess.run(["sh", "-c", script], env=environment, check=False)
        assert done.returncode == 2
        log = tmp_path / "SparseHalfCheetah/trpo/seed0.log"
        assert "holds another run (eta differs)" in log.read_text()

    def test_two_scripts_cannot_share_a_directory(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Written before either was submitted: the runs are those of the first script."""
        assert main(arguments(tmp_path, "--slurm", str(tmp_path / "a.sh"), seeds="0")) == 0
        config = tmp_path / "SparseHalfCheetah/trpo/seed0.json"
        before = config.read_bytes()
        capsys.readouterr()
        other = arguments(tmp_path, "--slurm", str(tmp_path / "b.sh"), seeds="0")
        assert main([*other, "discount=0.9"]) == 1
        assert capsys.readouterr().out == (
            "1 run: 1 conflict\nconflict: SparseHalfCheetah trpo seed 0:"
            f" {config} holds another run (discount differs)\n"
        )
        assert config.read_bytes() == before
        assert not (tmp_path / "b.sh").exists()

    def test_a_file_that_is_something_else(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "thesis.tex"
        file.write_text("Chapter 1")
        assert main(arguments(tmp_path, "--slurm", str(file))) == 2
        assert "is not a script of emi sweep: choose another --slurm" in capsys.readouterr().err
        assert file.read_text() == "Chapter 1"
        assert main(arguments(tmp_path, "--slurm", str(tmp_path / "no/such/folder"))) == 2
        assert "cannot write" in capsys.readouterr().err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.tex"]

    def test_nothing_to_do(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pretend(cells(tmp_path)[0], 2)
        file = tmp_path / "sweep.sh"
        assert main(arguments(tmp_path, "--slurm", str(file), seeds="0")) == 0
        assert capsys.readouterr().out == "1 run: 1 skipped\n"
        assert not file.exists()
