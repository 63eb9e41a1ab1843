"""`emi doctor`: check what training needs, and say how to install what is missing."""

import importlib
import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from emi import bfloat16, envs, program
from emi.envs.table import ENVIRONMENTS, GYM_PREFIX, PACKAGES, Package
from emi.program import install
from emi.training.config import usable_cores

_SIGNS = {"good": "✓", "bad": "✗", "absent": "–"}
_OLDEST_PYTHON = (3, 11)

State = Literal["good", "bad", "absent"]
Result = tuple[State, str]  # and the detail


class Finding(NamedTuple):
    """The result of one check; `absent` is optional, `bad` prevents training."""

    name: str
    state: State
    detail: str


def examine() -> list[Finding]:
    """Run all checks, in the order in which they depend on each other."""
    extras = dict.fromkeys(entry.extra for entry in ENVIRONMENTS.values() if entry.extra)
    checks: dict[str, Callable[[], Result]] = {
        "Python": _python,
        "cores": lambda: ("good", f"{usable_cores()} usable of {os.cpu_count()}"),
        "PyTorch": _torch,
        "bfloat16": _bfloat16,
        **{extra: partial(_simulator, extra) for extra in extras},
        **{package.extra: partial(_package, package) for package in PACKAGES},
        "rendering": _rendering,
        "video": partial(_optional, "imageio", "to write videos"),
        "display": partial(_optional, "rich", "for the live display"),
        "TensorBoard": partial(_optional, "tensorboard", "for its events"),
        "disk": _disk,
    }
    return [Finding(name, *_guarded(check)) for name, check in checks.items()]


def report(findings: list[Finding]) -> int:
    """Print one line per finding; return 1 if training is not possible."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_SIGNS[finding.state]} {finding.name:<{width}}  {finding.detail}")
    return int(any(finding.state == "bad" for finding in findings))


def _guarded(check: Callable[[], Result]) -> Result:
    """Report an exception of a check as its result."""
    try:
        return check()
    except Exception as error:
        return "bad", f"{type(error).__name__}: {' '.join(str(error).split())}"


def _python() -> Result:
    if sys.version_info < _OLDEST_PYTHON:
        return "bad", f"{platform.python_version()} is too old: install 3.11"
    return "good", platform.python_version()


def _torch() -> Result:
    try:
        import torch
    except ImportError as error:
        return "bad", f"{error}: pip install torch"
    solved = torch.linalg.solve(torch.eye(3) * 2, torch.ones(3))
    if not torch.equal(solved, torch.full((3,), 0.5)):
        return "bad", f"{torch.__version__} solves 2x = 1 wrongly: reinstall it"
    cuda = "with CUDA" if torch.cuda.is_available() else "without CUDA"
    passive = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    waiting = "which sleep" if passive else "which spin (set OMP_WAIT_POLICY=PASSIVE)"
    threads = f"{torch.get_num_threads()} threads, {waiting} while they wait"
    return "good", f"{torch.__version__}, {threads}, {cuda}"


def _bfloat16() -> Result:
    if bfloat16.in_hardware():
        return "good", "this processor has it, for networks on images"
    return "absent", "this processor does not have it: networks on images use float32 instead"


def _simulator(extra: str) -> Result:
    """Take one step in the first environment of each class that `extra` is for."""
    members = {name: entry for name, entry in ENVIRONMENTS.items() if entry.extra == extra}
    simulator = next(iter(members.values())).simulator
    assert simulator is not None, "an extra installs a simulator"
    try:
        version = getattr(importlib.import_module(simulator), "__version__", "")
    except ModuleNotFoundError:
        return "absent", f"no {simulator}, for {', '.join(members)}: {install(extra)}"
    first: dict[str, str] = {}
    for name, entry in members.items():
        first.setdefault(entry.home, name)
    for name in first.values():
        with closing(envs.make_vec(name, 1, threads=1)) as env:
            env.reset(seed=0)
            env.step(env.action_space.sample())
    return "good", f"{simulator} {version}, took a step in {' and '.join(first.values())}"


def _package(package: Package) -> Result:
    """Take one step in an environment of a package that registers them with Gymnasium."""
    name = f"{GYM_PREFIX}{package.example}"
    if importlib.util.find_spec(package.module) is None:
        return "absent", f"no {package.module}, for {package.about}: {install(package.extra)}"
    with closing(envs.make_vec(name)) as env:
        env.reset(seed=0)
        env.step(env.action_space.sample())
    return "good", f"{package.module}, took a step in {package.example}"


def _rendering() -> Result:
    from emi.envs.rendering import rendering_backend

    try:
        return "good", rendering_backend()
    except (RuntimeError, ImportError) as error:
        return "absent", f"needed only by '{program.command('watch')}': {error}"


def _optional(module: str, purpose: str) -> Result:
    try:
        importlib.import_module(module)
    except ImportError:
        return "absent", f"no {module}, {purpose}: {install('train')}"
    return "good", module


def _disk() -> Result:
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            file.write(b"x" * 1024)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return "bad", f"cannot write here: {error.strerror}: use another directory"
    return "good", "this directory is writable"
