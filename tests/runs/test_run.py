"""Train, stop, resume: what a run writes, and that stopping changes no bit."""

import csv
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from test_checkpoint import same

from emi.agent.policy import PolicyConfig
from emi.envs.table import ENVIRONMENTS
from emi.errors import FAILED, NotFiniteError, UserError
from emi.intrinsic.emi import EMI
from emi.intrinsic.table import METHODS
from emi.program import install
from emi.runs import checkpoint, run_directory, tensorboard_events
from emi.runs import run as run_module
from emi.runs.checkpoint import load_latest
from emi.runs.metrics_file import COLUMNS
from emi.runs.progress import Progress
from emi.runs.run import run
from emi.runs.run_directory import RunDirectory
from emi.training.config import TrainConfig
from emi.training.presets import resolve
from emi.training.trainer import Report, Trainer

SIZES = {"steps_per_iteration": 100, "num_envs": 2, "threads": 1}
CONFIG = resolve("SparseHalfCheetah", settings={**SIZES, "steps": 1_000})  # ten iterations

# Settings with which the bonus is not zero after two iterations of 100 steps. A replay memory of
# 150 transitions wraps around.
SMALL_METHODS: dict[str, dict[str, Any]] = {
    "ex2": {"min_replay": 100, "updates": 9, "first_updates": 9, "replay_size": 150},
    "ae-simhash": {"ae_updates": 9, "ae_every": 2},
    "vime": {"min_replay": 100, "updates": 9, "replay_size": 150},
}


class FakeTrainer:
    """A trainer whose state is a random walk; `at` is called in the middle of each iteration."""

    at: Callable[[int], None] = staticmethod(lambda iteration: None)  # type: ignore[assignment]

    left_out = ()
    outside = None
    visits = None

    def __init__(self, config: TrainConfig) -> None:
        self.total_iterations = config.iterations
        self.iteration = 0
        self._size = config.steps_per_iteration
        self._rng = np.random.default_rng(config.seed)
        self.walk = torch.zeros(3, dtype=torch.float64)
        self.closed = False

    def iterate(self) -> Report:
        self.walk += torch.from_numpy(self._rng.standard_normal(3))
        FakeTrainer.at(self.iteration + 1)
        self.iteration += 1
        metrics = dict.fromkeys(COLUMNS[4:], 0.0) | {"fake/walk": float(self.walk[0])}
        return Report(self.iteration, self.iteration * self._size, metrics)

    def state_dict(self) -> dict[str, Any]:
        rng = self._rng.bit_generator.state
        return {"iteration": self.iteration, "rng": rng, "walk": self.walk}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration = state["iteration"]
        self._rng.bit_generator.state = state["rng"]
        self.walk.copy_(state["walk"])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTrainer]:
    """Replace the trainer by the fake one; without TensorBoard, which is slow."""
    monkeypatch.setattr(run_module, "Trainer", FakeTrainer)
    monkeypatch.setattr(run_module, "embedding_sample", lambda trainer: {"phi": trainer.walk})
    monkeypatch.setattr(tensorboard_events, "is_installed", lambda: False)
    monkeypatch.setattr(FakeTrainer, "at", staticmethod(lambda iteration: None))
    return FakeTrainer


def rows(path: Path) -> list[dict[str, str]]:
    """metrics.csv without the times, which differ between any two runs."""
    with (path / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")}
        for line in lines
    ]


