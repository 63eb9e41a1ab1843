"""docs/planning.md: its Python runs."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "planning.md"


def test_the_python_of_the_page_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    rng = np.random.default_rng(0)
    obs, goal_obs = rng.normal(size=(2, 4, 3)).astype(np.float32)
    data = rng.normal(size=(2, 300, 3)).astype(np.float32)
    names = {
        "obs": obs,
        "goal_obs": goal_obs,
        "states": data[0],
        "next_states": data[1],
        "actions": rng.uniform(-1, 1, (300, 2)).astype(np.float32),
        "ended": np.arange(300) % 30 == 29,
    }
    exec(snippet, names)
    assert names["action"].shape == (4, 2)
