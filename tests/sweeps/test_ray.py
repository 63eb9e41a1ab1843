"""A sweep on a Ray cluster survives the loss of a node, with the same bits as on one machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emi.cli import main
from emi.program import install
from emi.runs import checkpoint
from emi.sweeps.ray import resources
from emi.sweeps.sweep import plan

ITERATIONS = 40
SETTINGS = ["--steps", str(ITERATIONS * 500), "--set", "steps_per_iteration=500", "num_envs=2"]
NODE_LOSS = Path(__file__).with_name("ray_node_loss.py")


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Environment variables: a short temporary directory, because of its sockets; no reports."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield os.environ | {
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            # Workers must notice the loss of their node before their runs are complete.
            "RAY_raylet_death_check_interval_milliseconds": "100",
        }


def arguments(out: Path, methods: str, seeds: str) -> list[str]:
    grid = ["sweep", "SparseHalfCheetah", "--methods", methods, "--seeds", seeds]
    return [*grid, "--out", str(out), *SETTINGS]


def starts(run: Path) -> list[int]:
    """Return the iterations from which the run was started."""
    return [s["iteration"] for s in json.loads((run / "provenance.json").read_bytes())["starts"]]


def runs(out: Path) -> dict[str, Path]:
    return {str(p.parent.relative_to(out)): p.parent for p in sorted(out.rglob("config.json"))}


def last_checkpoint(run: Path) -> dict[str, bytes]:
    files = sorted((run / "checkpoints" / f"{ITERATIONS:08d}").iterdir())
    return {file.name: file.read_bytes() for file in files}


def test_a_node_is_lost(tmp_path: Path, environment: dict[str, str]) -> None:
    here, cluster = tmp_path / "here", tmp_path / "cluster"
    swept = [*arguments(cluster, "emi,trpo", "0-3"), "--engine", "ray"]
    done = subprocess.run(
        [sys.executable, NODE_LOSS, str(cluster), *swept],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2] == "8 runs: 8 done"
    assert main(arguments(here, "emi,trpo", "0-3")) == 0
    assert len(runs(here)) == 8
    assert runs(cluster).keys() == runs(here).keys()
    for name, run in runs(here).items():
        assert starts(run) == [0]
        ours = last_checkpoint(runs(cluster)[name])
        assert ours.keys() == {"manifest.json", "state.json", "tensors.safetensors"}
        assert ours == last_checkpoint(run), name
    resumed = [starts(run)[-1] for run in runs(cluster).values()]
    assert 3 <= max(resumed) < ITERATIONS  # from a checkpoint that the node left behind


def test_a_signal_stops_the_runs_after_a_checkpoint(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    run = tmp_path / "SparseHalfCheetah/trpo/seed0"
    command = [sys.executable, "-m", "emi", *arguments(tmp_path, "trpo", "0"), "--engine", "ray"]
    long = [*command, "--steps", "5000000"]
    sweep = subprocess.Popen(
        long, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    limit = time.monotonic() + 300
    while not (run / "metrics.csv").exists():
        assert time.monotonic() < limit
        assert sweep.poll() is None
        time.sleep(0.05)
    sweep.send_signal(signal.SIGINT)
    out, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 128 + signal.SIGINT
    assert out.splitlines()[-2:] == [
        "1 run: 1 stopped",
        "run the same command again to continue",
    ]
    assert "emi: stopping after the current iterations" in err.splitlines()
    done = checkpoint.latest_iteration(run / "checkpoints")
    assert done is not None
    assert done == len((run / "metrics.csv").read_text().splitlines()) - 1 > 0


def test_the_resources_of_a_run(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, ["SparseHalfCheetah"], ["emi"], [0], {"threads": 3})
    assert resources(cell) == {"num_cpus": 3, "num_gpus": 0, "max_retries": -1}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--engine", "rey"], "unknown engine 'rey': did you mean 'ray'?"),
        (["--engine", "rey", "--dry-run"], "unknown engine 'rey': did you mean 'ray'?"),
        (["--engine", "rey", "--slurm", "no.sh"], "unknown engine 'rey': did you mean 'ray'?"),
        (["--engine", "cloud"], "unknown engine 'cloud': use local or ray"),
        (["--address", "here:1"], "--address is that of a Ray cluster: add --engine ray"),
        (["--engine", "ray", "--address", "127.0.0.1:9"], "there is no Ray cluster at 127.0.0.1:9"),
        (["--engine", "ray", "--jobs", "0"], "--jobs must be positive, got 0"),
    ],
)
def test_bad_options(
    more: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*arguments(out, "trpo", "0"), *more]) == 2
    assert capsys.readouterr().err.startswith(f"emi: {sentence}")
    assert not out.exists()


def test_without_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent: Any = None
    monkeypatch.setitem(sys.modules, "ray", absent)
    out = tmp_path / "out"
    assert main([*arguments(out, "trpo", "0"), "--engine", "ray"]) == 2
    assert capsys.readouterr().err == (
        f"emi: --engine ray needs Ray, which is not installed: {install('ray')}\n"
    )
    assert not out.exists()
