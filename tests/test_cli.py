"""The command line: exit codes, one-sentence errors, and no files from wrong input."""

import csv
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch

import emi
from emi.cli import _one_setting_each, _parsers, main
from emi.envs.table import ENVIRONMENTS, FAMILIES
from emi.errors import NotFiniteError
from emi.intrinsic.table import METHODS as intrinsic_methods
from emi.runs import run as run_module
from emi.runs.checkpoint import load_latest

SMALL = ["--threads", "1", "--set", "steps_per_iteration=100", "num_envs=2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one sentence that a failing command prints."""
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("emi: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err.removeprefix("emi: ").rstrip("\n")


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["trian"], "unknown command 'trian': did you mean 'train'?"),
            (["xyz"], "unknown command 'xyz': see 'emi --help'"),
            (["--verison"], "unknown option '--verison': did you mean '--version'?"),
            (["train"], "name an environment: see 'emi envs'"),
            (["train", "SparseHalfCheetah", "--sed", "3"], "did you mean '--seed'?"),
            (["train", "SparseHalfCheetah", "--sed=3"], "unknown option '--sed=3': did you mean"),
            (["train", "SparseHalfCheetah", "--metho", "x"], "did you mean '--method'?"),
            (["train", "SparseHalfCheetah", "more"], "unexpected argument 'more'"),
            (["train", "SparseHalfCheetah", "--seed"], "argument --seed: expected one argument"),
            (["train", "SparseHalfCheetah", "--seed", "x"], "'x' is not a whole number"),
            (["train", "SparseHalfCheetah", "--seed", "1.5"], "'1.5' is not a whole number"),
            (["train", "SparseHalfCheetah", "--seed", "-1"], "seed must be zero or more"),
            (["train", "NoSuchEnv"], "unknown environment 'NoSuchEnv'"),
            (["train", "SparseHalfCheeta"], "did you mean 'SparseHalfCheetah'?"),
            (["train", "gym:NoSuchEnv-v0"], "NoSuchEnv"),
            (["train", "SparseHalfCheetah", "--method", "emo"], "did you mean 'emi'?"),
            (["train", "SparseHalfCheetah", "--steps", "0"], "steps must be positive, got 0"),
            (["train", "SparseHalfCheetah", "--steps", "1e999"], "is not a whole number"),
            (["train", "SparseHalfCheetah", "--threads", "0"], "threads must be positive"),
            (["train", "SparseHalfCheetah", "--device", "tpu"], "device must be one of cpu, cuda"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_kl=-1"], "trpo.max_kl must be posi"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_kl=nan"], "trpo.max_kl must be"),
            (["train", "SparseHalfCheetah", "--set", "nonsense=1"], "unknown setting 'nonsense'"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_lk=1"], "did you mean 'trpo.max_kl"),
            (["train", "SparseHalfCheetah", "--set", "eta"], "--set takes KEY=VALUE, got 'eta'"),
            (
                ["train", "SparseHalfCheetah", "--set", "method=rnd"],
                "method cannot be changed with --set",
            ),
            (["train", "--config", "nowhere.json"], "there is no file nowhere.json"),
            (["train", "--config", "full/notes.txt"], "full/notes.txt is not JSON: "),
            (["train", "--config", "full"], "full is a directory, not a file: remove it"),
            (["train", "SparseHalfCheetah", "--out", "full"], "full holds other files (notes.txt)"),
            (["train", "SparseHalfCheetah", "--out", "full/notes.txt"], "is a file"),
            (["train", "SparseHalfCheetah", "--out", "full/notes.txt/run"], "not a directory"),
            (["resume"], "the following arguments are required: DIR"),
            (["resume", "nowhere"], "nowhere holds no run"),
            (["resume", "full"], "full holds no run"),
            (["watch", "nowhere"], "nowhere holds no run"),
            (["watch", "full", "--out", "film.avi"], "a video is .mp4 or .gif"),
            (["sweep"], "the following arguments are required: ENV"),
            (["sweep", "SparseHalfCheetah", "--seeds", "4-0"], "a range in --seeds must ascend"),
            (["sweep", "SparseHalfCheetah", "--methods", "emi,rdn"], "unknown method 'rdn'"),
            (["sweep", "SparseHalfCheetah", "NoSuchEnv"], "unknown environment 'NoSuchEnv'"),
            (["sweep", "SparseHalfCheetah", "--jobs", "0"], "--jobs must be positive"),
            (["sweep", "SparseHalfCheetah", "--set", "eta=x"], "eta must be a number, got 'x'"),
            (["doctor", "now"], "unexpected argument 'now'"),
            (["train", "SparseHalfCheetah", "--steps", "2.5"], "'2.5' is not a whole number"),
            (["train", "SparseHalfCheetah", "--steps", "k"], "'k' is not a whole number"),
            (["train", "SparseHalfCheetah", "--set", "BoxImage"], "--set takes KEY=VALUE, got 'B"),
            (["train", "SparseHalfCheetah", "--out", "x" * 300], "file name too long"),
            (["train", "x" * 300], "unknown environment 'xxx"),
            (
                ["train", "gym:" + "x" * 300],
                "env must be a name of at most 200 letters, got 'gym:xxx",
            ),
            (["train", "SparseHalfCheetah", "--method", "x" * 300], "unknown method 'xxx"),
            (["train", "SparseHalfCheetah", "--method", "x" * 300 + ":X"], "cannot import xxx"),
            (["resume", "x" * 300], "File name too long"),
            (["watch", "x" * 300], "File name too long"),
            (["report", "x" * 300], "file name too long"),
            (["sweep", "SparseHalfCheetah", "--out", "x" * 300], "file name too long"),
            (["train", "SparseHalfCheetah", "--out", "a\udcff"], r"'a\udcff' is not UTF-8: choose"),
            (["report", "a\udcff"], r"'a\udcff' is not UTF-8: choose another name"),
            (["train", "a\udcff"], r"unknown environment 'a\udcff'"),
            (["train", "SparseHalfCheetah", "--method", "a\udcff:X"], "cannot import a"),
        ],
    )
    def test_one_sentence_code_2_nothing_written(
        self, here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
    ) -> None:
        (here / "full").mkdir()
        (here / "full" / "notes.txt").write_text("mine")
        assert sentence in complaint(words, capsys)
        assert {str(p.relative_to(here)) for p in here.rglob("*")} == {"full", "full/notes.txt"}
        assert (here / "full" / "notes.txt").read_text() == "mine"

    def test_a_directory_that_holds_a_run(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", *SMALL, "--out", "run"]
        assert main([*words, "--steps", "200"]) == 0
        capsys.readouterr()
        before = {p: p.stat().st_mtime_ns for p in here.rglob("*")}
        assert complaint([*words, "--steps", "200"], capsys) == (
            "run holds this run, complete: choose another --out"
        )
        assert complaint([*words, "--steps", "300"], capsys) == (
            "run holds another run (steps differs): choose another --out"
        )
        newest = here / "run" / "checkpoints" / "00000002"
        newest.rename(here / "aside")
        said = complaint([*words, "--steps", "200"], capsys)
        assert said.startswith("run holds this run, stopped at iteration 0 of 2: ")
        assert said.endswith(": emi resume run")
        (here / "aside").rename(newest)
        after = {p: p.stat().st_mtime_ns for p in here.rglob("*")}
        before.pop(newest.parent), after.pop(newest.parent)
        assert before == after

    def test_a_bug_is_one_sentence_too(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: object, **kwargs: object) -> None:
            raise ZeroDivisionError("division\nby zero")

        monkeypatch.setattr(run_module, "run", broken)
        assert complaint(["train", "SparseHalfCheetah"], capsys, code=1) == (
            "this is a bug in emi:"
            " ZeroDivisionError: division by zero (set EMI_TRACEBACK=1 to see where)"
        )
        monkeypatch.setenv("EMI_TRACEBACK", "1")
        with pytest.raises(ZeroDivisionError):
            main(["train", "SparseHalfCheetah"])

    @pytest.mark.parametrize(
        ("error", "code", "sentence"),
        [
            (
                PermissionError(13, "Permission denied", "/etc/x"),
                2,
                "/etc/x: permission denied: fix that or choose another path",
            ),
            (
                FileExistsError(17, "File exists", Path("README.md")),
                2,
                "README.md: file exists: fix that or choose another path",
            ),
            (
                OSError(28, "No space left on device"),
                1,
                "cannot write: no space left on device: fix that and run this again",
            ),
            (
                FileNotFoundError(2, "No such file or directory", "x"),
                1,
                "this is a bug in emi: FileNotFoundError:"
                " [Errno 2] No such file or directory: 'x' (set EMI_TRACEBACK=1 to see where)",
            ),
        ],
    )
    def test_an_error_of_a_path_or_a_disk(
        self,
        here: Path,
        error: OSError,
        code: int,
        sentence: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr("emi.runs.run_directory.require_free", refuse)
        assert complaint(["train", "SparseHalfCheetah"], capsys, code) == sentence

    def test_not_finite_is_one_sentence(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def spoil(trainer: object) -> None:
            raise NotFiniteError("bonus became NaN in iteration 1")

        monkeypatch.setattr("emi.training.trainer.Trainer.iterate", spoil)
        assert main(["train", "SparseHalfCheetah", *SMALL, "--steps", "200", "--out", "run"]) == 1
        assert capsys.readouterr().err == "emi: bonus became NaN in iteration 1\n"
        assert load_latest(Path("run/checkpoints")).iteration == 0


class TestTrain:
    def test_a_run_from_start_to_end(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "SparseHalfCheetah", *SMALL, "--steps", "3e2"]) == 0
        path = here / "runs" / "SparseHalfCheetah-emi-seed0"
        note, *lines = capsys.readouterr().out.splitlines()
        assert note.startswith("each environment takes 50 steps in an iteration")
        assert lines[0] == "SparseHalfCheetah emi seed 0: 3 iterations, from 0"
        assert lines[1].startswith("iteration 1/3  100 steps  ")
        assert lines[-5].startswith("complete: 3 iterations, 300 steps in 0:")
        assert lines[-4:] == [
            "return:   none, because no episode has ended",
            "run:      runs/SparseHalfCheetah-emi-seed0",
            "watch:    emi watch runs/SparseHalfCheetah-emi-seed0",
            "report:   emi report runs/SparseHalfCheetah-emi-seed0",
        ]
        with (path / "metrics.csv").open() as file:
            table = list(csv.DictReader(file))
        assert list(table[0])[:13] == [
            *("iteration", "steps", "seconds", "steps_per_second", "episodes", "return_mean"),
            *("return_std", "return_max", "bonus_mean", "bonus_std", "kl", "entropy"),
            "explained_variance",
        ]
        assert any(name.startswith("emi/") for name in table[0])
        assert [row["steps"] for row in table] == ["100", "200", "300"]
        (start,) = json.loads((path / "provenance.json").read_text())["starts"]
        assert start["command"] == (
            "emi train SparseHalfCheetah --threads 1 --set steps_per_iteration=100 num_envs=2"
            " --steps 3e2"
        )
        assert main(["resume", str(path)]) == 0
        first, *others = capsys.readouterr().out.splitlines()
        assert first.startswith("complete: 3 iterations, 300 steps in 0:")
        assert first.endswith("; it was complete already")
        assert others[1] == f"run:      {path}"

    def test_train_resumes_the_same_run_only(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", "--out", "run", "--resume"]
        words += ["--threads", "1", "--steps", "200", "--set", "steps_per_iteration=100"]
        assert main([*words, "num_envs=2"]) == 0  # there is no run yet: it starts
        assert main([*words, "num_envs=2"]) == 0
        said = capsys.readouterr().out
        assert said.count("complete: 2 iterations, 200 steps in ") == 2
        assert said.count("; it was complete already\n") == 1
        assert said.count("2 iterations, from 0") == 1
        assert main([*words, "num_envs=1"]) == 2
        assert "run holds another run (num_envs differs)" in capsys.readouterr().err

    def test_watch_passes_its_options_on(
        self, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[Any, ...]] = []

        def watch(
            directory: Path,
            out: Path,
            *,
            seed: int,
            deterministic: bool,
            trusted: list[str],
            show: Any,
        ) -> Any:
            show("7 steps")
            asked.append((directory, out, seed, deterministic, trusted))
            return SimpleNamespace(total_reward=2.5, steps=7)

        monkeypatch.setattr("emi.runs.watch.watch", watch)
        trust = ["--trust", "a.b,c"]
        assert main(["watch", "d"]) == 0
        assert main(["watch", "d", "--seed", "3", "--deterministic", "--out", "a.gif", *trust]) == 0
        assert asked == [
            (Path("d"), Path("d/watch.mp4"), 0, False, [""]),
            (Path("d"), Path("a.gif"), 3, True, ["a.b", "c"]),
        ]
        said = capsys.readouterr().out.splitlines()
        assert said == ["return 2.5 in 7 steps: d/watch.mp4", "return 2.5 in 7 steps: a.gif"]

    def test_set_may_be_repeated(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["--set", "eta=0.5", "discount=0.9", "--seed", "3", "--set", "trpo.max_kl=0.02"]
        assert main(["train", "SparseHalfCheetah", *words, "--print-config"]) == 0
        config = json.loads(capsys.readouterr().out)
        assert (config["eta"], config["discount"], config["seed"]) == (0.5, 0.9, 3)
        assert config["trpo"]["max_kl"] == 0.02
        assert not any(here.iterdir())

    @pytest.mark.parametrize("command", ["train", "sweep"])
    def test_a_setting_swallows_no_argument(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--set", "eta=0.5", "discount=0.9", "BoxImage"]
        shown = "--print-config" if command == "train" else "--dry-run"
        assert main([command, *words, shown]) == 0
        said = capsys.readouterr().out
        if command == "train":
            config = json.loads(said)
            assert (config["env"], config["eta"], config["discount"]) == ("BoxImage", 0.5, 0.9)
        else:
            assert said.count("train BoxImage --method emi --seed") == 5
            assert said.count("--set discount=0.9 eta=0.5 --out") == 5

    @pytest.mark.parametrize(
        ("text", "steps"),
        [
            ("5M", 5_000_000),
            ("500k", 500_000),
            ("2.5m", 2_500_000),
            ("1e6", 1_000_000),
            ("5_000_000", 5_000_000),
        ],
    )
    def test_steps_as_people_write_them(
        self, text: str, steps: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for words in (["--steps", text], ["--set", f"steps={text}"]):
            assert main(["train", "BoxImage", *words, "--print-config"]) == 0
            assert json.loads(capsys.readouterr().out)["steps"] == steps
            assert main(["sweep", "BoxImage", "--seeds", "0", *words, "--dry-run"]) == 0
            assert f" --steps {steps} " in capsys.readouterr().out

    def test_names_in_any_case(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "sparsehalfcheetah", "--method", "AE-SimHash", "--print-config"]) == 0
        config = json.loads(capsys.readouterr().out)
        assert (config["env"], config["method"]) == ("SparseHalfCheetah", "ae-simhash")
        assert config["eta"] == emi.preset("SparseHalfCheetah", "ae-simhash").eta
        (here / "settings.json").write_text('{"env": "BOXIMAGE", "method": "RND"}')
        assert main(["train", "--config", "settings.json", "boximage", "--print-config"]) == 0
        config = json.loads(capsys.readouterr().out)
        assert (config["env"], config["method"]) == ("BoxImage", "rnd")
        words = ["boximage", "BoxImage", "--methods", "EMI,Rnd,emi", "--seeds", "0", "--dry-run"]
        assert main(["sweep", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(" --out ")[1].split()[0] for line in lines] == [
            "runs/sweep/BoxImage/emi/seed0",
            "runs/sweep/BoxImage/rnd/seed0",
        ]

    def test_sigterm_writes_a_checkpoint_and_says_how_to_resume(self, here: Path) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", *SMALL, "--steps", "1e7"]
        child = subprocess.Popen(
            [sys.executable, "-m", "emi", *words, "--out", "my run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"EMI_COMMAND": "./emi"},
        )
        metrics = here / "my run" / "metrics.csv"
        while not metrics.exists() and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 128 + signal.SIGTERM
        first, last = err.splitlines()
        assert first.startswith("emi: stopping after this iteration; ")
        iteration = load_latest(here / "my run" / "checkpoints").iteration
        assert iteration >= 1
        assert last == (
            f"emi: stopped at iteration {iteration} of 100000: resume with: ./emi resume 'my run'"
        )
        ending = out.splitlines()[-5:]
        assert ending[0].startswith(f"stopped:  {iteration:,} of 100,000 iterations, ")
        assert ending[2:] == [
            "run:      my run",
            "watch:    ./emi watch 'my run'",
            "report:   ./emi report 'my run'",
        ]
        assert metrics.read_text().count("\n") == iteration + 1


METHODS = """
import os, signal
from dataclasses import dataclass

import torch

import emi
from emi.settings import PositiveInt


@dataclass(frozen=True)
class CountsConfig:
    cells: PositiveInt = 4
    power: float = 0.5


class Counts(emi.IntrinsicReward):
    def __init__(self, observation_space, action_space, config=CountsConfig(), seed=0):
        super().__init__()
        self.config = config
        self.register_buffer("counts", torch.zeros(config.cells))

    def cells(self, batch):
        return (torch.as_tensor(batch.next_obs)[:, 0] * 100).long() % self.config.cells

    def reward(self, batch):
        return (1 + self.counts[self.cells(batch)]) ** -self.config.power

    def learn(self, batch):
        self.counts += torch.bincount(self.cells(batch), minlength=self.config.cells)
        if self.counts.sum() == int(os.environ.get("STOP_AFTER", "0")):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"counts/largest": float(self.counts.max())}


class Plain(Counts):
    def __init__(self, observation_space, action_space, seed=0):
        super().__init__(observation_space, action_space, CountsConfig(cells=3))


def make_counts(observation_space, action_space, config=CountsConfig(power=1.0), seed=0):
    return Counts(observation_space, action_space, config, seed)


def make_nothing(observation_space, action_space, seed=0):
    return None


class NoDefault(Counts):
    def __init__(self, observation_space, action_space, config, seed=0):
        super().__init__(observation_space, action_space, config)


class Other:
    pass


number = 3
"""

ENVIRONMENT = """
import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-50, 50, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.place = self.place + action
        return self.place.astype(np.float32), float(self.place[0] > 3), False, False, {}


gymnasium.register("Walk-v0", Walk, max_episode_steps=20)
"""


@pytest.fixture
def own_modules(here: Path) -> Iterator[None]:
    """A user's modules in the current directory, as `emi` finds them."""
    (here / "own_methods.py").write_text(METHODS)
    (here / "own_package").mkdir()
    (here / "own_package" / "__init__.py").touch()
    (here / "own_package" / "envs.py").write_text(ENVIRONMENT)
    importlib.invalidate_caches()
    yield
    gymnasium.registry.pop("Walk-v0", None)
    for name in ("own_methods", "own_package", "own_package.envs", "own_broken"):
        sys.modules.pop(name, None)


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without the times."""
    with (run / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if "second" not in k} for row in table]


def same_state(a: Any, b: Any) -> bool:
    """Whether two states of a checkpoint are equal bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


@pytest.mark.usefixtures("own_modules")
class TestOwn:
    @pytest.mark.parametrize(
        ("env", "method"),
        [
            ("SparseHalfCheetah", "own_methods:Counts"),
            ("SparseHalfCheetah", "own_methods:Plain"),
            ("gym:own_package.envs:Walk-v0", "own_methods:make_counts"),
            ("gym:own_package.envs:Walk-v0", "rnd"),
        ],
    )
    def test_train_stop_and_resume_bit_for_bit(
        self, env: str, method: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        words = ["train", env, "--method", method, *SMALL, "--steps", "500", "--out"]
        assert main([*words, "straight"]) == 0
        straight = rows(Path("straight"))
        assert len(straight) == 5
        assert float(straight[-1]["bonus_std"]) > 0
        if method == "rnd":
            return
        monkeypatch.setenv("STOP_AFTER", "300")
        assert main([*words, "stopped"]) == 128 + signal.SIGTERM
        assert len(rows(Path("stopped"))) == 3
        monkeypatch.delenv("STOP_AFTER")
        sys.modules.pop("own_methods")  # a new process would import it again
        modules = ["own_methods", "own_package.envs"][: 1 + env.startswith("gym:")]
        assert main(["resume", "stopped", "--trust", ",".join(modules)]) == 0
        assert rows(Path("stopped")) == straight
        newest = [load_latest(Path(run) / "checkpoints").state for run in ("straight", "stopped")]
        assert same_state(*newest)
        assert newest[0]["intrinsic"]["counts"].sum() == 500

    def test_the_config_of_a_method(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "own_methods:Counts", *SMALL]
        words += ["intrinsic.cells=7", "--steps", "100", "--out", "run"]
        assert main(words) == 0
        config = json.loads(Path("run/config.json").read_text())
        assert config["method"] == "own_methods:Counts"
        assert config["intrinsic"] == {"cells": 7, "power": 0.5}
        assert load_latest(Path("run/checkpoints")).state["intrinsic"]["counts"].shape == (7,)
        changed = json.loads(Path("run/provenance.json").read_text())["changed"]
        assert "intrinsic.cells" in changed
        assert "intrinsic.power" not in changed
        capsys.readouterr()
        assert complaint([*words[:-1], "other", "--set", "intrinsic.cells=0"], capsys) == (
            "intrinsic.cells must be positive, got 0"
        )
        assert complaint(
            [
                "train",
                "SparseHalfCheetah",
                "--method",
                "own_methods:Plain",
                "--set",
                "intrinsic.cells=2",
            ],
            capsys,
        ).startswith("unknown setting 'intrinsic.cells'")

    @pytest.mark.parametrize(
        ("method", "sentence"),
        [
            ("no_module:X", "cannot import no_module:X: ModuleNotFoundError: No module named"),
            ("own_methods:X", "cannot import own_methods:X: AttributeError: module 'own_methods'"),
            ("own_methods:", "cannot import own_methods:: AttributeError: "),
            (":X", "cannot import :X: ValueError: Empty module name"),
            ("own_broken:X", "cannot import own_broken:X: NameError: name 'oops' is not defined"),
            ("own_methods:Other", "Other must be a subclass of emi.IntrinsicReward"),
            ("own_methods:number", "a method must be a class or a function, got 3"),
            ("own_methods:NoDefault", "the config of NoDefault must default to a frozen dataclass"),
            ("own_methods:make_nothing", "a method must be an emi.IntrinsicReward, got NoneType"),
        ],
    )
    def test_what_is_no_method_is_one_sentence(
        self, here: Path, method: str, sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (here / "own_broken.py").write_text("oops")
        words = ["train", "SparseHalfCheetah", "--method", method, *SMALL, "--out", "run"]
        assert complaint(words, capsys).startswith(sentence)
        assert not (here / "run").exists()

    @pytest.mark.parametrize(
        ("env", "sentence"),
        [
            ("gym:no_package:Walk-v0", "No module named 'no_package'"),
            ("gym:own_package.envs:Work-v0", "Environment `Work` doesn't exist"),
        ],
    )
    def test_what_is_no_environment_is_one_sentence(
        self, here: Path, env: str, sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = complaint(["train", env, "--out", "run"], capsys)
        assert said.startswith(f"cannot make '{env}': ")
        assert sentence in said
        assert not (here / "run").exists()

    def test_the_console_script_finds_modules_in_the_current_directory_last(
        self, here: Path
    ) -> None:
        (here / "bin").mkdir()
        script = here / "bin" / "emi"
        script.write_text("import sys; from emi.cli import main; sys.exit(main())")
        (here / "safetensors.py").write_text("raise RuntimeError('it hides the installed package')")
        words = ["train", "gym:own_package.envs:Walk-v0", "--method", "own_methods:Counts", *SMALL]
        done = subprocess.run(
            [sys.executable, str(script), *words, "--steps", "100", "--out", "run"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "counts/largest" in rows(Path("run"))[0]

    def test_a_sweep(self) -> None:
        words = ["sweep", "gym:own_package.envs:Walk-v0", "--methods", "own_methods:Counts"]
        words += ["--seeds", "3", "--steps", "100", "--out", "sweep", *SMALL[2:]]
        assert main(words) == 0
        (metrics,) = Path("sweep").rglob("metrics.csv")
        assert "counts/largest" in rows(metrics.parent)[0]


class TestConfigFile:
    def file(self, settings: Any) -> list[str]:
        Path("settings.json").write_text(json.dumps(settings))
        return ["train", "--config", "settings.json"]

    def printed(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        assert main([*words, "--print-config"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    def test_a_whole_config_gives_the_same_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["train", "SwimmerGather", "--method", "emi-d", "--seed", "4", "--threads", "3"]
        whole = self.printed([*words, "--set", "policy.hidden=7,5", "eta=0.5"], capsys)
        assert whole["policy"]["hidden"] == [7, 5]
        assert self.printed(self.file(whole), capsys) == whole

    def test_a_part_of_a_config_changes_the_preset(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = self.file({"eta": 0.5, "steps": 1e6, "trpo": {"max_kl": 0.02}, "trpo.damping": 1})
        found = self.printed([*words, "BoxImage", "--method", "rnd"], capsys)
        expected = self.printed(["train", "BoxImage", "--method", "rnd"], capsys)
        expected |= {"eta": 0.5, "steps": 1_000_000}
        expected["trpo"] |= {"max_kl": 0.02, "damping": 1.0}
        assert found == expected

    def test_options_win_over_the_file_and_set_over_options(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = self.file(
            {"env": "BoxImage", "seed": 1, "steps": 1000, "threads": 5, "device": "cuda", "eta": 1}
        )
        words += ["--seed", "2", "--steps", "2e3", "--threads", "6", "--device", "cpu"]
        found = self.printed([*words, "--set", "eta=0.25", "steps=3000"], capsys)
        keys = ("env", "method", "seed", "steps", "threads", "device", "eta")
        assert [found[key] for key in keys] == ["BoxImage", "emi", 2, 3000, 6, "cpu", 0.25]

    @pytest.mark.parametrize(
        ("settings", "words", "sentence"),
        [
            ({"eta": 0.5}, [], "name an environment: see 'emi envs'"),
            (
                {"env": "BoxImage"},
                ["SwimmerGather"],
                "these settings are for the env 'BoxImage', not 'SwimmerGather'",
            ),
            (
                {"env": "BoxImage", "method": "rnd"},
                ["--method", "icm"],
                "these settings are for the method 'rnd', not 'icm'",
            ),
            ({"env": 3}, [], "env must be text, got 3"),
            ({"env": "BoxImage", "method": 3}, [], "method must be text, got 3"),
            ({"env": "BoxImage", "ets": 1}, [], "unknown setting 'ets': did you mean 'eta'?"),
            ([], ["BoxImage"], "settings.json must hold a JSON object of settings"),
        ],
    )
    def test_a_mistake_in_the_file_is_one_sentence(
        self, settings: Any, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert complaint([*self.file(settings), *words], capsys) == sentence
        assert sorted(p.name for p in Path.cwd().iterdir()) == ["settings.json"]

    def test_the_config_of_a_run_trains_it_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", *SMALL, "--steps", "200"]
        assert main([*words, "--out", "first"]) == 0
        assert main(["train", "--config", "first/config.json", "--out", "second"]) == 0
        assert Path("first/config.json").read_bytes() == Path("second/config.json").read_bytes()
        assert rows(Path("first")) == rows(Path("second"))


class TestHelp:
    @pytest.mark.parametrize("words", [[], ["--help"], ["methods"], ["envs"], ["--version"]])
    def test_nothing_slow_is_imported(self, words: list[str]) -> None:
        program = f"import sys; from emi.cli import main; code = main({words});"
        program += " sys.exit(code or int(not sys.modules.keys().isdisjoint({'torch', 'mujoco'})))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 0
        assert done.stdout

    def test_emi_alone_prints_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0
        alone = capsys.readouterr().out
        assert main(["--help"]) == 0
        assert alone == capsys.readouterr().out
        assert main(["train", "--help"]) == 0
        assert "--print-config" in capsys.readouterr().out

    def test_envs_and_methods_are_those_of_the_tables(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["envs"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [*ENVIRONMENTS, *FAMILIES]
        assert lines[0].split("  ", 1)[1].strip() == ENVIRONMENTS["SparseHalfCheetah"].about
        assert main(["methods"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == list(intrinsic_methods)
        about = "TRPO: plain TRPO, without a bonus (Schulman et al., 2015)"
        assert ["trpo", about] in [line.split(maxsplit=1) for line in lines]

    def test_the_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"emi {emi.__version__}\n"

    @pytest.mark.parametrize(
        "words",
        [
            *([name] for name in _parsers()[1]),
            *(["paper", action] for action in ("list", "run", "collect", "draw")),
        ],
    )
    def test_every_command_describes_itself_and_its_defaults(
        self, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        assert main([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        assert text.startswith(f"usage: emi {' '.join(words)} [-h]")
        about_command = text.split("\n\n")[1]
        assert about_command[0].isupper()
        assert about_command.endswith(".")
        options = re.findall(r"\n  (--[a-z-]+)(.*?)(?=\n  -|\n\n|\Z)", text, re.DOTALL)
        for option, about in options:
            if option not in ("--print-config", "--dry-run", "--set"):
                assert "(default: " in " ".join(about.split()), (option, about)
        assert ("examples:\n  emi " in text) == (
            words[0] in ("train", "sweep", "report", "coverage", "watch", "plan")
        )

    @pytest.mark.parametrize("name", ["train", "sweep", "report", "watch"])
    def test_the_examples_are_commands(self, name: str) -> None:
        _, commands = _parsers()
        epilog = commands[name].epilog
        assert epilog is not None
        for example in epilog.splitlines()[1:]:
            command, named, *words = shlex.split(example)
            assert (command, named) == ("emi", name)
            commands[name].parse_args(_one_setting_each(words))

    def test_a_reader_that_closes_the_pipe(self) -> None:
        child = subprocess.Popen(
            [sys.executable, "-m", "emi", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0
        child.stderr.close()

    def test_a_terminal_without_unicode(self) -> None:
        program = "import sys; from emi.cli import main; sys.exit(main(['φ']))"
        environment = os.environ | {"PYTHONIOENCODING": "ascii"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr == b"emi: unknown command '?': see 'emi --help'\n"


def test_the_preset_of_a_run_and_of_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "SparseHalfCheetah", "--preset", "robust", "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["keeping"]["patience"] == 5
    (tmp_path / "config.json").write_text(printed)
    again = ["train", "--config", str(tmp_path / "config.json"), "--print-config"]
    assert main(again) == 0
    assert capsys.readouterr().out == printed
    sweep = ["sweep", "SparseHalfCheetah", "--methods", "emi,trpo", "--seeds", "3", "--dry-run"]
    assert main([*sweep, "--preset", "robust", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.count("--preset robust --seed 3") == 2
    assert main(["train", "SparseHalfCheetah", "--preset", "best", "--print-config"]) == 2
    assert capsys.readouterr().err == "emi: unknown preset 'best': choose one of paper, robust\n"
