"""Environments with several discrete choices per step: learned, stopped and resumed, watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete, Space

from emi.intrinsic.table import METHODS
from emi.runs.checkpoint import load_latest, save
from emi.runs.run import run
from emi.runs.watch import watch
from emi.training.config import TrainConfig
from emi.training.presets import resolve
from emi.training.trainer import Trainer

LOCKS: dict[str, Space] = {
    "digits": MultiDiscrete([3, 2, 2], start=[1, 0, 5]),
    "table": MultiDiscrete(np.array([[3, 2], [2, 2]])),
    "switches": MultiBinary(4),
    "panel": MultiBinary((2, 2)),
}
STEPS = 8  # of an episode


class Lock(gymnasium.Env[np.ndarray, np.ndarray]):
    """Repeat the combination that is shown; the reward is the share of its entries that are right.

    The observation is the combination, with each entry scaled to [0, 1].
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        self.action_space, self.render_mode = LOCKS[name], render_mode
        space = self.action_space
        self.shape, self.last = space.shape, 1
        self.first = space.start if isinstance(space, MultiDiscrete) else np.zeros(space.shape)
        if isinstance(space, MultiDiscrete):
            self.last = space.nvec - 1
        self.observation_space = Box(0, 1, (int(np.prod(space.shape)),), np.float32)
        self.step_count = 0

    def _show(self) -> np.ndarray:
        self.code = self.np_random.integers(0, self.last, self.shape, endpoint=True)
        return (self.code / self.last).astype(np.float32).reshape(-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.step_count = 0
        return self._show(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), action  # its dtype and shape, too
        self.step_count += 1
        right = float(np.mean(action - self.first == self.code))
        return self._show(), right, False, self.step_count == STEPS, {}

    def render(self) -> np.ndarray:
        return np.full((32, 32, 3), 20 * self.step_count, np.uint8)


@pytest.fixture(autouse=True)
def _locks() -> Iterator[None]:
    for name in LOCKS:
        gymnasium.register(f"test/{name}-v0", entry_point=Lock, kwargs={"name": name})
    yield
    for name in LOCKS:
        del gymnasium.registry[f"test/{name}-v0"]


def small(name: str, method: str, **settings: Any) -> TrainConfig:
    sizes = {"steps_per_iteration": 320, "num_envs": 4, "threads": 1}
    own = {
        "ex2": {"intrinsic.min_replay": 300, "intrinsic.first_updates": 5, "intrinsic.updates": 5},
        "vime": {"intrinsic.min_replay": 300, "intrinsic.updates": 5},
        "ae-simhash": {"intrinsic.ae_updates": 5},
    }
    return resolve(f"gym:test/{name}-v0", method, sizes | own.get(method, {}) | settings)


@pytest.mark.parametrize("name", LOCKS)
def test_the_policy_learns_every_entry(name: str) -> None:
    """Chance is the mean of 1 / choices; each entry alone is at least one quarter of the reward."""
    # A step does not depend on earlier ones: a low discount keeps their noise out.
    quick = {"discount": 0.1, "trpo.max_kl": 0.1}
    trainer = Trainer(small(name, "trpo", steps=12_000, steps_per_iteration=800, **quick))
    returns = [trainer.iterate().metrics["return_mean"] / STEPS for _ in range(15)]
    trainer.close()
    assert returns[0] < 0.65
    assert returns[-1] > 0.95


@pytest.mark.parametrize("name", ["digits", "panel"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_resumes_bit_for_bit(
    name: str, method: str, tmp_path: Path
) -> None:
    config = small(name, method, steps=4 * 320)
    straight, first, resumed = (Trainer(config) for _ in range(3))
    expected = [straight.iterate().metrics for _ in range(4)]
    assert expected[-1]["kl"] > 0
    before = [first.iterate().metrics for _ in range(2)]
    save(tmp_path, 2, first.state_dict())
    resumed.load_state_dict(load_latest(tmp_path).state)
    after = [resumed.iterate().metrics for _ in range(2)]
    np.testing.assert_equal([*before, *after], expected)
    for ours, theirs in zip(resumed.policy.parameters(), straight.policy.parameters(), strict=True):
        assert bool((ours == theirs).all())
    for trainer in (straight, first, resumed):
        trainer.close()


@pytest.mark.parametrize("name", ["table", "switches"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_is_trained_and_watched(name: str, deterministic: bool, tmp_path: Path) -> None:
    config = small(name, "icm", steps=2 * 320)
    assert run(config, tmp_path / "run").complete
    episode = watch(tmp_path / "run", tmp_path / "video.gif", deterministic=deterministic)
    assert episode.steps == STEPS
    assert 0 < episode.total_reward < STEPS
