"""`emi doctor` finds what is missing and says how to install it."""

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from emi import bfloat16, envs
from emi.envs.table import ENVIRONMENTS, PACKAGES, Environment
from emi.program import install
from emi.runs.doctor import Finding, examine, report


def finding(name: str) -> Finding:
    return next(f for f in examine() if f.name == name)


def test_this_machine_can_train(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    findings = examine()
    assert report(findings) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(findings) == 13
    assert lines[0].startswith("✓ Python       3.")
    assert all(line[0] in "✓–" for line in lines)
    assert not any(tmp_path.iterdir())


def test_a_processor_without_bfloat16_uses_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for has, state, end in ((True, "good", "images"), (False, "absent", "float32 instead")):
        monkeypatch.setattr(bfloat16, "in_hardware", lambda has=has: has)
        found = finding("bfloat16")
        assert found.state == state
        assert found.detail.endswith(end)


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("mujoco", "mujoco", install("mujoco")),
        ("ale_py", "atari", install("atari")),
        ("minigrid", "minigrid", install("minigrid")),
        ("gymnasium_robotics", "robotics", install("robotics")),
        ("rich", "display", install("train")),
        ("imageio", "video", install("train")),
        ("tensorboard", "TensorBoard", install("train")),
    ],
)
def test_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = finding(name)
    assert found.state == "absent"
    assert found.detail.endswith(advice)


def test_the_simulators_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One check per extra; one step in the first environment of each class."""
    made: list[str] = []
    make_vec = envs.make_vec

    def recorded(name: str, *args: Any, **kwargs: Any) -> Any:
        made.append(name)
        return make_vec(name, *args, **kwargs)

    monkeypatch.setattr(envs, "make_vec", recorded)
    new = Environment("about", "nowhere:No", 10, "toys", "no_such_simulator")
    monkeypatch.setitem(ENVIRONMENTS, "Marbles", new)
    monkeypatch.setitem(ENVIRONMENTS, "Blocks", new)
    names = [found.name for found in examine()]
    assert names[4:7] == ["mujoco", "atari", "toys"]
    packages = [f"gym:{package.example}" for package in PACKAGES]
    assert made == ["SparseHalfCheetah", "SwimmerGather", "Freeway", *packages]
    assert finding("toys") == Finding(
        "toys", "absent", f"no no_such_simulator, for Marbles, Blocks: {install('toys')}"
    )
    assert finding("mujoco").detail.endswith("took a step in SparseHalfCheetah and SwimmerGather")
    monkeypatch.setitem(ENVIRONMENTS, "Marbles", dataclasses.replace(new, simulator="json"))
    assert finding("toys").state == "bad"  # installed, but there is no such environment


def test_no_rendering_does_not_prevent_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise RuntimeError("install OpenGL")

    monkeypatch.setattr("emi.envs.rendering.rendering_backend", none)
    assert finding("rendering") == Finding(
        "rendering", "absent", "needed only by 'emi watch': install OpenGL"
    )


def test_a_disk_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**where: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert finding("disk").state == "bad"
    assert "No space left on device" in finding("disk").detail


def test_a_simulator_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError("libmujoco.so:\nwrong ELF class")

    monkeypatch.setattr("emi.envs.make_vec", broken)
    assert finding("mujoco") == Finding("mujoco", "bad", "OSError: libmujoco.so: wrong ELF class")


def test_one_bad_finding_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    good, absent, bad = (
        Finding("a", "good", "1"),
        Finding("b", "absent", "2"),
        Finding("c", "bad", "3"),
    )
    assert report([good, absent]) == 0
    assert report([good, absent, bad]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == ["✓ a  1", "– b  2", "✗ c  3"]
