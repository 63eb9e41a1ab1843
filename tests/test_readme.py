"""The README is true: its code runs, its numbers are the committed ones, its links resolve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emi

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAIN, PLUG_IN, SB3 = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_training_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert "steps=5_000_000" in TRAIN
    exec(TRAIN.replace("5_000_000", "5_000"), {})
    assert capsys.readouterr().out == "1 0.0\n"


def test_the_bonus_in_six_lines() -> None:
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 8, 20)).astype(np.float32)
    scope: dict[str, Any] = {
        "envs": emi.make_vec("SparseHalfCheetah", num_envs=2),
        "obs": obs,
        "action": rng.uniform(-1, 1, (8, 6)).astype(np.float32),
        "next_obs": next_obs,
        "reward_env": np.full(8, 0.5),
        "eta": 0.25,
    }
    exec(PLUG_IN, scope)
    np.testing.assert_allclose(scope["reward"], 0.5 + 0.25 * scope["bonus"].numpy(), rtol=1e-6)
    assert scope["reward"].shape == (8,)
    assert (scope["reward"] > 0.5).all()
    assert len(PLUG_IN.strip().splitlines()) == 6


def test_the_stable_baselines3_callback() -> None:
    scope: dict[str, Any] = {}
    small = SB3.replace("200_000", "64").replace('-v0")', '-v0", n_steps=64, device="cpu")')
    exec(small, scope)
    assert scope["model"].num_timesteps == 64
    assert scope["method"].sums.count == 65  # every bonus, and the R_0 = 0 of the running scale


def test_the_table_is_the_one_of_the_committed_runs() -> None:
    table = (ROOT / "results/figures/table_1.md").read_text(encoding="utf-8")
    (ours,) = re.findall(r"\*\*SparseHalfCheetah, 5M steps\*\*\n\n(.*?)\n\n", table, re.DOTALL)
    rows = [line for line in ours.splitlines() if line.startswith("|")]
    assert len(rows) == 9  # header, rule and seven methods
    results = README.split("<!-- results:begin -->")[1].split("<!-- results:end -->")[0]
    assert [line for line in results.splitlines() if line.startswith("|")] == rows


@pytest.mark.parametrize(
    ("file", "committed", "stated"),
    [
        # A file below results/, a part of it, and how the README states it.
        (
            "figures/statistical_tests.md",
            ["| EMI | 15 | 115.0 [62.9, 169.0] |", "| 9/15 ["],
            "our mean over 15 seeds is 115.0 [62.9, 169.0]",
        ),
        (
            "figures/statistical_tests.md",
            ["| 9/15 [0.36, 0.80] | 0.14M", "| 8/15 [0.30, 0.75] | 0.32M"],
            "With 15 seeds, EMI solves the task in 9 and EX2 in 8 of them",
        ),
        (
            "figures/statistical_tests.md",
            ["2.62 (23.8) | 0.015 | 0.037 |", "2.70 (24.9) | 0.012 | 0.037 |"],
            "p = 0.037 for each",
        ),
        (
            "figures/robust.md",
            ["| EMI | 15 | 242.1 [191.4, 285.7] |", "| 14/15 [0.70, 0.99] |"],
            "242.1 [191.4, 285.7] | 14/15 [0.70, 0.99] |",
        ),
        ("figures/statistical_tests.md", ["-0.44 (27.2) | 0.66 | 0.66 |"], "p = 0.66"),
        (
            "figures/sb3_success.md",
            ["| -0.0 [-0.0, -0.0] | 0/5", "| PPO + EMI | 5 | 200,000 | 92.0 [91.3, 92.8] | 5/5"],
            "PPO solves MountainCarContinuous in 5 of 5 seeds; without the bonus in 0 of 5",
        ),
        ("speed/method_cost_vectors.txt", ["| ex2 | 1.97 | 1.78 | 2.71 | 6.8×"], "6.8 times"),
        (
            "speed/trpo_speed.txt",
            [
                "emi, TRPO                                                   109,207",
                "sb3, TRPO, 1 threads, sleeping:\n  emi, TRPO 7.8×",
                "our physics, 1 threads, sleeping:\n  emi, TRPO 6.1×",
            ],
            "| `emi`, TRPO | 109,207 | 7.8× | 6.1× |",
        ),
        (
            "speed/trpo_speed.txt",
            [
                "emi, EMI                                                     70,825",
                "emi, TRPO 7.8×;  emi, EMI 5.1×",
                "emi, TRPO 6.1×;  emi, EMI 3.9×",
            ],
            "| `emi`, EMI | 70,825 | 5.1× | 3.9× |",
        ),
    ],
)
def test_a_number_is_the_committed_one(file: str, committed: list[str], stated: str) -> None:
    text = (ROOT / "results" / file).read_text(encoding="utf-8")
    for part in committed:
        assert part in text
    assert stated in " ".join(README.split())


def test_links_resolve() -> None:
    targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", README)
    assert len(targets) > 20
    for target in targets:
        assert (ROOT / target).exists(), target
