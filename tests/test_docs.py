"""The pages of docs/methods are true: their Python runs, their names exist."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from emi.batch import Transitions
from emi.intrinsic.contract import find_method
from emi.intrinsic.table import METHODS
from emi.training.presets import preset

PAGES = sorted((Path(__file__).parents[1] / "docs" / "methods").glob("*.md"))
SPACES = Box(-np.inf, np.inf, (4,)), Box(-1, 1, (2,))


def page_of(method: str) -> str:
    stem = {"emi-d": "emi", "ae-simhash": "simhash"}.get(method, method)
    return next(page.read_text() for page in PAGES if page.stem == stem)


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 20, 4)).astype(np.float32)
    return {"obs": obs, "action": rng.uniform(-1, 1, (20, 2)), "next_obs": next_obs}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_python_runs(page: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert snippets
    for snippet in snippets:
        env = SimpleNamespace(single_observation_space=SPACES[0], single_action_space=SPACES[1])
        names: dict[str, Any] = {"env": env, "envs": env, **columns()}
        names["env_index"] = np.arange(20) % 2
        exec(snippet, names)
        assert names["bonus"].shape == (20,)
        assert torch.isfinite(names["bonus"]).all()
        assert names["scalars"]


@pytest.mark.parametrize("method", [name for name in METHODS if name != "trpo"])
def test_every_scalar_and_setting_has_its_line(method: str) -> None:
    page, config = page_of(method), preset("SparseHalfCheetah", method).intrinsic
    assert config is not None
    built = find_method(method)._replace(config=config).build(*SPACES, seed=0)
    assert built is not None
    for name in built.learn(Transitions(**columns())):
        assert f"`{name}`" in page
    if method not in ("emi", "emi-d"):  # whose settings are documented in EMIConfig
        for field in dataclasses.fields(config):
            assert f"`{field.name}`" in page, field.name
    assert f"--method {method}" in page


def test_the_snippets_for_trainers_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs" / "trainers.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    for snippet in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(snippet, scope)
    assert scope["reward"].shape == (256,)
    assert (scope["reward"] > 0).all()
    assert "✓ advantages  the bonus moves an advantage by" in capsys.readouterr().out
