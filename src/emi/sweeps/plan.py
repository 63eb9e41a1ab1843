"""The grid of a sweep: environments × methods × seeds, and how each run stands.

Runs live in `OUT/<environment>/<method>/seed<k>`, each with its output beside it in `seed<k>.log`.
"""

import itertools
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from emi.durable_file import write_durably
from emi.errors import UserError
from emi.runs import checkpoint, run_directory
from emi.runs.run_directory import RunDirectory, config_bytes, file_name
from emi.training.config import TrainConfig, differences
from emi.training.presets import command_words, resolve

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
    def config_file(self) -> Path:
        """The config that is handed to the run."""
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of `emi` that start the run, or resume it if it was begun."""
        return ("train", "--config", str(self.config_file), "--out", str(self.path), "--resume")

    @property
    def command(self) -> str:
        """What a person would type to train it."""
        return shlex.join(["emi", *command_words(self.config), "--out", str(self.path)])

    def write_config(self) -> None:
        """Write `config_file`; UserError if that is impossible."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self.config_file, config_bytes(self.config))
        except OSError as error:
            raise UserError(
                f"cannot write in {self.path.parent}: {error.strerror}: choose another --out"
            ) from None


def parse_seeds(text: str) -> list[int]:
    """`0-4,7` to [0, 1, 2, 3, 4, 7]."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            a, b = int(first), int(last if dash else first)
        except ValueError:
            raise UserError(f"--seeds takes numbers like 0-4,7, got {text!r}") from None
        if not 0 <= b - a < _MAX_SEEDS:
            raise UserError(f"--seeds counts upwards and not over {_MAX_SEEDS}, got {part!r}")
        seeds += range(a, b + 1)
    return list(dict.fromkeys(seeds))


def plan(
    out: Path,
    envs: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
) -> list[Cell]:
    """The grid, checked against what is there already; UserError if a part makes no sense.

    `settings` and `words` change every run, as in `training.presets.resolve`. Seed by seed, so that
    a sweep that is cut short has covered every method equally.
    """
    cells = []
    for seed, env, method in itertools.product(seeds, dict.fromkeys(envs), dict.fromkeys(methods)):
        config = resolve(env, method, {"threads": 1, **(settings or {}), "seed": seed}, words)
        if config.seed != seed:
            raise UserError("seeds of a sweep are given with --seeds, not with --set seed=")
        path = out / file_name(env) / file_name(method) / f"seed{seed}"
        cells.append(compared(Cell(config, path)))
    if not cells:
        raise UserError("there is nothing to do: name at least one method")
    return cells


def compared(cell: Cell) -> Cell:
    """`cell` with the state that its directory shows."""
    directory = RunDirectory(cell.path)
    if not directory.config.exists():
        return cell
    try:
        different = differences(cell.config, run_directory.read_config(directory))
    except UserError as error:
        return replace(cell, state="conflict", problem=str(error))
    if different:
        problem = f"{cell.path} holds another run ({different[0]} differs)"
        return replace(cell, state="conflict", problem=problem)
    done = checkpoint.latest_iteration(directory.checkpoints) or 0
    return replace(cell, state="skipped") if done >= cell.config.iterations else cell


def counts(cells: Sequence[Cell]) -> str:
    """`8 runs: 2 running, 6 waiting`."""
    count = Counter(cell.state for cell in cells)
    return f"{len(cells)} runs: " + ", ".join(f"{count[s]} {s}" for s in STATES if count[s])
