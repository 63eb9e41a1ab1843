"""CONTRIBUTING.md lists truly which files an addition touches: each is made here, in a copy.

The copy holds src/ and tests/. A test edits only files that the list names, and then uses what it
added in every way a user would.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

METHOD = '''
"""Step length: rewards transitions by the distance they cover.

A method of the test suite."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import torch
from torch import Tensor

from emi.batch import Transitions, as_tensor
from emi.intrinsic.contract import IntrinsicReward
from emi.settings import PositiveFloat


@dataclass(frozen=True)
class StepLengthConfig:
    """Settings of `StepLength`."""

    unit: PositiveFloat = 2.0
    """length that is worth a bonus of 1"""


class StepLength(IntrinsicReward):
    """Scalars of `learn`: `step_length/longest`, the longest step so far."""

    longest: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: StepLengthConfig = StepLengthConfig(),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("longest", torch.zeros(()))

    def reward(self, batch: Transitions) -> Tensor:
        obs, next_obs = (as_tensor(rows, self.device) for rows in (batch.obs, batch.next_obs))
        return (next_obs.float() - obs.float()).flatten(1).norm(dim=1) / self.config.unit

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.longest = torch.maximum(self.longest, self.config.unit * self.reward(batch).max())
        return {"step_length/longest": self.longest.item()}
'''
METHOD_ENTRY = """    "step-length": MethodEntry(
        "Step length", "the distance a step covers", "emi.intrinsic.step_length:StepLength"
    ),
"""
ENVIRONMENT = '''
"""A line to walk along; the far end pays. An environment of the test suite."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class LineEnv(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.position = render_mode, np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = np.zeros(1, np.float32)
        return self.position.copy(), {}

    def step(self, action: Any) -> Any:
        self.position = np.clip(self.position + action, -10, 10).astype(np.float32)
        return self.position.copy(), float(self.position[0] > 9), False, False, {}

    def render(self) -> Any:
        picture = np.zeros((16, 64, 3), np.uint8)
        picture[:, int(32 + 3 * self.position[0])] = 255
        return picture


class LineVectorEnv(SyncVectorEnv):
    def __init__(self, num_envs: int = 1, threads: int | None = None) -> None:
        def make() -> gym.Env:
            return gym.wrappers.TimeLimit(LineEnv(), 50)

        super().__init__([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
'''
ENVIRONMENT_ENTRY = '    "Line": Environment("walk to the far end", "line:Line", 50),\n'
ENVIRONMENT_PRESET = """\
    "Line": _Preset(_VECTORS, _ETA, {"steps": 1_000, "steps_per_iteration": 500}),
