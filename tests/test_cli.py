"""The words users type: exit codes, one-sentence errors, and nothing written by bad input."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emi.cli import main
from emi.runs import run as run_module
from emi.runs.checkpoint import load_latest
from emi.training.trainer import NotFiniteError
from emi.runs.watch import Episode

SMALL = ["--threads", "1", "--set", "steps_per_iteration=100", "num_envs=2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one sentence that a failing command says."""
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
            (["train"], "the following arguments are required: ENV: see 'emi train --help'"),
            (["train", "SparseHalfCheetah", "--sed", "3"], "did you mean '--seed'?"),
            (["train", "SparseHalfCheetah", "--sed=3"], "unknown option '--sed=3': did you mean"),
            (["train", "SparseHalfCheetah", "--metho", "x"], "did you mean '--method'?"),
            (["train", "SparseHalfCheetah", "more"], "unexpected word 'more'"),
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
            (["train", "SparseHalfCheetah", "--device", "tpu"], "device must be cpu or cuda"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_kl=-1"], "trpo.max_kl must be posi"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_kl=nan"], "trpo.max_kl must be"),
            (["train", "SparseHalfCheetah", "--set", "nonsense=1"], "unknown setting 'nonsense'"),
            (["train", "SparseHalfCheetah", "--set", "trpo.max_lk=1"], "did you mean 'trpo.max_kl"),
            (["train", "SparseHalfCheetah", "--set", "eta"], "--set takes KEY=VALUE, got 'eta'"),
            (["train", "SparseHalfCheetah", "--out", "full"], "full holds other files (notes.txt)"),
            (["train", "SparseHalfCheetah", "--out", "full/notes.txt"], "is a file"),
            (["train", "SparseHalfCheetah", "--out", "full/notes.txt/run"], "not a directory"),
            (["resume"], "the following arguments are required: DIR"),
            (["resume", "nowhere"], "nowhere holds no run"),
            (["resume", "full"], "full holds no run"),
            (["watch", "nowhere"], "nowhere holds no run"),
            (["watch", "full", "--out", "film.avi"], "a video is .mp4 or .gif"),
            (["sweep"], "the following arguments are required: ENV"),
            (["sweep", "SparseHalfCheetah", "--seeds", "4-0"], "--seeds counts upwards"),
            (["sweep", "SparseHalfCheetah", "--methods", "emi,rdn"], "unknown method 'rdn'"),
            (["sweep", "SparseHalfCheetah", "NoSuchEnv"], "unknown environment 'NoSuchEnv'"),
            (["sweep", "SparseHalfCheetah", "--jobs", "0"], "--jobs must be positive"),
            (["sweep", "SparseHalfCheetah", "--set", "eta=x"], "eta must be a number, got 'x'"),
            (["doctor", "now"], "unexpected word 'now'"),
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
        assert complaint([*words, "--steps", "200"], capsys) == (
            "run holds this run, stopped at iteration 0 of 2: go on with: emi resume run"
        )
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
            "this is a bug in emi: ZeroDivisionError: division by zero"
            " (set EMI_TRACEBACK=1 to see where)"
        )
        monkeypatch.setenv("EMI_TRACEBACK", "1")
        with pytest.raises(ZeroDivisionError):
            main(["train", "SparseHalfCheetah"])

    @pytest.mark.parametrize(
        ("error", "sentence"),
        [
            (PermissionError(13, "Permission denied", "/etc/x"), "/etc/x: permission denied: "),
            (FileExistsError(17, "File exists", "README.md"), "README.md: file exists: "),
        ],
    )
    def test_a_path_that_cannot_be_used_is_no_bug(
        self,
        here: Path,
        error: OSError,
        sentence: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr("emi.runs.run_directory.require_free", refuse)
        assert main(["train", "SparseHalfCheetah"]) == 2
        assert capsys.readouterr().err == f"emi: {sentence}mend that or choose another place\n"

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
        assert lines[-1] == "complete: 3 iterations in runs/SparseHalfCheetah-emi-seed0"
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
        assert capsys.readouterr().out == f"complete: 3 iterations in {path}\n"

    def test_train_goes_on_with_this_very_run(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", "--out", "run", "--resume"]
        words += ["--threads", "1", "--steps", "200", "--set", "steps_per_iteration=100"]
        assert main([*words, "num_envs=2"]) == 0  # nothing there: it begins
        assert main([*words, "num_envs=2"]) == 0
        said = capsys.readouterr().out
        assert said.endswith("complete: 2 iterations in run\n" * 2)
        assert said.count("2 iterations, from 0") == 1
        assert main([*words, "num_envs=1"]) == 2
        assert "run holds another run (num_envs differs)" in capsys.readouterr().err
        # What results/ keeps of a run is not trained over.
        shutil.rmtree("run/checkpoints")
        Path("run/metrics.csv").rename("run/metrics.csv.gz")
        before = sorted(p.name for p in Path("run").iterdir())
        assert main(["resume", "run"]) == 2
        assert "keeps the results of a finished run" in capsys.readouterr().err
        assert sorted(p.name for p in Path("run").iterdir()) == before

    def test_watch_hands_over_what_was_typed(
        self, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[Any, ...]] = []

        def watch(directory: Path, out: Path, *, seed: int, deterministic: bool) -> Episode:
            asked.append((directory, out, seed, deterministic))
            return Episode(2.5, 7)

        monkeypatch.setattr("emi.runs.watch.watch", watch)
        assert main(["watch", "d"]) == 0
        assert main(["watch", "d", "--seed", "3", "--deterministic", "--out", "a.gif"]) == 0
        assert asked == [
            (Path("d"), Path("d/watch.mp4"), 0, False),
            (Path("d"), Path("a.gif"), 3, True),
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

    def test_sigterm_writes_a_checkpoint_and_says_how_to_resume(self, here: Path) -> None:
        words = ["train", "SparseHalfCheetah", "--method", "trpo", *SMALL, "--steps", "1e7"]
        child = subprocess.Popen(
            [sys.executable, "-m", "emi", *words, "--out", "my run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        metrics = here / "my run" / "metrics.csv"
        while not metrics.exists() and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 128 + signal.SIGTERM
        first, last = err.splitlines()
        assert first == "emi: stopping after this iteration; once more to stop at once"
        iteration = load_latest(here / "my run" / "checkpoints").iteration
        assert iteration >= 1
        assert last == (
            f"emi: stopped at iteration {iteration} of 100000: go on with: emi resume 'my run'"
        )
        assert metrics.read_text().count("\n") == iteration + 1


class TestWords:
    def test_help_is_quick_and_loads_no_torch(self) -> None:
        program = "import sys; from emi.cli import main; main(['--help']);"
        program += " sys.exit(int('torch' in sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 0
        assert b"train" in done.stdout

    def test_emi_alone_prints_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0
        alone = capsys.readouterr().out
        assert main(["--help"]) == 0
        assert alone == capsys.readouterr().out
        assert main(["train", "--help"]) == 0
        assert "--print-config" in capsys.readouterr().out

    def test_envs_and_methods(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["envs"]) == 0
        assert "SparseHalfCheetah  " in capsys.readouterr().out
        assert main(["methods"]) == 0
        names = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
        assert names[:1] == ["emi"]
        assert {"emi-d", "trpo"} <= set(names)

    def test_a_reader_that_leaves(self) -> None:
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
