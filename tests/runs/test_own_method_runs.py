"""A user's own method, given as `module:Class`, in runs, checkpoints, resume and sweeps."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import assert_same_run, rows

from emi.cli import main
from emi.errors import UserError
from emi.runs import run as run_module
from emi.runs.checkpoint import load_latest
from emi.runs.run import run
from emi.runs.run_directory import RunDirectory, read_config
from emi.training.presets import preset, resolve
from emi.training.trainer import Report, Trainer

MODULE = """
from dataclasses import dataclass

import torch

from emi import IntrinsicReward


@dataclass(frozen=True)
class VisitsConfig:
    cells: int = 8
    scales: tuple[float, ...] = (1.0,)


class Visits(IntrinsicReward):
    def __init__(self, observation_space, action_space, config=VisitsConfig(), seed=0):
        super().__init__()
        self.config = config
        random = torch.Generator().manual_seed(seed)
        self.direction = torch.nn.Parameter(
            torch.randn(observation_space.shape[0], generator=random), requires_grad=False
        )
        self.register_buffer("counts", torch.zeros(config.cells, dtype=torch.int64))

    def cell(self, batch):
        place = torch.tanh(torch.as_tensor(batch.next_obs) @ self.direction)
        cells = self.config.cells
        return ((place + 1) / 2 * cells).long().clamp(0, cells - 1)

    def reward(self, batch):
        return sum(self.config.scales) / (1 + self.counts[self.cell(batch)]).sqrt()

    def learn(self, batch):
        self.counts += torch.bincount(self.cell(batch), minlength=self.config.cells)
        return {"visits/cells": float((self.counts > 0).sum())}
"""
SIZES = {"steps": 500, "steps_per_iteration": 100, "num_envs": 2, "threads": 1}
SETTINGS = SIZES | {"intrinsic": {"cells": 5, "scales": (0.5, 0.25)}}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """A directory with the user's module lab/visits.py, which is not imported before or after."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/visits.py").write_text(MODULE)
    yield tmp_path
    for name in ("lab", "lab.visits", "lab.scale"):
        sys.modules.pop(name, None)


