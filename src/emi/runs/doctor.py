"""`emi doctor`: check what training needs, and say how to install what is missing."""

import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from emi import envs
from emi.envs.table import ENVIRONMENTS, Environment
from emi.training.config import usable_cores

_SIGNS = {"good": "✓", "bad": "✗", "absent": "–"}
_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """The result of one check; `absent` is optional, `bad` prevents training."""

    name: str
    state: Literal["good", "bad", "absent"]
    detail: str


def examine() -> list[Finding]:
    """Run all checks, in the order in which they depend on each other."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("Python", _python),
        ("cores", _cores),
        ("PyTorch", _torch),
        *_simulators(),
        ("rendering", _rendering),
        ("video", partial(_optional, "video", "imageio", "to write videos")),
        ("display", partial(_optional, "display", "rich", "for the live display")),
        ("TensorBoard", partial(_optional, "TensorBoard", "tensorboard", "for its events")),
        ("disk", _disk),
    ]
    return [_guarded(name, check) for name, check in checks]


def report(findings: list[Finding]) -> int:
    """Print one line per finding; return 1 if training is not possible."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_SIGNS[finding.state]} {finding.name:<{width}}  {finding.detail}")
    return 1 if any(finding.state == "bad" for finding in findings) else 0


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """Report an exception of a check as a finding."""
    try:
        return check()
    except Exception as error:
        return Finding(name, "bad", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _python() -> Finding:
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("Python", "bad", f"{platform.python_version()} is too old: install 3.11")
    return Finding("Python", "good", platform.python_version())


def _cores() -> Finding:
    return Finding("cores", "good", f"{usable_cores()} usable of {os.cpu_count()}")


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("PyTorch", "bad", f"{error}: pip install torch")
    solved = torch.linalg.solve(torch.eye(3) * 2, torch.ones(3))
    if not torch.equal(solved, torch.full((3,), 0.5)):
        return Finding("PyTorch", "bad", f"{torch.__version__} solves 2x = 1 wrongly: reinstall it")
    cuda = "with CUDA" if torch.cuda.is_available() else "without CUDA"
    threads = torch.get_num_threads()
    return Finding("PyTorch", "good", f"{torch.__version__}, {threads} threads, {cuda}")


def _simulators() -> Iterator[tuple[str, Callable[[], Finding]]]:
    """Yield one check per extra of the table of environments."""
    for extra in dict.fromkeys(entry.extra for entry in ENVIRONMENTS.values()):
        if extra is not None:
            members = {n: entry for n, entry in ENVIRONMENTS.items() if entry.extra == extra}
            yield extra, partial(_simulator, extra, members)


def _simulator(extra: str, members: dict[str, Environment]) -> Finding:
    """Take one step in the first environment of each class in `members`."""
    simulator = next(iter(members.values())).simulator
    assert simulator is not None, "an extra installs a simulator"
    first: dict[str, str] = {}
    for name, entry in members.items():
        first.setdefault(entry.home, name)
    try:
        version = getattr(importlib.import_module(simulator), "__version__", "")
    except ModuleNotFoundError:
        needed = f"no {simulator}, for {', '.join(members)}"
        return Finding(extra, "absent", f"{needed}: pip install 'emi-rl[{extra}]'")
    for name in first.values():
        with closing(envs.make_vec(name, 1, threads=1)) as env:
            env.reset(seed=0)
            env.step(env.action_space.sample())
    stepped = " and ".join(first.values())
    return Finding(extra, "good", f"{simulator} {version}, took a step in {stepped}")


def _rendering() -> Finding:
    from emi.envs.rendering import rendering_backend

    try:
        return Finding("rendering", "good", rendering_backend())
    except (RuntimeError, ImportError) as error:
        return Finding("rendering", "absent", f"needed only by 'emi watch': {error}")


def _optional(name: str, module: str, purpose: str) -> Finding:
    try:
        importlib.import_module(module)
    except ImportError:
        return Finding(name, "absent", f"no {module}, {purpose}: pip install 'emi-rl[train]'")
    return Finding(name, "good", module)


def _disk() -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            file.write(b"x" * 1024)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        detail = f"cannot write here: {error.strerror}: use another directory"
        return Finding("disk", "bad", detail)
    return Finding("disk", "good", "this directory is writable")
