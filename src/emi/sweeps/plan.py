"""The grid of a sweep, environments × methods × seeds, and the state of each run.

A run has the directory `OUT/<environment>/<method>/seed<k>`. Next to it, `seed<k>.json` holds its
config, which is passed to `emi train --config`, and `seed<k>.log` its output.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from emi import program
from emi.durable_file import create_durably
from emi.errors import UserError
from emi.runs import checkpoint
from emi.runs.run_directory import RunDirectory, config_bytes, difference, file_name
from emi.training.config import TrainConfig
from emi.training.presets import command_words, resolve

_MAX_SEEDS = 1_000

# In the order in which a display shows them.
State = Literal["running", "failed", "conflict", "stopped", "waiting", "done", "skipped"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    config: TrainConfig
    path: Path
    state: State = "waiting"
    problem: str = ""
    label: str = ""
    """distinguishes it from a run of the same environment, method and seed"""

    @property
    def name(self) -> str:
        name = f"{self.config.env} {self.config.method} seed {self.config.seed}"
        return f"{self.label}: {name}" if self.label else name

    @property
    def log(self) -> Path:
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def config_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `emi` that start the run, or resume it if it has begun."""
        words = ("train", "--config", str(self.config_file), "--out", str(self.path), "--resume")
        # The user has named these modules to the sweep.
        modules = self.config.modules
        return (*words, "--trust", ",".join(modules)) if modules else words

    @property
    def command(self) -> str:
        """The same as a person would type it, with options instead of a file."""
        words = command_words(self.config)
        return program.command(*words, "--out", str(self.path), "--resume")


def parse_seeds(text: str) -> list[int]:
    """Parse `0-4,7` to [0, 1, 2, 3, 4, 7]."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            a, b = int(first), int(last if dash else first)
        except ValueError:
            raise UserError(f"--seeds takes numbers like 0-4,7, got {text!r}") from None
        if not 0 <= b - a < _MAX_SEEDS:
            raise UserError(
                f"a range in --seeds must ascend and have at most {_MAX_SEEDS} seeds, got {part!r}"
            )
        seeds += range(a, b + 1)
    return list(dict.fromkeys(seeds))


def plan(
    out: Path,
    envs: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    preset: str | None = None,
) -> list[Cell]:
    """Return the runs of the grid with their states; UserError if an argument is wrong.

    `settings`, `words` and `preset` are those of `training.presets.resolve`, for every run. The
    order is seed by seed: a sweep that is interrupted has covered every method equally.
    """
    cells: dict[Path, Cell] = {}
    for seed, env, method in itertools.product(seeds, envs, methods):
        own = {"threads": 1, **(settings or {}), "seed": seed}
        config = resolve(env, method, own, words, preset)
        if config.seed != seed:
            raise UserError("seeds of a sweep are given with --seeds, not with --set seed=")
        path = out / file_name(config.env) / file_name(config.method) / f"seed{seed}"
        if path not in cells:  # EMI and emi are the same method
            cells[path] = compared(Cell(config, path))
    if not cells:
        raise UserError("there is nothing to do: name at least one method")
    return list(cells.values())


def compared(cell: Cell) -> Cell:
    """Return `cell` with the state that its files show: a conflict if they have another config."""
    directory = RunDirectory(cell.path)
    for file, holder in ((directory.config, cell.path), (cell.config_file, cell.config_file)):
        try:
            different = difference(file, cell.config) if file.exists() else None
        except UserError as error:
            return replace(cell, state="conflict", problem=str(error))
        if different:
            problem = f"{holder} holds another run ({different} differs)"
            return replace(cell, state="conflict", problem=problem)
    done = checkpoint.latest_iteration(directory.checkpoints) or 0
    return replace(cell, state="skipped") if done >= cell.config.iterations else cell


def claimed(cell: Cell) -> Cell:
    """`compared`, after writing `config_file` if the run is waiting and has none.

    An existing file is not overwritten: of two sweeps with different settings, the first one gets
    the run, and it is a conflict for the other.
    """
    cell = compared(cell)
    if cell.state != "waiting" or cell.config_file.exists():
        return cell
    try:
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        create_durably(cell.config_file, config_bytes(cell.config))
    except OSError as error:
        raise UserError(
            f"cannot write in {cell.path.parent}: {error.strerror}: choose another --out"
        ) from None
    return compared(cell)


def counts(cells: Sequence[Cell]) -> str:
    """Return a summary like `8 runs: 2 running, 6 waiting`."""
    count = Counter(cell.state for cell in cells)
    whole = "1 run" if len(cells) == 1 else f"{len(cells)} runs"
    return f"{whole}: " + ", ".join(f"{count[s]} {s}" for s in STATES if count[s])
