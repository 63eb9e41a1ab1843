"""The pages in docs/ are true: their Python runs, and the names they list exist."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import emi
from emi.batch import Transitions
from emi.cli import main
from emi.intrinsic.contract import find_method
from emi.intrinsic.table import METHODS

DOCS = Path(__file__).parents[1] / "docs"
METHOD_PAGES = sorted((DOCS / "methods").glob("*.md"))
WITH_BONUS = [name for name, entry in METHODS.items() if entry.home is not None]
SPACES = Box(-np.inf, np.inf, (4,)), Box(-1, 1, (2,))


def page_of(method: str) -> str:
    """The page of a method: `docs/methods/<file of its class>.md`."""
    home = METHODS[method].home
    assert home is not None
    stem = home.partition(":")[0].rpartition(".")[2]
    return (DOCS / "methods" / f"{stem}.md").read_text(encoding="utf-8")


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 20, 4)).astype(np.float32)
    return {"obs": obs, "action": rng.uniform(-1, 1, (20, 2)), "next_obs": next_obs}


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_method_page_runs(page: Path) -> None:
    snippets = python_blocks(page)
    assert snippets
    for snippet in snippets:
        env = SimpleNamespace(single_observation_space=SPACES[0], single_action_space=SPACES[1])
        names: dict[str, Any] = {"env": env, "envs": env, **columns()}
        names |= {"env_index": np.arange(20) % 2, "ended": np.arange(20) > 17}
        exec(snippet, names)
        assert names["bonus"].shape == (20,)
        assert torch.isfinite(names["bonus"]).all()
        assert names["scalars"]


@pytest.mark.parametrize("method", WITH_BONUS)
def test_a_method_page_lists_every_scalar_and_setting(method: str) -> None:
    page, config = page_of(method), emi.preset("SparseHalfCheetah", method).intrinsic
    built = find_method(method)._replace(config=config).build(*SPACES, seed=0)
    assert built is not None
    for name in built.learn(Transitions(**columns())):
        assert f"`{name}`" in page
    if not isinstance(config, emi.EMIConfig):  # whose settings are documented in docs/api.md
        for field in dataclasses.fields(config):
            assert f"`{field.name}`" in page, field.name
    assert f"--method {method}" in page


def test_the_python_of_the_trainers_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    for snippet in python_blocks(DOCS / "trainers.md"):
        exec(snippet, scope)
    assert scope["reward"].shape == (256,)
    assert (scope["reward"] > 0).all()
    assert "✓ advantages" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_the_architecture_page_lists_every_column_of_metrics(kind: str) -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text.split("### Columns of metrics.csv")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]*) \|", table, re.M)
    listed = {name for cell in first_cells for name in re.findall(r"`([\w/]+)`", cell)}
    # With all options: they add columns.
    small = {"steps_per_iteration": 40, "num_envs": 2, "threads": 1, "preset": "robust"}
    cheetah = {"steps": 40, "value": {"kind": kind}, "coverage": True, "normalize_bonus": True}
    (report, *_) = emi.train("SparseHalfCheetah", **cheetah, **small)
    # The run adds the times; images have one more.
    assert set(report.metrics) | {"seconds", "steps_per_second", "coverage/frames"} == listed


def test_links_between_pages_resolve() -> None:
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "CONTRIBUTING.md", DOCS.parent / "README.md"]
    checked = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target, _, anchor in re.findall(r"\]\(([\w./-]*)(#([\w.-]+))?\)", text):
            goal = page if target == "" else page.parent / target
            assert goal.exists(), f"{page.name}: {target}"
            if anchor and goal.suffix == ".md":
                headings = re.findall(r"^#+ (.+)$", goal.read_text(encoding="utf-8"), re.M)
                assert anchor in map(github_anchor, headings), f"{page.name}: {target}#{anchor}"
            checked += 1
    assert checked > 100


def github_anchor(heading: str) -> str:
    """The address that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_commands_of_the_environments_page_make_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "environments.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    wrapper = "\n\nclass Penalty(gymnasium.Wrapper):\n    pass\n"
    (tmp_path / "my_env.py").write_text(source + wrapper)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    lines = [line.partition("  #")[0] for line in re.findall(r"^\./emi (train .*)$", page, re.M)]
    assert len(lines) == 13
    try:
        for line in lines:
            assert main([*shlex.split(line), "--print-config"]) == 0
            assert json.loads(capsys.readouterr().out)["env"] == shlex.split(line)[1]
        small = ["--steps", "100", "--set", "steps_per_iteration=100", "num_envs=2"]
        assert main(["train", "gym:my_env:Corridor-v0", "--method", "simhash", *small]) == 0
    finally:
        sys.modules.pop("my_env", None)
        gymnasium.registry.pop("Corridor-v0", None)
