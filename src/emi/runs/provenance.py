"""The origin of a run: versions, commit, command and machine; no names of users or hosts."""

import importlib.metadata
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import torch

import emi
from emi.training.config import usable_cores

# Packages that can change a number.
_DISTRIBUTIONS = (
    *("torch", "numpy", "scipy", "gymnasium"),
    *("mujoco", "ale-py", "minigrid", "gymnasium-robotics", "stable-baselines3", "safetensors"),
)


def describe_start(command: Sequence[str], iteration: int) -> dict[str, Any]:
    """Return one entry of `starts` in provenance.json: a run that starts or resumes at `iteration`.

    `command` is the command line; of absolute paths only the last part is kept.
    """
    commit, modified = _commit()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "iteration": iteration,
        "command": " ".join(map(_without_directory, command)),
        "commit": commit,
        "modified": modified,
        "versions": {
            "python": platform.python_version(),
            "emi": emi.__version__,
            **{name: _version(name) for name in _DISTRIBUTIONS},
        },
        "machine": {
            "cpu": _cpu_model(),
            "instructions": torch.backends.cpu.get_cpu_capability(),  # they decide the last bits
            "cores": usable_cores(),
            "platform": platform.platform(),
        },
    }


def _without_directory(argument: str) -> str:
    name, equals, value = argument.rpartition("=")
    path = PurePath(value)
    return f"{name}{equals}{path.name if path.is_absolute() else value}"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> tuple[str | None, bool | None]:
    """Return the commit of our source and whether the source differs from it; None if unknown."""
    source = Path(emi.__path__[0])
    # A package installed inside another repository is not part of it: our files must be tracked.
    if _git(source, "ls-files", "--error-unmatch", "cli.py") is None:
        return None, None
    status = _git(source, "status", "--porcelain", "--", ".")
    return _git(source, "rev-parse", "HEAD"), None if status is None else bool(status)


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