"""
ADAPTER = '''
"""A bonus for a list of episodes. An adapter of the test suite."""

from __future__ import annotations

import numpy as np

from emi.batch import Array, Transitions
from emi.intrinsic.contract import IntrinsicReward, score_and_learn


def add_bonus(
    method: IntrinsicReward, eta: float, obs: Array, action: Array, reward: Array
) -> Array:
    """Rewards [n] of one episode with observations [n + 1, ...], with the bonus added."""
    ended = np.arange(len(action)) == len(action) - 1
    bonus, _ = score_and_learn(method, Transitions(obs[:-1], action, obs[1:], None, ended))
    return reward + eta * bonus.numpy()
'''


class Copy:
    """A copy of the project, and which files were touched in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("src/emi", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
        self.touched: set[str] = set()

    def write(self, file: str, text: str) -> None:
        assert not (self.root / file).exists()
        (self.root / file).write_text(text.lstrip())
        self.touched.add(file)

    def insert(self, file: str, before: str, text: str) -> None:
        """Insert `text` before the first line that starts with `before`."""
        path = self.root / file
        whole = path.read_text()
        assert f"\n{before}" in whole
        path.write_text(whole.replace(f"\n{before}", f"\n{text}{before}", 1))
        self.touched.add(file)

    def python(self, *words: str) -> str:
        """Output of python WORDS in the copy; a warning is an error."""
        places = os.pathsep.join([str(self.root / "src"), str(self.root / "tests")])
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", *words],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": places, "EMI_TRACEBACK": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def metrics(self, run: str) -> list[dict[str, str]]:
        with (self.root / run / "metrics.csv").open() as file:
            return list(csv.DictReader(file))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def listed_files(addition: str) -> list[str]:
    """Files in backticks in the section `## Add a …` of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## Add an? {addition}\n(.*?)(?=^## )", text, re.M | re.S)
    return re.findall(r"`((?:src|tests|docs)/[\w./<>-]+|pyproject\.toml)`", section)


def assert_listed(addition: str, touched: set[str]) -> None:
    """Every touched file is on the list, where <name> stands for any name."""
    patterns = [re.sub(r"<\w+>", r"\\w+", re.escape(file)) for file in listed_files(addition)]
    assert {file for file in touched if not any(re.fullmatch(p, file) for p in patterns)} == set()


def test_a_method_is_its_file_and_one_entry(copy: Copy) -> None:
    copy.write("src/emi/intrinsic/step_length.py", METHOD)
    copy.insert("src/emi/intrinsic/table.py", '    "trpo": MethodEntry(', METHOD_ENTRY)
    assert_listed("method", copy.touched)

    listed = copy.python("-m", "emi", "methods")
    assert re.search(r"^step-length +Step length: the distance a step covers$", listed, re.M)
    out = ("--out", "runs/line", "--threads", "1")
    train = ("train", "gym:MountainCarContinuous-v0", "--method", "step-length", *out)
    small = ("steps_per_iteration=200", "num_envs=2", "intrinsic.unit=0.5")
    copy.python("-m", "emi", *train, "--steps", "400", "--set", *small)
    rows = copy.metrics("runs/line")
    assert [float(row["step_length/longest"]) > 0 for row in rows] == [True, True]
    # bonus = length / unit, and no step is longer than the longest
    assert float(rows[0]["bonus_mean"]) <= float(rows[0]["step_length/longest"]) / 0.5
    copy.python("-m", "emi", "report", "runs/line", "--out", "page.html")
    assert "Step length" in copy.python(
        "-c", "from emi.intrinsic.table import title_of as t; print(t('step-length'))"
    )
    # The promises of the contract are tested for every method of the table.
    tested = copy.python(
        "-m",
        "pytest",
        "tests/intrinsic/test_contract.py",
        "-k",
        "step-length",
        "-p",
        "no:cacheprovider",
    )
    assert re.search(r"[1-9]\d* passed", tested) or "[100%]" in tested


def test_an_environment_is_its_file_one_entry_and_a_preset(copy: Copy) -> None:
    copy.write("src/emi/envs/line.py", ENVIRONMENT)
    copy.insert("src/emi/envs/table.py", '    "BoxImage": Environment(', ENVIRONMENT_ENTRY)
    copy.insert("src/emi/training/presets.py", '    "BoxImage": _Preset(', ENVIRONMENT_PRESET)
    assert_listed("environment", copy.touched)

    assert "Line  " in copy.python("-m", "emi", "envs")
    copy.python("-m", "emi", "train", "Line", "--out", "runs/line", "--threads", "1")
    assert [row["episodes"] for row in copy.metrics("runs/line")] == ["10", "10"]
    watched = copy.python("-m", "emi", "watch", "runs/line", "--out", "line.gif")
    assert "in 50 steps: line.gif" in watched


def test_an_adapter_is_its_file_and_one_line(copy: Copy) -> None:
    copy.write("src/emi/adapters/episodes.py", ADAPTER)
    copy.insert(
        "src/emi/adapters/__init__.py",
        "from emi.adapters.gymnasium",
        "from emi.adapters.episodes import add_bonus as add_bonus\n",
    )
    assert_listed("adapter", copy.touched)

    used = """
import emi, gymnasium, numpy as np
from emi.adapters import add_bonus
space = gymnasium.spaces.Box(-1, 1, (3,))
obs, action = np.ones((6, 3), "f"), np.ones((5, 3), "f")
reward = add_bonus(emi.EMI(space, space), 1.0, obs, action, np.zeros(5))
print(reward.shape, (reward >= 0).all())
"""
    assert copy.python("-c", used) == "(5,) True\n"


def test_a_metric_is_one_entry_where_it_is_measured(copy: Copy) -> None:
    copy.insert(
        "src/emi/training/trainer.py",
        '            "trpo/accepted"',
        '            "bonus_max": float(bonus.max()),\n',
    )
    assert_listed("metric", copy.touched)

    train = ("train", "gym:MountainCarContinuous-v0", "--out", "runs/car", "--threads", "1")
    copy.python(
        "-m", "emi", *train, "--steps", "400", "--set", "steps_per_iteration=200", "num_envs=2"
    )
    for row in copy.metrics("runs/car"):
        assert float(row["bonus_max"]) >= float(row["bonus_mean"])