@pytest.fixture
def importable(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`lab`, on the path of this process."""
    monkeypatch.syspath_prepend(lab)
    return lab


class Stopped(Trainer):
    """Receives SIGTERM in its third iteration."""

    def iterate(self) -> Report:
        if self.iteration == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().iterate()


@pytest.mark.parametrize("threads", [1, 2])  # with 2, the method learns in a second thread
def test_a_stop_and_a_resume_change_no_bit(
    importable: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    config = resolve("gym:CartPole-v1", "lab.visits:Visits", SETTINGS | {"threads": threads})
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "Trainer", Stopped)
        stopped = run(config, importable / "run")
    assert (stopped.iteration, stopped.stopped_by) == (3, signal.SIGTERM)
    state = load_latest(importable / "run/checkpoints").state["intrinsic"]
    assert list(state) == ["direction", "counts"]
    assert state["counts"].dtype == torch.int64
    assert state["counts"].shape == (5,)
    assert int(state["counts"].sum()) == 300

    assert read_config(RunDirectory(importable / "run").config, ["lab.visits"]) == config
    assert run(config, importable / "run", resume=True).complete
    run(config, importable / "straight")
    assert_same_run(importable / "straight", importable / "run")
    table = rows(importable / "run")
    assert len(table) == 5
    # No state was visited before the first batch: every bonus is 0.5 + 0.25.
    assert (table[0]["bonus_mean"], table[0]["bonus_std"]) == ("0.75", "0.0")
    assert 0 < float(table[4]["bonus_mean"]) < 0.75
    final = load_latest(importable / "run/checkpoints").state["intrinsic"]
    assert int(final["counts"].sum()) == 500


def test_a_sweep(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module is found in the working directory of the sweep, or on PYTHONPATH."""
    grid = ["sweep", "gym:CartPole-v1", "--methods", "lab.visits:Visits", "--seeds", "1"]
    sizes = [f"{key}={value}" for key, value in SIZES.items() if key != "threads"]
    words = ["--set", *sizes, "intrinsic.cells=5", "intrinsic.scales=0.5,0.25"]
    swept = subprocess.run(
        [sys.executable, "-m", "emi", *grid, "--out", "out", *words],
        cwd=lab,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (swept.returncode, swept.stderr) == (0, "")
    assert swept.stdout.splitlines()[:-1] == [
        "gym:CartPole-v1 lab.visits:Visits seed 1: running",
        "gym:CartPole-v1 lab.visits:Visits seed 1: done",
        "1 run: 1 done",
    ]
    path = lab / "out/gym-CartPole-v1/lab.visits-Visits/seed1"
    # This process cannot import the module yet.
    trust = ["--trust", "lab.visits"]
    assert main(["resume", str(path), *trust]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"emi: cannot read {path / 'config.json'}: cannot import lab.visits")
    monkeypatch.syspath_prepend(lab)
    assert main(["resume", str(path), *trust]) == 0
    assert "; it was complete already\n" in capsys.readouterr().out

    config = resolve("gym:CartPole-v1", "lab.visits:Visits", SETTINGS | {"seed": 1})
    assert read_config(RunDirectory(path).config, ["lab.visits"]) == config
    assert config.intrinsic.scales == (0.5, 0.25)
    assert config.eta == preset("gym:CartPole-v1", "emi").eta
    run(config, lab / "straight")
    assert_same_run(lab / "straight", path)


def test_a_checkpoint_that_does_not_fit_the_class_any_more(
    importable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve("gym:CartPole-v1", "lab.visits:Visits", SIZES)
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "Trainer", Stopped)
        run(config, importable / "run")
    changed = sys.modules["lab.visits"].Visits
    original = changed.__init__

    @functools.wraps(original)
    def with_bias(self: Any, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **settings)
        self.bias = torch.nn.Parameter(torch.zeros(1))

    monkeypatch.setattr(changed, "__init__", with_bias)
    with pytest.raises(UserError, match=r"this version of emi or of the method: .*bias"):
        run(config, importable / "run", resume=True)


def test_settings_are_those_of_the_class(importable: Path) -> None:
    config = preset("gym:CartPole-v1", "lab.visits:Visits")
    assert (config.intrinsic.cells, config.intrinsic.scales) == (8, (1.0,))
    assert config.method == "lab.visits:Visits"


OPTIMISED = """
import torch

from emi import IntrinsicReward


class Scale(IntrinsicReward):
    \"\"\"Fits one number by an optimizer that is a plain attribute.\"\"\"

    def __init__(self, observation_space, action_space, seed=0):
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(()))
        self.adam = torch.optim.Adam([self.number], lr=0.1)

    @torch.no_grad()
    def reward(self, batch):
        return self.number.abs() + torch.as_tensor(batch.obs)[:, 0].abs()

    def learn(self, batch):
        self.adam.zero_grad()
        (self.number - torch.as_tensor(batch.obs).mean()).square().backward()
        self.adam.step()
        return {"scale/number": self.number.item()}


class Counting(Scale):
    \"\"\"Also counts batches in a plain attribute.\"\"\"

    batches = 0

    def learn(self, batch):
        self.batches += 1
        return super().learn(batch) | {"scale/batches": self.batches}
"""


def test_an_optimizer_that_is_a_plain_attribute_is_in_the_checkpoint(
    importable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (importable / "lab/scale.py").write_text(OPTIMISED)
    config = resolve("gym:CartPole-v1", "lab.scale:Scale", SIZES)
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "Trainer", Stopped)
        run(config, importable / "run")
    state = load_latest(importable / "run/checkpoints").state
    assert list(state["optimizers"]) == ["adam"]
    assert run(config, importable / "run", resume=True).complete
    run(config, importable / "straight")
    assert_same_run(importable / "straight", importable / "run")


def test_other_plain_attributes_that_change_are_named(importable: Path) -> None:
    (importable / "lab/scale.py").write_text(OPTIMISED)
    config = resolve("gym:CartPole-v1", "lab.scale:Counting", SIZES)
    with pytest.warns(UserWarning, match="Counting changed batches, which is not saved"):
        run(config, importable / "run")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("super().__init__()", "self.direction + 1"),  # while it is built
        ("def reward(self, batch):", "batch.next_obs.colour"),
        ("def learn(self, batch):", "torch.zeros(2) @ torch.zeros(3)"),
        ("def learn(self, batch):", "open('absent')"),
        ("def learn(self, batch):", "batch['row']"),  # emi raises it
    ],
)
@pytest.mark.usefixtures("importable")
def test_an_exception_of_the_method_is_reported_as_its_own(
    threads: int, where: str, line: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "lab/visits.py").write_text(MODULE.replace(where, f"{where}\n        {line}"))
    words = ["--steps", "200", "--set", "steps_per_iteration=100", "num_envs=2"]
    words += ["--threads", str(threads), "--out", str(lab / "out")]
    assert main(["train", "SparseHalfCheetah", "--method", "lab.visits:Visits", *words]) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("emi: the method 'lab.visits:Visits' raised ")
    assert "bug in emi" not in error
    first, at, *_ = error[error.index("Traceback") :].splitlines()
    assert first == "Traceback (most recent call last):"
    assert str(lab / "lab/visits.py") in at  # without the frames of emi above it
    assert line in error
