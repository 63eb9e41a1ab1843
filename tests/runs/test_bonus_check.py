"""`emi doctor --bonus DIR` diagnoses the bonus of a run and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from emi.batch import Transitions
from emi.cli import main
from emi.runs import bonus_check
from emi.runs.bonus_check import diagnose_next_batch
from emi.runs.run import run
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SIZES = {"steps": 300, "steps_per_iteration": 300, "num_envs": 3, "threads": 1}


def test_the_bonus_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, code in (("rnd", 0), ("ex2", 1)):
        config = resolve("SparseHalfCheetah", method, SIZES)
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
    asked = "all bonuses are 0: does the method need more transitions before it gives a bonus?"
    assert f"✗ share       {asked}" in said


def test_a_run_without_a_bonus_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(resolve("SparseHalfCheetah", "trpo", SIZES), tmp_path / "run")
    capsys.readouterr()
    assert main(["doctor", "--bonus", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "emi: trpo has no bonus: give a run of another method\n"


def test_the_bonus_is_compared_with_the_clipped_reward() -> None:
    shares = []
    for clip in (True, False):
        trainer = Trainer(resolve("gym:Pendulum-v1", "emi", SIZES | {"clip_rewards": clip}))
        shares.append(diagnose_next_batch(trainer, passes=1).answers["share"].value)
        trainer.close()
    # The pendulum's reward is down to -16 per step; clamped, it is at least -1.
    assert shares[0] > 2 * shares[1]


class Countdown(gymnasium.Env):
    """Episodes of four steps with the rewards 0, 1, 2, 3."""

    observation_space, action_space = Box(0, 10, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        return np.array([self.clock], np.float32), self.clock - 1.0, self.clock == 4, False, {}


def test_a_diagnosis_samples_some_environments_and_does_not_advance_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bonus_check, "SAMPLE", 40)
    monkeypatch.setitem(
        gymnasium.registry,
        "Countdown-v0",
        gymnasium.envs.registration.EnvSpec("Countdown-v0", Countdown),
    )
    sizes = SIZES | {"steps": 180, "steps_per_iteration": 60}
    diagnosed, plain = (Trainer(resolve("gym:Countdown-v0", "emi", sizes)) for _ in range(2))
    given: dict[str, Any] = {}

    def diagnose(method: Any, transitions: Transitions, **options: Any) -> Any:
        given.update(options, transitions=transitions)

    monkeypatch.setattr(bonus_check, "diagnose", diagnose)
    diagnose_next_batch(diagnosed)
    env = np.asarray(given["transitions"].env_index)
    assert len(given["transitions"]) == len(given["reward"]) == 40
    assert set(env) == {0, 1}
    for index in range(2):  # the first 20 steps, in the order of time
        assert given["reward"][env == index].tolist() == [0.0, 1.0, 2.0, 3.0] * 5
    # The advantages are those of the same rows: a reward at the third step of the second episode
    # of environment 1 changes the advantages of the first three steps of that episode only.
    zero, one = np.zeros(40), np.zeros(40)
    rows = np.flatnonzero(env == 1)
    one[rows[6]] = 1.0
    changed = np.flatnonzero(given["advantages"](one) != given["advantages"](zero))
    assert changed.tolist() == rows[4:7].tolist()
    first, second = diagnosed.iterate().metrics, plain.iterate().metrics
    assert {k: v for k, v in first.items() if v == v} == {k: v for k, v in second.items() if v == v}
    diagnosed.close()
    plain.close()
