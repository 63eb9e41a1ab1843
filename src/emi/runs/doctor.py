"""Is everything there that training needs, and how to get what is not."""

import dataclasses
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emi.errors import UserError
from emi.training.config import usable_cores

_SIGNS = {"good": "✓", "bad": "✗", "absent": "–"}
_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """`absent` things are optional; a `bad` one keeps training from working."""

    name: str
    state: Literal["good", "bad", "absent"]
    detail: str


def examine() -> list[Finding]:
    """Look at everything, in the order in which things depend on each other."""
    return [
        _guarded(name, check)
        for name, check in (
            ("Python", _python),
            ("cores", _cores),
            ("PyTorch", _torch),
            ("MuJoCo", _mujoco),
            ("Atari", _atari),
            ("rendering", _rendering),
            ("video", _video),
            ("display", _display),
            ("TensorBoard", _tensorboard),
            ("disk", _disk),
        )
    ]


def report(findings: list[Finding]) -> int:
    """Print one line each; the exit code is 1 if training cannot work."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_SIGNS[finding.state]} {finding.name:<{width}}  {finding.detail}")
    return 1 if any(finding.state == "bad" for finding in findings) else 0


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """A check that fails in a way nobody foresaw is a finding, not a traceback."""
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


def _take_a_step(world: str) -> None:
    from emi.envs import make_vec

    envs = make_vec(world, 1, threads=1)
    try:
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
    finally:
        envs.close()


def _mujoco() -> Finding:
    try:
        import mujoco
    except ImportError:
        return Finding("MuJoCo", "bad", "not installed: pip install 'emi-rl[mujoco]'")
    for world in ("SparseHalfCheetah", "SwimmerGather"):
        _take_a_step(world)
    return Finding(
        "MuJoCo", "good", f"{mujoco.__version__}, SparseHalfCheetah and SwimmerGather step"
    )


def _atari() -> Finding:
    try:
        import ale_py
    except ImportError:
        return Finding("Atari", "absent", "no ale-py, for Atari: pip install 'emi-rl[atari]'")
    _take_a_step("Freeway")
    return Finding("Atari", "good", f"ale-py {ale_py.__version__}, Freeway steps")


def _rendering() -> Finding:
    from emi.envs.rendering import rendering_backend

    try:
        return Finding("rendering", "good", rendering_backend())
    except (RuntimeError, ImportError) as error:
        return Finding("rendering", "absent", f"only 'emi watch' needs it: {error}")


def _video() -> Finding:
    return _optional("video", "imageio", "to write videos")


def _display() -> Finding:
    return _optional("display", "rich", "for the live display")


def _tensorboard() -> Finding:
    return _optional("TensorBoard", "tensorboard", "for TensorBoard events")


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
        reason = error.strerror
        return Finding("disk", "bad", f"cannot write here: {reason}: go to another directory")
    return Finding("disk", "good", "this directory can be written")
