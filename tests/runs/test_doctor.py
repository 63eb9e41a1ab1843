"""The doctor finds what is missing and says how to get it."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from emi.cli import main
from emi.training.config import resolve
from emi.runs.doctor import Finding, examine, report
from emi.runs.run import run


def finding(name: str) -> Finding:
    return next(f for f in examine() if f.name == name)


def test_this_machine_can_train(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    findings = examine()
    assert report(findings) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(findings) == 10
    assert lines[0].startswith("✓ Python       3.")
    assert all(line[0] in "✓–" for line in lines)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "name", "state", "advice"),
    [
        ("mujoco", "MuJoCo", "bad", "pip install 'emi-rl[mujoco]'"),
        ("ale_py", "Atari", "absent", "pip install 'emi-rl[atari]'"),
        ("rich", "display", "absent", "pip install 'emi-rl[train]'"),
        ("imageio", "video", "absent", "pip install 'emi-rl[train]'"),
        ("tensorboard", "TensorBoard", "absent", "pip install 'emi-rl[train]'"),
    ],
)
def test_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, state: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = finding(name)
    assert found.state == state
    assert found.detail.endswith(advice)


def test_no_rendering_does_not_keep_from_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise RuntimeError("install OpenGL")

    monkeypatch.setattr("emi.envs.rendering.rendering_backend", none)
    assert finding("rendering") == Finding(
        "rendering", "absent", "only 'emi watch' needs it: install OpenGL"
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
    assert finding("MuJoCo") == Finding("MuJoCo", "bad", "OSError: libmujoco.so: wrong ELF class")


def test_one_bad_finding_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    good, absent, bad = (
        Finding("a", "good", "1"),
        Finding("b", "absent", "2"),
        Finding("c", "bad", "3"),
    )
    assert report([good, absent]) == 0
    assert report([good, absent, bad]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == ["✓ a  1", "– b  2", "✗ c  3"]


def test_the_bonus_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["steps_per_iteration=300", "num_envs=3"]
    for method, code in (("rnd", 0), ("ex2", 1)):
        config = resolve("SparseHalfCheetah", method, steps=300, threads=1, overrides=sizes)
        run(config, tmp_path / method)
        files = {p: p.read_bytes() for p in (tmp_path / method).rglob("*") if p.is_file()}
        capsys.readouterr()
        assert main(["doctor", "--bonus", str(tmp_path / method)]) == code
        said = capsys.readouterr().out.splitlines()
        assert [line.split()[1] for line in said] == [
            *("finite", "resets", "share", "advantages", "varies", "ranks", "falls")
        ]
        assert {p: p.read_bytes() for p in (tmp_path / method).rglob("*") if p.is_file()} == files
    # EX2 pays nothing until its replay holds 10,000 states.
    asked = (
        "✗ share       nothing is paid for any of these: does it need more of them before it pays?"
    )
    assert asked in said


def test_no_bonus_to_examine_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["steps_per_iteration=100", "num_envs=2"]
    config = resolve("SparseHalfCheetah", "trpo", steps=100, threads=1, overrides=sizes)
    run(config, tmp_path / "run")
    capsys.readouterr()
    assert main(["doctor", "--bonus", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "emi: trpo pays no bonus: give a run of another method\n"
