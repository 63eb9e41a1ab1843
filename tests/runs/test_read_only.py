"""A complete run on a read-only disk can be read, watched, reported and resumed."""

from pathlib import Path

import pytest
from read_only_disk import read_only

from emi.cli import main
from emi.envs.rendering import rendering_backend
from emi.runs import watch as watch_module

SMALL = ["--steps", "200", "--set", "steps_per_iteration=100", "num_envs=2"]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of one complete run."""
    out = tmp_path_factory.mktemp("disk")
    words = ["sweep", "SparseHalfCheetah", "--seeds", "0", "--jobs", "1", "--out", str(out)]
    assert main([*words, *SMALL]) == 0
    return out


@pytest.fixture
def run(disk: Path) -> Path:
    return disk / "SparseHalfCheetah/emi/seed0"


def test_the_disk_is_read_only(disk: Path, run: Path) -> None:
    with read_only(disk):
        for write in (
            lambda: (run / "x").write_text("x"),
            lambda: (run / "metrics.csv").open("ab"),
            lambda: (run / "metrics.csv").unlink(),
            lambda: (run / "folder").mkdir(),
            lambda: (run / "metrics.csv").rename(run / "m.csv"),
        ):
            with pytest.raises(OSError, match="Read-only file system"):
                write()
    assert (run / "metrics.csv").exists()


def test_resume(disk: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with read_only(disk):
        assert main(["resume", str(run)]) == 0
        config = str(run.with_name("seed0.json"))
        assert main(["train", "--config", config, "--out", str(run), "--resume"]) == 0
    out, err = capsys.readouterr()
    complete = "complete: 2 iterations, 200 steps in 0:00; it was complete already\n"
    assert out.count(complete) == 2
    assert out.count(f"run:      {run}\n") == 2
    assert err == ""


def test_sweep(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "SparseHalfCheetah", "--out", str(disk)]
    with read_only(disk):
        assert main([*words, "--seeds", "0", *SMALL]) == 0
        assert capsys.readouterr().out == f"1 run: 1 skipped\nreport: emi report {disk}\n"
        assert main([*words, "--seeds", "1", *SMALL]) == 2
    assert capsys.readouterr().err == (
        f"emi: cannot write in {disk / 'SparseHalfCheetah/emi'}: Read-only file system:"
        " choose another --out\n"
    )


def test_report(disk: Path, run: Path, tmp_path: Path) -> None:
    with read_only(disk):
        assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
        assert main(["report", str(run), "--figures", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "figures/learning_curves.png").exists()


def test_doctor(disk: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with read_only(disk):
        main(["doctor", "--bonus", str(run)])  # how good the bonus is does not matter here
    out, err = capsys.readouterr()
    assert "bonus" in out
    assert err == ""


def _can_render() -> bool:
    try:
        rendering_backend()
    except RuntimeError:
        return False
    return True


@pytest.mark.skipif(not _can_render(), reason="needs off-screen OpenGL")
def test_watch(disk: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MAX_STEPS", 2)
    with read_only(disk):
        assert main(["watch", str(run), "--out", str(tmp_path / "x.gif")]) == 0
    assert (tmp_path / "x.gif").stat().st_size > 0
    assert [p.name for p in tmp_path.iterdir()] == ["x.gif"]


def test_a_run_that_is_not_complete_needs_a_disk_to_write_on(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with read_only(disk):
        code = main(["train", "SparseHalfCheetah", "--out", str(disk / "new"), *SMALL])
    assert code == 2
    assert capsys.readouterr().err == (
        f"emi: cannot write in {disk / 'new'}: Read-only file system:"
        " make it writable or choose another --out\n"
    )
