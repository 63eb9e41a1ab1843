"""Environments × methods × seeds on one machine: a pool of `emi train` processes.

Runs live in `OUT/<environment>/<method>/seed<k>`, each with its output beside it in `seed<k>.log`.
A sweep can be started again at any time: complete runs are skipped, stopped ones resumed.
"""

import itertools
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from emi.experiment import checkpoint, run_directory
from emi.experiment.config import ConfigError, TrainConfig, resolve
from emi.experiment.metrics_file import last_row
from emi.experiment.progress import Lines, clock, live_possible, tell
from emi.experiment.provenance import usable_cores
from emi.experiment.run_directory import RunDirectory, RunDirectoryError, file_name
from emi.experiment.stop_signals import stop_signals

if TYPE_CHECKING:
    from rich.table import Table

POLL_SECONDS = 0.1
_PROGRAM = (sys.executable, "-m", "emi")
_MAX_SEEDS = 1_000
_TABLE_ROWS = 20
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

State = Literal["running", "failed", "conflict", "stopped", "waiting", "done", "skipped"]
_INTEREST: tuple[State, ...] = (
    "running",
    "failed",
    "conflict",
    "stopped",
    "waiting",
    "done",
    "skipped",
)


@dataclass(frozen=True)
class Cell:
    """One run of the grid: what it is, where it is, and how it stands."""

    config: TrainConfig
    words: tuple[str, ...]
    """the words after `emi` that start it"""
    path: Path
    state: State = "waiting"
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.config.env} {self.config.method} seed {self.config.seed}"

    @property
    def log(self) -> Path:
        return self.path.with_name(f"{self.path.name}.log")


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
        cells.append(_compared(Cell(config, tuple(words), path)))
    if not cells:
        raise ConfigError("there is nothing to do: name at least one method")
    return cells


