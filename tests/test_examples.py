"""Every example runs from the command line, and example 5's method works everywhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import PPO

import emi
from emi.adapters import IntrinsicRewardCallback
from emi.runs.checkpoint import load_latest, save
from emi.training.presets import resolve
from emi.training.trainer import Trainer

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# Shorter than what a reader runs, and a line that shows that something was learnt or found.
SHORT = {
    "01_train": (["--steps", "10000"], r"10,000 +0\.0 +0\.\d+   state 0\.\d+, action -?0\.\d+"),
    "02_own_environment": (["--steps", "3000"], r"simhash: share of episodes .*: 0\.00"),
    "03_stable_baselines3": (["--steps", "8192"], r"\d of the last \d+ episodes reached the flag"),
    "04_plain_loop": (
        ["--steps", "4096"],
        r"4,096 steps   return +\S+   bonus 0\.\d+   farthest -",
    ),
    "05_new_method": ([], r"(?s)✓ ranks .* in 9\d%.*20,000   0\.0\d+ +229"),
    "06_off_policy": (
        ["--steps", "650"],
        r"bonus 0\.0\d+[1-9]\d*, share 0\.[1-9]\d?\n0 of the last 0",
    ),
    "07_torchrl": (["--steps", "4096"], r"4,096 steps   bonus 0\.0\d+\n0 of \d episodes reached"),
    "08_skrl": (["--steps", "8192"], r"8,192 steps   bonus 0\.0\d+\n0 of the last 8 episodes"),
}


def test_each_has_a_number_and_a_test() -> None:
    assert [path.stem for path in EXAMPLES] == list(SHORT)


def run(*arguments: str) -> str:
    """The output of Python in the examples folder; warnings are errors."""
    # TorchRL warns about its own classes when it is imported.
    filters = ("-W", "error", "-W", "ignore:Creating:DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *filters, *arguments], capture_output=True, text=True, cwd=FOLDER
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", SHORT)
def test_an_example(name: str) -> None:
    arguments, line = SHORT[name]
    out = run(f"{name}.py", *arguments)
    assert re.search(line, out), out


@pytest.fixture(scope="module")
def new_method() -> ModuleType:
    spec = importlib.util.spec_from_file_location("new_method", FOLDER / "05_new_method.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["new_method"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def walk(n: int) -> emi.Transitions:
    """A walk along one entry; s' of the first ten rows lies in one cell."""
    obs = np.zeros((n, 2), np.float32)
    obs[:, 0] = 0.1 * np.arange(n)
    return emi.Transitions(obs, np.zeros(n, np.int64), obs + np.float32([0.1, 0]))


def test_the_counts_of_the_new_method_by_hand(new_method: ModuleType) -> None:
    unbounded = Box(-np.inf, np.inf, (2,))
    method = new_method.GridCounts(unbounded, Discrete(2))  # cells of length 1 in [−10, 10]
    bonus, scalars = emi.score_and_learn(method, walk(9))
    assert bonus.tolist() == [1.0] * 9
    assert scalars == {"counts/cells_seen": 1.0}
    assert method.reward(walk(9)).tolist() == pytest.approx([10**-0.5] * 9)
    far = emi.Transitions(np.zeros((2, 2)), np.zeros(2), np.array([[99.0, 0.0], [-np.inf, 5.0]]))
    assert method.reward(far).tolist() == [1.0, 1.0]
    with pytest.raises(emi.UserError, match="GridCounts needs vectors, got Discrete"):
        new_method.GridCounts(Discrete(3), Discrete(2))


def test_the_new_method_in_a_weighted_sum(new_method: ModuleType) -> None:
    spaces = Box(-np.inf, np.inf, (2,)), Discrete(2)
    counts = new_method.GridCounts(*spaces)
    both = emi.WeightedSum(
        {"counts": (counts, 0.5), "rnd": (emi.NormalizeReward(emi.RND(*spaces)), 0.1)}
    )
    bonus, scalars = emi.score_and_learn(both, walk(9))
    assert scalars["sum/counts_mean"] == 0.5
    assert bonus.mean() > 0.5


def test_the_new_method_in_stable_baselines3(new_method: ModuleType) -> None:
    model = PPO("MlpPolicy", "MountainCarContinuous-v0", n_steps=64, device="cpu", seed=0)
    method = new_method.GridCounts(model.observation_space, model.action_space)
    model.learn(128, callback=IntrinsicRewardCallback(method, 1.0), log_interval=10**6)
    assert method.counts.sum() == 128
    assert model.logger.name_to_value["counts/cells_seen"] > 1


@pytest.mark.parametrize("env", ["gym:MountainCarContinuous-v0", "SparseHalfCheetah"])
def test_the_new_method_trains_and_resumes_bit_for_bit(
    new_method: ModuleType, env: str, tmp_path: Path
) -> None:
    settings = {"steps": 1_500, "steps_per_iteration": 500, "num_envs": 5}
    straight = list(emi.train(env, new_method.GridCounts, **settings))
    assert [report.steps for report in straight] == [500, 1_000, 1_500]
    assert straight[0].metrics["bonus_mean"] == 1.0

    config = resolve(env, new_method.GridCounts, settings)
    first = Trainer(config, new_method.GridCounts)
    assert repr(first.iterate().metrics) == repr(straight[0].metrics)
    save(tmp_path, 1, first.state_dict())
    first.close()
    second = Trainer(config, new_method.GridCounts)
    second.load_state_dict(load_latest(tmp_path).state)
    for report in straight[1:]:
        assert repr(second.iterate().metrics) == repr(report.metrics)  # NaN before an episode ends
    second.close()


def test_the_new_method_on_the_command_line(tmp_path: Path) -> None:
    out = run(
        "-m", "emi", "train", "gym:MountainCarContinuous-v0", "--method",
        "05_new_method:GridCounts", "--steps", "1000", "--out", str(tmp_path / "run"),
        "--set", "steps_per_iteration=500",
    )  # fmt: skip
    assert "complete: 2 iterations" in out
    state = load_latest(tmp_path / "run" / "checkpoints").state
    assert state["intrinsic"]["counts"].sum() == 1_000
    assert isinstance(state["intrinsic"]["multipliers"], torch.Tensor)
