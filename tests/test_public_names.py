"""The public names of `emi`: exactly those of the stub, each importable, all in the wheel."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import emi

ROOT = Path(__file__).parents[1]
PACKAGE = Path(emi.__file__).parent
STUB = ast.parse((PACKAGE / "__init__.pyi").read_text())
HOMES = {
    alias.asname: node.module
    for node in STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def test_the_names_are_those_of_the_stub() -> None:
    assert emi.__all__ == sorted(HOMES)
    assert len(HOMES) == len(set(HOMES)) > 20
    assert {"EMI", "TrainConfig", "preset", "train", "make_vec", "UserError"} <= HOMES.keys()
    assert dir(emi) == sorted([*HOMES, "__all__", "__version__"])
    namespace: dict[str, object] = {}
    exec("from emi import *", namespace)
    assert namespace.keys() - {"__builtins__"} == HOMES.keys()


def test_no_name_is_also_a_module() -> None:
    """`emi.train` would otherwise change its meaning when a module of that name is imported."""
    assert not HOMES.keys() & {path.stem for path in PACKAGE.iterdir()}


@pytest.mark.parametrize("name", sorted(HOMES))
def test_every_name_is_imported_from_the_module_that_defines_it(name: str) -> None:
    public = getattr(emi, name)
    assert public.__name__ == name
    assert public.__module__ == HOMES[name]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'emi' has no attribute 'emo'$"):
        emi.emo  # noqa: B018


def test_import_emi_imports_nothing_slow() -> None:
    code = "import sys, emi; sys.exit(not sys.modules.keys().isdisjoint({'torch', 'mujoco'}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_wheel_contains_the_stub() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = settings["tool"]["setuptools"]["package-data"]["emi"]
    assert {"py.typed", "__init__.pyi"} <= set(data)
    for pattern in data:
        assert list(PACKAGE.glob(pattern)), pattern
