"""Every example runs, from the command line, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
# Shorter than what a reader runs, and a line that shows that something was learnt or found.
SHORT = {
    "01_train": (["--steps", "10000"], r"10,000 +0\.0 +0\.\d+   state 0\.\d+, action -?0\.\d+"),
    "02_own_environment": (["--steps", "3000"], r"simhash: share of episodes .*: 0\.00"),
    "03_stable_baselines3": (["--steps", "8192"], r"\d of the last \d+ episodes reached the flag"),
    "04_plain_loop": (
        ["--steps", "4096"],
        r"4,096 steps   return +\S+   bonus 0\.\d+   farthest -",
    ),
    "05_new_method": ([], r"✓ ranks +an unseen transition is paid more than a seen one in 9\d%"),
}


def test_each_has_a_number_and_a_test() -> None:
    assert [path.stem for path in EXAMPLES] == list(SHORT)


@pytest.mark.parametrize("name", SHORT)
def test_an_example(name: str) -> None:
    words, line = SHORT[name]
    (path,) = (path for path in EXAMPLES if path.stem == name)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *words], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert re.search(line, done.stdout), done.stdout
