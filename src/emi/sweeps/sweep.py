"""Sweeps: environments × methods × seeds, one `emi train` process per run.

A sweep can be started again at any time: complete runs are skipped, stopped ones are resumed, and
it waits for those that another process is still writing.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from emi.durable_file import open_own
from emi.errors import UserError, did_you_mean
from emi.runs.progress import Lines
from emi.runs.stop_signals import StopRequest, stop_signals
from emi.sweeps.board import Board, choose_board
from emi.sweeps.local import LocalJob, start_local
from emi.sweeps.plan import Cell, claimed, compared, counts, parse_seeds, plan
from emi.sweeps.ray import RayJob, ray_cluster
from emi.sweeps.run_process import Ended
from emi.sweeps.slurm import slurm_script, write_slurm_script
from emi.training.config import usable_cores

__all__ = ["ENGINES", "Cell", "dry_run", "parse_seeds", "plan", "sweep", "write_job_array"]

ENGINES = ("local", "ray")
POLL_SECONDS = 0.1

Job = LocalJob | RayJob
Start = Callable[[Cell], Job]


def sweep(
    cells: Sequence[Cell],
    *,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
) -> int:
    """Run all waiting cells, `jobs` at a time, and print a summary; 0 if every run is complete.

    The first signal is passed on: the runs write a checkpoint and end, and 128 + signal is
    returned.
    """
    _check_jobs(jobs)
    threads = max(cell.config.threads for cell in cells)
    check_engine(engine, address)
    now, stop = list(cells), StopRequest()
    slots = jobs or max(1, usable_cores() // threads)
    opened: AbstractContextManager[Start] = contextlib.nullcontext(start_local)
    if engine == "ray":
        # Every run is submitted at once; Ray starts each when a node has enough free cores.
        slots = jobs or len(now)
        opened = ray_cluster(address, threads)
    if any(cell.state == "waiting" for cell in now):
        with opened as start:
            now = [claimed(cell) if cell.state == "waiting" else cell for cell in now]
            board = choose_board(now)
            with stop_signals(board.stopping) as stop:
                _run_all(now, start, slots, stop, board)
    _sum_up(now)
    if any(cell.state in ("stopped", "waiting") for cell in now):
        Lines(sys.stdout).write("run the same command again to continue")
    if all(cell.state in ("done", "skipped") for cell in now):
        return 0
    return 128 + stop.signal if stop.signal is not None else 1


def dry_run(cells: Sequence[Cell]) -> int:
    """Print a command for every waiting run, and the others as comments; 1 if one is a conflict."""
    lines = Lines(sys.stdout)
    for cell in cells:
        if cell.state == "waiting":
            lines.write(cell.command)
        else:
            reason = "complete" if cell.state == "skipped" else cell.problem
            lines.write(f"# {cell.state}: {cell.name}: {reason}")
    return int(any(cell.state == "conflict" for cell in cells))


def write_job_array(cells: Sequence[Cell], file: Path, *, jobs: int | None = None) -> int:
    """Write a Slurm script for every waiting run; 1 if others are in conflict."""
    _check_jobs(jobs)
    waiting = [cell for cell in cells if cell.state == "waiting"]
    if waiting:
        write_slurm_script(file, slurm_script(waiting, Path.cwd(), jobs=jobs))
    cells = [claimed(cell) for cell in cells]
    _sum_up(cells)
    if waiting:
        Lines(sys.stdout).write(f"wrote {file}: submit it with sbatch --time=HH:MM:SS {file}")
    return int(any(cell.state == "conflict" for cell in cells))


def check_engine(name: str, address: str | None) -> None:
    """Raise UserError if `--engine` or `--address` is wrong."""
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES, f": use {' or '.join(ENGINES)}")
        raise UserError(f"unknown engine {name!r}{hint}")
    if address is not None and name != "ray":
        raise UserError("--address is that of a Ray cluster: add --engine ray")


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be positive, got {jobs}")


def _run_all(now: list[Cell], start: Start, slots: int, stop: StopRequest, board: Board) -> None:
    """Run every waiting cell of `now` and keep the list up to date."""
    started: dict[int, Job] = {}
    passed_on = False
    try:
        while started or (not stop and any(cell.state == "waiting" for cell in now)):
            if stop and not passed_on:
                for job in started.values():
                    job.stop()
                passed_on = True
            for index, job in list(started.items()):
                if now[index].state == "waiting" and job.begun():
                    now[index] = replace(now[index], state="running")
                ended = job.poll()
                if ended is not None:
                    del started[index]
                    now[index] = _after(now[index], ended, bool(stop))
            for index, cell in enumerate(now):
                if cell.state != "waiting" or index in started:
                    continue
                if not stop and len(started) < slots:
                    now[index] = compared(cell)  # it may have waited for days
                    if now[index].state == "waiting":
                        open_own(cell.log, os.O_APPEND).close()  # UserError if it is a link
                        started[index] = start(now[index])
            board.show()
            time.sleep(POLL_SECONDS)
    finally:
        for job in started.values():
            job.stop()
        board.end()


def _after(cell: Cell, ended: Ended, stopping: bool) -> Cell:
    if ended.code == 0:
        return replace(cell, state="done")
    if stopping and (ended.code > 128 or ended.code < 0):
        return replace(cell, state="waiting" if cell.state == "waiting" else "stopped")
    problem = ended.problem or _last_message(cell.log, ended.code)
    return replace(cell, state="failed", problem=problem)


def _last_message(log: Path, code: int) -> str:
    """Return the last error message in a log, else its last line, else the exit code."""
    if code < 0:
        return f"killed by signal {-code}"
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 8192))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("emi: ") for line in lines if line.startswith("emi: ")]
    return (errors or lines or [f"exit code {code}"])[-1]


def _sum_up(cells: Sequence[Cell]) -> None:
    lines = Lines(sys.stdout)
    lines.write(counts(cells))
    for cell in cells:
        if cell.problem:  # failed or in conflict
            log = f" (log: {cell.log})" if cell.state == "failed" else ""
            lines.write(f"{cell.state}: {cell.name}: {cell.problem}{log}")