def sweep(cells: Sequence[Cell], *, jobs: int | None = None) -> int:
    """Run all that wait, `jobs` at a time, and sum up; 0 if every run is complete.

    The first signal is passed on: the runs write a checkpoint and end; 128 + signal is returned.
    """
    threads = max(cell.config.threads for cell in cells)
    jobs = jobs if jobs is not None else max(1, usable_cores() // threads)
    if jobs < 1:
        raise ConfigError(f"--jobs must be positive, got {jobs}")
    for cell in cells:
        try:
            cell.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot write in {cell.path.parent}: {error.strerror}: choose another --out"
            raise RunDirectoryError(message) from None

    now = list(cells)
    running: dict[int, subprocess.Popen[bytes]] = {}
    board: _Board = _LiveTable(now) if live_possible() else _PlainLines(now)
    with stop_signals(board.stopping) as stop:
        told = False
        try:
            while running or (not stop and any(cell.state == "waiting" for cell in now)):
                if stop and not told:
                    for process in running.values():
                        process.terminate()
                    told = True
                for index, process in list(running.items()):
                    if process.poll() is not None:
                        del running[index]
                        now[index] = _ended(now[index], process.returncode, bool(stop))
                for index, cell in enumerate(now):
                    if not stop and cell.state == "waiting" and len(running) < jobs:
                        running[index] = _start(cell)
                        now[index] = replace(cell, state="running")
                board.show()
                time.sleep(POLL_SECONDS)
        finally:
            for process in running.values():
                process.terminate()
            board.end()
    _sum_up(now)
    if all(cell.state in ("done", "skipped") for cell in now):
        return 0
    return 128 + stop.signal if stop.signal is not None else 1


def _compared(cell: Cell) -> Cell:
    """`cell` in the light of what its directory holds."""
    directory = RunDirectory(cell.path)
    if not directory.config.exists():
        return cell
    try:
        different = run_directory.differences(cell.config, run_directory.read_config(directory))
    except RunDirectoryError as error:
        return replace(cell, state="conflict", problem=str(error))
    if different:
        problem = f"{cell.path} holds another run ({different[0]} differs)"
        return replace(cell, state="conflict", problem=problem)
    done = checkpoint.latest_iteration(directory.checkpoints) or 0
    if done >= cell.config.iterations:
        return replace(cell, state="skipped")
    return replace(cell, words=("resume", str(cell.path)))


def _start(cell: Cell) -> subprocess.Popen[bytes]:
    threads = dict.fromkeys(_THREAD_VARIABLES, str(cell.config.threads))
    with cell.log.open("ab") as log:
        return subprocess.Popen(
            [*_PROGRAM, *cell.words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | threads,
            # Out of reach of the terminal's Ctrl-C: with our SIGTERM it would be the second signal,
            # the one that stops without a checkpoint.
            start_new_session=True,
        )


def _ended(cell: Cell, code: int, stopping: bool) -> Cell:
    if code == 0:
        return replace(cell, state="done")
    if stopping and (code > 128 or code < 0):
        return replace(cell, state="stopped")
    return replace(cell, state="failed", problem=_last_words(cell.log, code))


def _last_words(log: Path, code: int) -> str:
    """The last complaint in a log, else its last line, else the exit code."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 8192))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    if code < 0:
        return f"killed by signal {-code}"
    complaints = [line.removeprefix("emi: ") for line in lines if line.startswith("emi: ")]
    return (complaints or lines or [f"exit code {code}"])[-1]


def _sum_up(cells: Sequence[Cell]) -> None:
    lines = Lines(sys.stdout)
    lines.write(_counts(cells))
    for cell in cells:
        if cell.state == "failed":
            lines.write(f"failed: {cell.name}: {cell.problem} (log: {cell.log})")
        elif cell.state == "conflict":
            lines.write(f"conflict: {cell.name}: {cell.problem}")
    if any(cell.state in ("stopped", "waiting") for cell in cells):
        lines.write("the same command goes on where this one stopped")


def _counts(cells: Sequence[Cell]) -> str:
    counts = Counter(cell.state for cell in cells)
    return f"{len(cells)} runs: " + ", ".join(f"{counts[s]} {s}" for s in _INTEREST if counts[s])


class _Board(Protocol):
    """Shows a list of cells that the sweep keeps up to date."""

    def show(self) -> None: ...
    def stopping(self) -> None: ...
    def end(self) -> None: ...


class _PlainLines:
    """One line whenever a run changes its state."""

    def __init__(self, cells: list[Cell]) -> None:
        self._cells = cells
        self._shown: list[State] = ["waiting"] * len(cells)
        self._lines = Lines(sys.stdout)

    def show(self) -> None:
        for index, cell in enumerate(self._cells):
            if cell.state != self._shown[index]:
                self._shown[index] = cell.state
                self._lines.write(f"{cell.name}: {cell.state}")

    def stopping(self) -> None:
        tell("stopping after the iterations under way")

    def end(self) -> None:
        self.show()


class _LiveTable:
    """The runs that matter now, drawn with rich."""

    def __init__(self, cells: list[Cell]) -> None:
        from rich.live import Live

        self._cells = cells
        self._stopping = False
        self._live = Live(get_renderable=self._draw, refresh_per_second=2)
        self._started = False

    def show(self) -> None:
        if not self._started:
            self._live.start()
            self._started = True

    def stopping(self) -> None:
        self._stopping = True
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # the next signal ends us as we stand

    def end(self) -> None:
        self._live.stop()

    def _draw(self) -> "Table":
        from rich.table import Table

        cells = list(self._cells)
        stopping = "; stopping after the iterations under way" if self._stopping else ""
        table = Table(caption=_counts(cells) + stopping, caption_justify="left")
        for title in ("run", "state", "iteration", "steps/s", "left", "return", "bonus"):
            table.add_column(title, justify="left" if title in ("run", "state") else "right")
        for cell in sorted(cells, key=lambda cell: _INTEREST.index(cell.state))[:_TABLE_ROWS]:
            table.add_row(cell.name, cell.state, *_facts(cell))
        return table


def _facts(cell: Cell) -> list[str]:
    """Iteration, steps/s, time left, return and bonus, as far as the run has come."""
    row = last_row(cell.path / "metrics.csv")
    if row is None or cell.state == "conflict":
        return [""] * 5
    left = (cell.config.steps - row["steps"]) / row["steps_per_second"]
    value = row["return_mean"]
    return [
        f"{row['iteration']:.0f}/{cell.config.iterations}",
        f"{row['steps_per_second']:,.0f}",
        clock(max(0.0, left)) if cell.state == "running" else "",
        "-" if math.isnan(value) else f"{value:.4g}",
        f"{row['bonus_mean']:.3g}",
    ]