def files(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*")}


def assert_same_run(a: Path, b: Path) -> None:
    """All tensors and plain values of the final checkpoint, and all rows, are equal."""
    assert rows(a) == rows(b)
    last_a, last_b = load_latest(a / "checkpoints"), load_latest(b / "checkpoints")
    assert last_a.iteration == last_b.iteration
    assert same(last_a.state, last_b.state)


class TestRun:
    def test_a_complete_run(self, tmp_path: Path, fake: type[FakeTrainer]) -> None:
        outcome = run(CONFIG, tmp_path / "run", command=["emi", "train", "SparseHalfCheetah"])
        assert outcome.complete
        assert outcome.stopped_by is None
        assert files(tmp_path / "run") - {".lock"} == {
            "config.json",
            "provenance.json",
            "metrics.csv",
            "embedding.safetensors",
            "checkpoints",
            *(f"checkpoints/{n}" for n in ("00000000", "00000010")),
            *(
                f"checkpoints/{n}/{name}"
                for n in ("00000000", "00000010")
                for name in ("manifest.json", "state.json", "tensors.safetensors")
            ),
        }
        table = rows(tmp_path / "run")
        assert [r["iteration"] for r in table] == [str(n) for n in range(1, 11)]
        assert [r["steps"] for r in table] == [str(100 * n) for n in range(1, 11)]
        with (tmp_path / "run" / "metrics.csv").open() as file:
            seconds = [float(line["seconds"]) for line in csv.DictReader(file)]
        assert seconds == sorted(seconds)

    def test_checkpoints_are_timed(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved: list[int] = []
        real = checkpoint.save

        def recorded(directory: Path, iteration: int, state: dict[str, Any]) -> Path:
            saved.append(iteration)
            return real(directory, iteration, state)

        monkeypatch.setattr(checkpoint, "save", recorded)
        now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: now)

        def half_a_minute(iteration: int) -> None:
            nonlocal now
            now += 30.0

        monkeypatch.setattr(fake, "at", staticmethod(half_a_minute))
        run(CONFIG, tmp_path / "run")
        assert list(dict.fromkeys(saved)) == [0, 2, 4, 6, 8, 10]

    def test_the_end_is_written_once(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A kill in a second write would leave a temporary file in a run that is complete."""
        saved, real = [], run_directory.write_embedding

        def recorded(directory: RunDirectory, sample: dict[str, torch.Tensor]) -> None:
            saved.append(checkpoint.latest_iteration(directory.checkpoints))
            real(directory, sample)

        monkeypatch.setattr(run_directory, "write_embedding", recorded)
        run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0)
        assert saved == [9]

    def test_seconds_continue_after_a_resume(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: now)

        def two_seconds(iteration: int) -> None:
            nonlocal now
            now += 2.0
            if iteration == 5 and now < 2000:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(fake, "at", staticmethod(two_seconds))
        run(CONFIG, tmp_path / "run")
        now = 5000.0
        run(CONFIG, tmp_path / "run", resume=True)
        with (tmp_path / "run" / "metrics.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert [float(line["seconds"]) for line in lines] == [2.0 * n for n in range(1, 11)]
        assert {float(line["steps_per_second"]) for line in lines} == {50.0}

    def test_a_complete_run_is_left_as_it_is(self, tmp_path: Path, fake: type[FakeTrainer]) -> None:
        run(CONFIG, tmp_path / "run")
        before = {p: (tmp_path / "run" / p).stat().st_mtime_ns for p in files(tmp_path / "run")}
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        after = {p: (tmp_path / "run" / p).stat().st_mtime_ns for p in files(tmp_path / "run")}
        assert before == after

    def test_a_refused_run_writes_nothing(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        with pytest.raises(UserError, match=r"holds other files \(notes\.txt\)"):
            run(CONFIG, tmp_path / "full")
        with pytest.raises(UserError, match="holds no run"):
            run(CONFIG, tmp_path / "new", resume=True)

        def refuse(config: TrainConfig) -> None:
            raise UserError("this space is not supported")

        monkeypatch.setattr(run_module, "Trainer", refuse)
        with pytest.raises(UserError, match=r"^this space is not supported$"):
            run(CONFIG, tmp_path / "new")
        monkeypatch.setattr(run_module, "Trainer", Trainer)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "mujoco", None)
            home = ENVIRONMENTS["SparseHalfCheetah"].home.partition(":")[0]
            without.delitem(sys.modules, f"emi.envs.{home}", raising=False)
            with pytest.raises(UserError, match=re.escape(install("mujoco"))):
                run(CONFIG, tmp_path / "new")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(UserError, match="no CUDA device"):
            run(dataclasses.replace(CONFIG, device="cuda"), tmp_path / "new")
        assert files(tmp_path) == {"full", "full/notes.txt"}

    def test_resume_of_another_run(self, tmp_path: Path, fake: type[FakeTrainer]) -> None:
        run(CONFIG, tmp_path / "run")
        with pytest.raises(UserError, match=r"holds another run \(seed differs\)"):
            run(dataclasses.replace(CONFIG, seed=1), tmp_path / "run", resume=True)

    def test_two_processes_cannot_write_one_run(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused: list[int] = []

        def intrude(iteration: int) -> None:
            with pytest.raises(UserError, match="being written by another process"):
                run(CONFIG, tmp_path / "run", resume=True)
            refused.append(iteration)

        monkeypatch.setattr(fake, "at", staticmethod(intrude))
        assert run(CONFIG, tmp_path / "run").complete
        assert refused == list(range(1, 11))
        assert len(rows(tmp_path / "run")) == 10


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
    @pytest.mark.parametrize("iteration", [1, 5, 9])
    def test_the_iteration_is_finished_and_kept(
        self,
        tmp_path: Path,
        fake: type[FakeTrainer],
        monkeypatch: pytest.MonkeyPatch,
        number: signal.Signals,
        iteration: int,
    ) -> None:
        run(CONFIG, tmp_path / "straight")
        # A shell's background job inherits an ignored SIGINT; here it must count.
        before = signal.signal(number, signal.SIG_DFL)
        monkeypatch.setattr(
            fake,
            "at",
            staticmethod(lambda i: os.kill(os.getpid(), number) if i == iteration else 0),
        )
        try:
            outcome = run(CONFIG, tmp_path / "run")
            assert signal.getsignal(number) == signal.SIG_DFL  # handlers do not outlive the run
        finally:
            signal.signal(number, before)
        assert (outcome.iteration, outcome.stopped_by) == (iteration, number)
        assert not outcome.complete
        assert load_latest(tmp_path / "run" / "checkpoints").iteration == iteration
        assert len(rows(tmp_path / "run")) == iteration
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        assert_same_run(tmp_path / "straight", tmp_path / "run")
        starts = json.loads((tmp_path / "run" / "provenance.json").read_text())["starts"]
        assert [start["iteration"] for start in starts] == [0, iteration]

    def test_an_ignored_signal_stays_ignored(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        kill = staticmethod(lambda i: os.kill(os.getpid(), signal.SIGHUP))
        monkeypatch.setattr(fake, "at", kill)
        try:
            assert run(CONFIG, tmp_path / "run").complete
        finally:
            signal.signal(signal.SIGHUP, before)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    @pytest.mark.parametrize(
        "moment", ["trainer", "config", "provenance", "first", "last", "embedding", "close"]
    )
    def test_a_signal_outside_of_the_iterations(
        self,
        tmp_path: Path,
        fake: type[FakeTrainer],
        monkeypatch: pytest.MonkeyPatch,
        number: signal.Signals,
        moment: str,
    ) -> None:
        """In the middle of everything that a run does before and after them."""
        run(CONFIG, tmp_path / "straight")
        sent: list[str] = []

        def sending(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                if name == moment and not sent:
                    sent.append(name)
                    os.kill(os.getpid(), number)
                return real(*args)

            return call

        def saving(directory: Path, iteration: int, state: dict[str, Any]) -> Path:
            name = {0: "first", 10: "last"}.get(iteration, "between")
            return sending(name, save)(directory, iteration, state)

        save = checkpoint.save
        monkeypatch.setattr(checkpoint, "save", saving)
        monkeypatch.setattr(fake, "__init__", sending("trainer", fake.__init__))
        monkeypatch.setattr(fake, "close", sending("close", fake.close))
        for name, function in {
            "config": "write_config",
            "provenance": "add_start",
            "embedding": "write_embedding",
        }.items():
            real = getattr(run_directory, function)
            monkeypatch.setattr(run_directory, function, sending(name, real))
        before = signal.signal(number, signal.SIG_DFL)
        try:
            outcome = run(CONFIG, tmp_path / "run")
        finally:
            signal.signal(number, before)
        assert sent == [moment]
        at_the_end = moment in ("last", "embedding", "close")
        assert outcome.complete == at_the_end
        assert outcome.iteration == (10 if at_the_end else 0)
        if moment != "close":  # then the outcome is known already
            assert outcome.stopped_by == number
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    def test_a_signal_while_the_terminal_is_gone(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SIGHUP: the display cannot be written to, and the run is stopped as usual."""

        class Gone(Progress):
            def stopping(self) -> None:
                raise OSError(5, "Input/output error")

        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        kill = staticmethod(lambda i: os.kill(os.getpid(), signal.SIGHUP) if i == 3 else 0)
        monkeypatch.setattr(fake, "at", kill)
        try:
            outcome = run(CONFIG, tmp_path / "run", progress=Gone())
        finally:
            signal.signal(signal.SIGHUP, before)
        assert (outcome.iteration, outcome.stopped_by) == (3, signal.SIGHUP)
        assert load_latest(tmp_path / "run" / "checkpoints").iteration == 3

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_second_signal_stops_at_once(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def twice(iteration: int) -> None:
            if iteration == 4:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(fake, "at", staticmethod(twice))
        status = forked(lambda: run(CONFIG, tmp_path / "run"))
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert load_latest(tmp_path / "run" / "checkpoints").iteration == 0
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        assert len(rows(tmp_path / "run")) == 10

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_sigkill_at_any_moment(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = dataclasses.replace(CONFIG, steps=5_000)
        run(config, tmp_path / "straight")
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: time.sleep(0.002)))
        chance = random.Random(1)
        path, kills = tmp_path / "run", 0
        while (done := checkpoint.latest_iteration(path / "checkpoints") or 0) < 50:
            resume = (path / "config.json").exists()
            status = forked(
                lambda resume=resume: run(config, path, resume=resume, checkpoint_seconds=0.0),
                path / "metrics.csv",
                kill_at_row=done + chance.randint(2, 12),  # after row 50 it is not killed
                kill_after=chance.uniform(0.0, 0.02),
            )
            kills += os.WIFSIGNALED(status)
        assert kills > 0  # how many depends on the speed of the machine
        assert_same_run(tmp_path / "straight", path)


def forked(
    work: Callable[[], object],
    metrics: Path = Path("none"),
    kill_at_row: int = sys.maxsize,
    kill_after: float = 0.0,
) -> int:
    """Do `work` in a forked child, faster than a new interpreter; return its wait status.

    The child is killed `kill_after` seconds after it has written the row `kill_at_row`.
    """
    before = metrics.read_bytes() if metrics.exists() else b""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        now = metrics.read_bytes() if metrics.exists() else b""
        if now != before and now.count(b"\n") > kill_at_row:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.002)
    return os.waitpid(child, 0)[1]


class TestFailures:
    def test_not_finite_keeps_the_last_good_checkpoint(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def spoil(iteration: int) -> None:
            if iteration == 7:
                raise NotFiniteError("bonus became NaN in iteration 7")

        monkeypatch.setattr(fake, "at", staticmethod(spoil))
        with pytest.raises(NotFiniteError, match=r"^bonus became NaN in iteration 7$"):
            run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0)
        loaded = load_latest(tmp_path / "run" / "checkpoints")
        assert (loaded.iteration, loaded.warnings) == (6, ())
        assert len(rows(tmp_path / "run")) == 6

    @pytest.mark.parametrize("part", ["checkpoint", "metrics", "embedding"])
    def test_a_full_disk_is_one_sentence_and_the_run_can_be_resumed(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        full = True

        def guard(real: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                if full and when(*args):
                    raise OSError(28, "No space left on device")
                return real(*args)

            return call

        if part == "checkpoint":
            late = guard(checkpoint.save, lambda directory, iteration, state: iteration >= 4)
            monkeypatch.setattr(checkpoint, "save", late)
        elif part == "metrics":
            append = run_module.MetricsFile.append
            late = guard(append, lambda file, row: row["iteration"] >= 4)
            monkeypatch.setattr(run_module.MetricsFile, "append", late)
        else:
            always = guard(run_directory.write_embedding, lambda *args: True)
            monkeypatch.setattr(run_directory, "write_embedding", always)
        with pytest.raises(UserError) as caught:
            run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0)
        assert caught.value.exit_code == FAILED
        assert str(caught.value) == (
            f"cannot write in {tmp_path / 'run'}: No space left on device:"
            f" when that is fixed, resume with: emi resume {tmp_path / 'run'}"
        )
        full = False
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        run(CONFIG, tmp_path / "straight")
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    @pytest.mark.parametrize("what", ["run", "run/metrics.csv", "run/.lock", "run/tensorboard"])
    @pytest.mark.parametrize("how", ["deleted", "renamed", "replaced"])
    def test_a_lost_directory_stops_the_run_within_an_iteration(
        self,
        tmp_path: Path,
        fake: type[FakeTrainer],
        monkeypatch: pytest.MonkeyPatch,
        what: str,
        how: str,
    ) -> None:
        monkeypatch.setattr(tensorboard_events, "is_installed", lambda: True)
        done: list[int] = []

        def lose(iteration: int) -> None:
            done.append(iteration)
            if iteration == 4:
                path, aside = tmp_path / what, tmp_path / "aside"
                path.rename(aside)
                if how == "replaced":
                    (shutil.copytree if aside.is_dir() else shutil.copy)(aside, path)
                if how == "deleted":
                    shutil.rmtree(aside) if aside.is_dir() else aside.unlink()

        monkeypatch.setattr(fake, "at", staticmethod(lose))
        with pytest.raises(UserError) as caught:
            run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0)
        assert done == [1, 2, 3, 4]
        assert caught.value.exit_code == FAILED
        start, end = (
            f"cannot write in {tmp_path / 'run'}: ",
            (
                " was deleted, moved or replaced during the run: when that is fixed, resume with:"
                f" emi resume {tmp_path / 'run'}"
            ),
        )
        assert str(caught.value).startswith(start)
        assert str(caught.value).endswith(end)
        # Nothing is written in the old place.
        assert (tmp_path / "run").exists() == (what != "run" or how == "replaced")
        if how == "deleted":
            return
        kept = tmp_path / what
        if kept.exists():
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        (tmp_path / "aside").rename(kept)
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        assert run(CONFIG, tmp_path / "run", resume=True).complete
        run(CONFIG, tmp_path / "straight")
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    def test_lost_checkpoints_are_written_again(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state is still in memory: the run need not stop."""

        def lose(iteration: int) -> None:
            if iteration == 4:
                shutil.rmtree(tmp_path / "run/checkpoints")

        monkeypatch.setattr(fake, "at", staticmethod(lose))
        assert run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0).complete
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        run(CONFIG, tmp_path / "straight")
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    def test_a_directory_that_cannot_be_made(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(UserError, match="denied: make it writable or choose another --out"):
            run(CONFIG, tmp_path / "run")

    def test_a_damaged_checkpoint_costs_only_time(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(CONFIG, tmp_path / "straight")
        monkeypatch.setattr(
            fake,
            "at",
            staticmethod(lambda i: os.kill(os.getpid(), signal.SIGTERM) if i == 6 else 0),
        )
        run(CONFIG, tmp_path / "run", checkpoint_seconds=0.0)
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        (tmp_path / "run" / "checkpoints" / "00000006" / "state.json").write_text("{}")
        with pytest.warns(UserWarning, match="00000006 is damaged .*: using 00000005 instead"):
            run(CONFIG, tmp_path / "run", resume=True)
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    def test_no_checkpoint_left(self, tmp_path: Path, fake: type[FakeTrainer]) -> None:
        run(CONFIG, tmp_path / "run")
        before = (tmp_path / "run" / "metrics.csv").read_text()
        for folder in (tmp_path / "run" / "checkpoints").iterdir():
            folder.rename(tmp_path / folder.name)
        with pytest.raises(UserError, match="there is no checkpoint in"):
            run(CONFIG, tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "metrics.csv").read_text() == before

    def test_a_checkpoint_of_something_else(self, tmp_path: Path, fake: type[FakeTrainer]) -> None:
        directory = RunDirectory(tmp_path)
        run_directory.write_config(directory, CONFIG)
        checkpoint.save(directory.checkpoints, 3, {"iteration": 3})
        with pytest.raises(UserError, match="does not fit this version of emi"):
            run(CONFIG, tmp_path, resume=True)


# What an earlier version of emi wrote: settings that were added later are missing.
OLD_CONFIG = """{
  "env": "SparseHalfCheetah",
  "method": "emi",
  "seed": 4,
  "steps": 1000,
  "steps_per_iteration": 100,
  "num_envs": 2,
  "eta": 0.001,
  "discount": 0.995,
  "threads": 1,
  "intrinsic": {"embedding_dim": 2, "lambda_error": 5.0, "lambda_info": 1.0},
  "policy": {"hidden": [64, 32]},
  "value": {"kind": "linear"},
  "trpo": {"max_kl": 0.02}
}
"""
OLD_PROVENANCE = """{
  "starts": [
    {"time": "2026-11-18T01:23:52+00:00", "iteration": 0, "command": "emi train", "commit": null,
     "modified": null, "versions": {"emi": "0.0.9"}, "machine": {"cpu": "AMD", "cores": 2}}
  ]
}
"""
OLD_METRICS = """\
iteration,steps,seconds,steps_per_second,episodes,return_mean,return_std,return_max,bonus_mean,\
bonus_std,kl,entropy,explained_variance,fake/old
1,100,2.0,50.0,0,nan,nan,nan,0.0,0.0,0.0,0.0,0.0,0.5
2,200,4.0,50.0,0,nan,nan,nan,0.0,0.0,0.0,0.0,0.0,0.25
3,300,6.0,50.0,0,nan,nan,nan,0.0,0.0,0.0,0.0,0.0,0.125
"""


def test_a_run_of_an_older_version_is_resumed(tmp_path: Path, fake: type[FakeTrainer]) -> None:
    """Fewer settings, no `changed`, other columns; killed after row 3, with checkpoint 2."""
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.config.write_text(OLD_CONFIG)
    directory.provenance.write_text(OLD_PROVENANCE)
    directory.metrics.write_text(OLD_METRICS)
    config = run_directory.read_config(directory.config)
    assert (config.seed, config.trpo.max_kl, config.value.kind) == (4, 0.02, "linear")
    # The defaults of what is missing.
    assert (config.clip_rewards, config.bootstrap_timeouts, config.gae_lambda) == (False, False, 1)
    assert (config.device, config.trpo.cg_iterations) == ("cpu", 10)
    old = fake(config)
    old.iterate(), old.iterate()
    checkpoint.save(directory.checkpoints, 2, old.state_dict())

    assert run(config, directory.path, resume=True).complete
    run(config, tmp_path / "straight")
    resumed, straight = (load_latest(tmp_path / n / "checkpoints") for n in ("run", "straight"))
    assert resumed.iteration == straight.iteration == 10
    assert same(resumed.state, straight.state)
    table = rows(directory.path)
    assert [line["iteration"] for line in table] == [str(n) for n in range(1, 11)]
    assert [line["fake/old"] for line in table] == ["0.5", "0.25", *["nan"] * 8]
    walk = [line["fake/walk"] for line in rows(tmp_path / "straight")]
    assert [line["fake/walk"] for line in table] == ["nan", "nan", *walk[2:]]
    assert list(table[0])[-2:] == ["fake/old", "fake/walk"]
    record = json.loads(directory.provenance.read_text())
    assert list(record) == ["starts"]
    assert [start["iteration"] for start in record["starts"]] == [0, 2]
    assert directory.config.read_text() == OLD_CONFIG


def test_changed_settings_of_a_run_from_python(
    tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(iteration: int) -> None:
        if iteration == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(fake, "at", staticmethod(stop))
    config = dataclasses.replace(CONFIG, discount=0.9, policy=PolicyConfig(hidden=(8,)))
    assert not run(config, tmp_path / "run").complete
    file = tmp_path / "run/provenance.json"
    before = json.loads(file.read_text())["changed"]
    expected = {"discount", "num_envs", "policy.hidden", "steps", "steps_per_iteration"}
    assert set(before) - {"threads"} == expected  # the preset uses all cores
    monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
    monkeypatch.setattr(run_directory, "changed_settings", lambda config: ["of a later preset"])
    assert run(config, tmp_path / "run", resume=True).complete
    after = json.loads(file.read_text())
    assert after["changed"] == before
    assert [start["iteration"] for start in after["starts"]] == [0, 5]


class TestTensorBoard:
    def test_events_of_a_resumed_run_have_each_step_once(
        self, tmp_path: Path, fake: type[FakeTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        monkeypatch.setattr(tensorboard_events, "is_installed", lambda: True)

        def spoil(iteration: int) -> None:
            if iteration == 7:
                raise NotFiniteError("x")

        monkeypatch.setattr(fake, "at", staticmethod(spoil))
        with pytest.raises(NotFiniteError):
            run(CONFIG, tmp_path / "run")  # rows 1 to 6 are written, the checkpoint is of 0
        monkeypatch.setattr(fake, "at", staticmethod(lambda i: None))
        run(CONFIG, tmp_path / "run", resume=True)
        events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
        events.Reload()
        assert "fake/walk" in events.Tags()["scalars"]
        assert [e.step for e in events.Scalars("run/kl")] == [100 * n for n in range(1, 11)]

    def test_a_note_if_tensorboard_is_not_installed(
        self, tmp_path: Path, fake: type[FakeTrainer]
    ) -> None:
        progress = Noting()
        run(WHOLE, tmp_path / "run", progress=progress)
        assert progress.notes == [f"no TensorBoard events are written: {install('train')} for them"]


class Noting(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


# As CONFIG, with an episode of 500 steps in every iteration.
WHOLE = dataclasses.replace(CONFIG, steps=500, steps_per_iteration=500, num_envs=1)


def test_a_note_if_an_iteration_is_shorter_than_an_episode(
    tmp_path: Path, fake: type[FakeTrainer]
) -> None:
    progress = Noting()
    run(CONFIG, tmp_path / "run", progress=progress)
    assert progress.notes[-1] == (
        "each environment takes 50 steps in an iteration, but an episode can have 500: episodes "
        "that are cut off do not count in the return; to include them, raise steps_per_iteration "
        "or lower num_envs (--set)"
    )


class TestRealTrainer:
    def test_ten_iterations_equal_a_kill_and_a_resume(self, tmp_path: Path) -> None:
        program = f"""
import os, signal
from emi.runs import run as run_module
from emi.training.presets import resolve
from emi.training.trainer import Trainer
config = resolve("SparseHalfCheetah", settings={dict(SIZES, steps=1_000)})
class Doomed(Trainer):
    def iterate(self):
        if self.iteration == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().iterate()
run_module.Trainer = Doomed
run_module.run(config, {str(tmp_path / "run")!r}, checkpoint_seconds=0.0)
"""
        killed = subprocess.run([sys.executable, "-c", program], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert load_latest(tmp_path / "run" / "checkpoints").iteration == 6
        run(CONFIG, tmp_path / "run", resume=True)
        run(CONFIG, tmp_path / "straight")
        assert len(rows(tmp_path / "run")) == 10
        assert_same_run(tmp_path / "straight", tmp_path / "run")
        assert (tmp_path / "run" / "embedding.safetensors").read_bytes() == (
            tmp_path / "straight" / "embedding.safetensors"
        ).read_bytes()

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("env", ["SparseHalfCheetah", "gym:CartPole-v1"])
    def test_a_checkpoint_holds_all_that_matters(
        self, tmp_path: Path, env: str, method: str
    ) -> None:
        settings = {**SIZES, "steps": 400}
        if method in SMALL_METHODS:
            settings["intrinsic"] = SMALL_METHODS[method]
        config = resolve(env, method, settings)
        straight = Trainer(config)
        for _ in range(2):
            straight.iterate()
        checkpoint.save(tmp_path, 2, straight.state_dict())
        resumed = Trainer(config)
        resumed.load_state_dict(load_latest(tmp_path).state)
        for _ in range(2):
            metrics = straight.iterate().metrics
            assert same(metrics, resumed.iterate().metrics)
            assert (metrics["bonus_std"] > 0) == (method != "trpo"), "the bonus is still zero"
        assert same(straight.state_dict(), resumed.state_dict())
        straight.close()
        resumed.close()


def test_visited_states_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    """The file of a run that was stopped and resumed is that of an undisturbed one."""
    config = resolve("NoisyTV", "rnd", {**SIZES, "steps": 400, "coverage": True})
    assert run(config, tmp_path / "whole").complete
    short = dataclasses.replace(config, steps=200)
    assert run(short, tmp_path / "part").complete
    settings = json.loads((tmp_path / "part" / "config.json").read_text())
    (tmp_path / "part" / "config.json").write_text(json.dumps(settings | {"steps": 400}))
    before = (tmp_path / "part" / "visits.safetensors").read_bytes()
    assert run(config, tmp_path / "part", resume=True).complete
    after = (tmp_path / "part" / "visits.safetensors").read_bytes()
    assert before != after == (tmp_path / "whole" / "visits.safetensors").read_bytes()
    assert not (tmp_path / "whole" / "embedding.safetensors").exists()


def test_images_are_embedded_by_the_last_embedding(tmp_path: Path) -> None:
    config = resolve("BoxImage", "emi", {**SIZES, "steps": 200, "coverage": True})
    assert run(config, tmp_path / "run").complete
    arrays = load_file(tmp_path / "run" / "visits.safetensors")
    with run_module.restored(tmp_path / "run") as trainer:
        assert isinstance(trainer.intrinsic, EMI)
        phi = trainer.intrinsic.embed_state(arrays["states"])
    np.testing.assert_array_equal(arrays["phi"], phi.numpy())
    assert arrays["frames"][-1] > 1
    assert arrays["visits"].sum() == 200
