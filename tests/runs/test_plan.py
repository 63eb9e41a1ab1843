"""`emi plan`: a path to a goal with the embedding of a run."""

import re
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from emi.cli import main
from emi.errors import UserError
from emi.report.plan_file import read_plan_file
from emi.runs.plan import PlannedPath, plan, write_plan
from emi.runs.run import run
from emi.training.presets import resolve

SIZES = {"steps": 200, "steps_per_iteration": 200, "num_envs": 2, "threads": 1, "reward": "none"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = resolve("BoxImageWall", "emi", SIZES)
    return run(config, tmp_path_factory.mktemp("trained") / "run").directory.path


@pytest.mark.parametrize("planner", ["straight", "greedy", "graph"])
def test_a_path_and_its_figure(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], planner: str
) -> None:
    before = sorted(path for path in trained.rglob("*"))
    words = ["--planner", planner, "--data", "200", "--max-steps", "3", "--goal", "150"]
    assert main(["plan", str(trained), *words, "--out", str(tmp_path / "x.gif")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"(goal reached|[\d.]+ steps from the goal) after \d steps: ", said)
    steps = int(re.findall(r"after (\d) steps", said)[0])
    assert len(imageio.mimread(tmp_path / "x.gif")) == steps + 1
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert sorted(path for path in trained.rglob("*")) == before  # the run is not changed
    stored = read_plan_file(tmp_path / "x.safetensors")
    assert stored.title == f"{planner}, goal 150, seed 0"
    assert len(stored.phi) == steps + 1
    assert stored.plan.shape[1] == stored.visited.shape[1] == 2


def test_a_title_is_a_line_without_formulas(tmp_path: Path) -> None:
    zeros = np.zeros((2, 3))
    path = PlannedPath(zeros, zeros, zeros, np.zeros(2))
    write_plan(path, tmp_path / "x.safetensors", "goal $x$\n.npy")
    assert read_plan_file(tmp_path / "x.safetensors").title == "goal x.npy"


def test_a_goal_from_a_file(trained: Path, tmp_path: Path) -> None:
    goal = np.zeros((1, 52, 52), np.uint8)
    np.save(tmp_path / "goal.npy", goal)
    options = {"data": 200, "max_steps": 2}
    path = plan(trained, tmp_path / "x.gif", str(tmp_path / "goal.npy"), **options)
    assert len(path.distance) == len(path.phi) == path.steps + 1
    np.testing.assert_array_equal(path.plan[0], path.phi[0])
    np.save(tmp_path / "goal.npy", goal[:, :5])
    with pytest.raises(UserError, match=r"must hold an observation of shape \(1, 52, 52\)"):
        plan(trained, tmp_path / "x.gif", str(tmp_path / "goal.npy"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--goal", "there"], "--goal takes a .npy file, random, or an index from 0 to 29,999"),
        (["--goal", "30000"], "--goal takes a .npy file, random, or an index from 0 to 29,999"),
        (["--goal", "no.npy"], "cannot read the goal no.npy"),
        (["--planner", "best"], "unknown planner 'best': choose one of straight, greedy, graph"),
        (["--out", "x.avi"], "a video is .mp4 or .gif"),
        (["--data", "0"], "--data must be positive, got 0"),
    ],
)
def test_wrong_input_is_one_sentence(
    trained: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["plan", str(trained), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_only_emi_has_an_embedding(tmp_path: Path) -> None:
    config = resolve("gym:Pendulum-v1", "rnd", SIZES)
    run(config, tmp_path / "run")
    with pytest.raises(UserError, match="a run of rnd: only emi has an embedding"):
        plan(tmp_path / "run", tmp_path / "x.gif")
