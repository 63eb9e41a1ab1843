"""Exploration with Mutual Information: intrinsic rewards for sparse-reward tasks.

The public names are listed once, in `__init__.pyi`, where type checkers read them. Each is imported
when it is first used: PyTorch takes seconds to import, and `emi --help` must not wait for it.
"""

from emi import start

if start.is_program():
    start.begin()  # before the other imports, which take time

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

if not start.is_program():  # the command imports it when it needs an environment
    import emi.envs  # noqa: F401 - registers our environments with Gymnasium

__version__ = "0.1.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for alias in node.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'emi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__version__"]
