"""Commands that only print answer without waiting for slow packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = (
    *("torch", "scipy", "matplotlib", "mujoco", "ale_py", "ray", "tensorboard", "rich"),
    *("stable_baselines3", "sb3_contrib", "imageio", "PIL", "safetensors"),
)


def imported(*arguments: str) -> set[str]:
    """The top-level modules that Python imports, of a process that must succeed."""
    command = [sys.executable, "-X", "importtime", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["methods"],
        ["envs"],
        *([name, "--help"] for name in ("train", "resume", "watch", "sweep", "report", "doctor")),
        ["paper", "--help"],
    ],
)
def test_a_command_that_prints_imports_nothing_slow(words: list[str]) -> None:
    found = imported("-m", "emi", *words)
    assert "argparse" in found
    assert found.isdisjoint(SLOW)
    assert "gymnasium" not in found or words == ["envs"]  # whose table is in a package that uses it


def test_the_package_imports_nothing_slow() -> None:
    found = imported("-c", "import emi")
    assert found.isdisjoint(SLOW)
    assert "gymnasium" in found  # so that gymnasium.make finds our environments
