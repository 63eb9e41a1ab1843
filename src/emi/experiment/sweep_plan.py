"""The grid of a sweep: environments × methods × seeds, and how each run stands.

Runs live in `OUT/<environment>/<method>/seed<k>`, each with its output beside it in `seed<k>.log`.
"""

import itertools
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from emi.experiment import checkpoint, run_directory
from emi.experiment.config import ConfigError, TrainConfig, resolve
from emi.experiment.run_directory import RunDirectory, RunDirectoryError, file_name

_MAX_SEEDS = 1_000

State = Literal["running", "failed", "conflict", "stopped", "waiting", "done", "skipped"]
STATES: tuple[State, ...] = (
    "running",
    "failed",
    "conflict",
    "stopped",
    "waiting",
    "done",
    "skipped",
)
"""the most interesting first"""


@dataclass(frozen=True)
class Cell:
    """One run of the grid: what it is, where it is, and how it stands."""

    config: TrainConfig
    words: tuple[str, ...]
    """the words after `emi` that start it"""
    path: Path
    state: State = "waiting"
    problem: str = ""
    label: str = ""
    """what tells it from a run of the same environment, method and seed"""

    @property
    def name(self) -> str:
        name = f"{self.config.env} {self.config.method} seed {self.config.seed}"
        return f"{self.label}: {name}" if self.label else name

    @property
    def log(self) -> Path:
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def command(self) -> str:
        """As one would type it."""
        return shlex.join(["emi", *self.words])


def parse_seeds(text: str) -> list[int]:
    """`0-4,7` to [0, 1, 2, 3, 4, 7]."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            a, b = int(first), int(last if dash else first)
        except ValueError:
            raise ConfigError(f"--seeds takes numbers like 0-4,7, got {text!r}") from None
        if not 0 <= b - a < _MAX_SEEDS:
            raise ConfigError(f"--seeds counts upwards and not over {_MAX_SEEDS}, got {part!r}")
        seeds += range(a, b + 1)
    return list(dict.fromkeys(seeds))


def plan(
    out: Path,
    envs: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    steps: int | None = None,
    threads: int = 1,
    overrides: Sequence[str] = (),
) -> list[Cell]:
    """The grid, checked against what is there already; ConfigError if a part makes no sense.

    Seed by seed, so that a sweep that is cut short has covered every method alike.
    """
    cells = []
    for seed, env, method in itertools.product(seeds, dict.fromkeys(envs), dict.fromkeys(methods)):
        config = resolve(env, method, steps=steps, seed=seed, threads=threads, overrides=overrides)
        if config.seed != seed:
            raise ConfigError("seeds of a sweep are given with --seeds, not with --set seed=")
        path = out / file_name(env) / method / f"seed{seed}"
        words = ["train", env, "--method", method, "--seed", str(seed), "--threads", str(threads)]
        words += ["--out", str(path)]
        words += ["--steps", str(steps)] if steps is not None else []
        words += ["--set", *overrides] if overrides else []
        cells.append(compared(Cell(config, tuple(words), path)))
    if not cells:
        raise ConfigError("there is nothing to do: name at least one method")
    return cells


def compared(cell: Cell) -> Cell:
    """`cell` in the light of what its directory holds."""
    directory = RunDirectory(cell.path)
    if not directory.config.exists():
        return cell
    try:
        different = run_directory.differences(cell.config, run_directory.read_config(directory))
        run_directory.require_own(directory)
    except RunDirectoryError as error:
        return replace(cell, state="conflict", problem=str(error))
    if different:
        problem = f"{cell.path} holds another run ({different[0]} differs)"
        return replace(cell, state="conflict", problem=problem)
    done = checkpoint.latest_iteration(directory.checkpoints) or 0
    if done >= cell.config.iterations:
        return replace(cell, state="skipped")
    return replace(cell, words=("resume", str(cell.path)))


def counts(cells: Sequence[Cell]) -> str:
    """`8 runs: 2 running, 6 waiting`."""
    count = Counter(cell.state for cell in cells)
    return f"{len(cells)} runs: " + ", ".join(f"{count[s]} {s}" for s in STATES if count[s])
