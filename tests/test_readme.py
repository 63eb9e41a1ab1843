"""The README tells the truth: its snippets run, its table is the committed one, its links lead."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import emi

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_bonus_in_six_lines() -> None:
    envs = emi.make_vec("SparseHalfCheetah", num_envs=2)
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 8, 20)).astype(np.float32)
    action = rng.uniform(-1, 1, (8, 6)).astype(np.float32)
    scope = {"envs": envs, "obs": obs, "action": action, "next_obs": next_obs}
    scope["reward_env"] = np.zeros(8)  # type: ignore[assignment]
    exec(SNIPPETS[0], scope)
    reward = scope["reward"]
    assert reward.shape == (8,)
    assert (reward > 0).all()
    assert len(SNIPPETS[0].strip().splitlines()) == 6


def test_training_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert "steps=5_000_000" in SNIPPETS[1]
    exec(SNIPPETS[1].replace("5_000_000", "5_000"), {"emi": emi})
    assert capsys.readouterr().out == "1 0.0\n"


def test_the_table_is_the_one_that_the_committed_runs_give() -> None:
    table = (ROOT / "results/figures/table_1.md").read_text(encoding="utf-8")
    (ours,) = re.findall(r"\*\*SparseHalfCheetah, 5M steps\*\*\n\n(.*?)\n\n", table, re.DOTALL)
    rows = [line for line in ours.splitlines() if line.startswith("|")]
    assert len(rows) >= 5
    for row in rows:
        assert row in README.splitlines()


def test_the_table_of_another_trainer_is_the_committed_one() -> None:
    table = (ROOT / "results/figures/sb3_success.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    for row in rows:
        assert row in README.splitlines()


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(targets) > 10
    for target in targets:
        assert (ROOT / target).exists(), target
