"""A stored config imports no module, unless the user names it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emi.cli import main
from emi.errors import UserError
from emi.runs.run_directory import RunDirectory, config_bytes, difference
from emi.sweeps.plan import Cell, compared
from emi.sweeps.run_process import PROGRAM
from emi.training.config import modules_of, to_dict
from emi.training.presets import resolve

CONFIG = resolve("gym:CartPole-v1", "trpo", {"steps": 200, "steps_per_iteration": 100})
TRAP = """
from pathlib import Path
Path("imported").touch()
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Trap-v0", CartPoleEnv, max_episode_steps=50)
"""
STORED: dict[str, dict[str, Any]] = {
    "an environment": {"env": "gym:trap_of_a_stranger:Trap-v0"},
    "a method": {"method": "trap_of_a_stranger:Trap"},
    "a wrapper": {"wrappers": ["gymnasium:Wrapper", "trap_of_a_stranger:Trap{}"]},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    (tmp_path / "trap_of_a_stranger.py").write_text(TRAP)
    return tmp_path


def stored(names: dict[str, Any]) -> None:
    values: dict[str, Any] = to_dict(CONFIG) | names
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize(
    "words",
    [
        ["resume", "run"],
        ["watch", "run"],
        ["doctor", "--bonus", "run"],
        ["train", "--config", "run/config.json", "--out", "out"],
        ["resume", "run", "--trust", "another,trap_of,gymnasium"],
    ],
    ids=" ".join,
)
def test_it_is_refused_and_not_imported(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str
) -> None:
    stored(STORED[kind])
    trusted = [] if "--trust" in words else ["--trust", "gymnasium"]
    assert main([*words, *trusted]) == 2
    error = capsys.readouterr().err
    assert "run/config.json" in error
    assert error.endswith(
        " names the module trap_of_a_stranger, which emi would import and run: "
        "if you trust that module, add --trust trap_of_a_stranger\n"
    )
    assert not Path("imported").exists()
    assert "trap_of_a_stranger" not in sys.modules


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "run", "--trust", "trap_of_a_stranger"],
        ["resume", "run", "--trust", "other,trap_of_a_stranger"],
        ["train", "--config", "run/config.json", "--out", "out", "--trust", "trap_of_a_stranger"],
        ["train", "gym:trap_of_a_stranger:Trap-v0", "--config", "run/config.json", "--out", "out"],
    ],
    ids=" ".join,
)
def test_a_module_that_the_user_names_is_imported(here: Path, words: list[str]) -> None:
    stored(STORED["an environment"])
    done = subprocess.run(
        [sys.executable, "-m", "emi", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("imported").exists()


def test_the_command_to_resume_has_the_option() -> None:
    own = RunDirectory(Path("my run"), modules_of("gym:a.b:Env-v0", "c:Class", ['d:W{"k": 1}']))
    assert own.resume_command == "emi resume 'my run' --trust a.b,c,d"
    assert RunDirectory(Path("run")).resume_command == "emi resume run"


def test_a_sweep_trusts_what_it_was_given_and_nothing_else(here: Path) -> None:
    assert Cell(CONFIG, Path("out/seed0")).arguments == (
        *("train", "--config", "out/seed0.json", "--out", "out/seed0", "--resume"),
    )
    own = Cell(resolve("gym:CartPole-v1", "emi.intrinsic.rnd:RND"), Path("out/seed0"))
    assert own.arguments[-2:] == ("--trust", "emi.intrinsic.rnd")
    # The directory of a cell holds the run of somebody else.
    stored(STORED["a method"])
    found = compared(Cell(CONFIG, Path("run")))
    assert found.state == "conflict"
    assert "names the module trap_of_a_stranger" in found.problem
    with pytest.raises(UserError, match="names the module trap_of_a_stranger"):
        difference(Path("run/config.json"), CONFIG)
    assert not Path("imported").exists()


def test_a_run_of_the_same_names_is_compared_without_asking(tmp_path: Path) -> None:
    config = resolve("gym:CartPole-v1", "emi.intrinsic.rnd:RND")
    (tmp_path / "config.json").write_bytes(config_bytes(config))
    assert difference(tmp_path / "config.json", config) is None
    other = resolve("gym:CartPole-v1", "emi.intrinsic.rnd:RND", {"seed": 3})
    assert difference(tmp_path / "config.json", other) == "seed"


@pytest.mark.parametrize("name", ["json", "torch", "gymnasium", "emi"])
def test_the_current_directory_hides_no_module_in_a_sweep(here: Path, name: str) -> None:
    """`python -m` alone puts the current directory first on the path."""
    Path(f"{name}.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    words = [*PROGRAM, "train", "BoxImage", "--print-config"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path("imported").exists()
