"""Seconds per iteration and peak memory of every environment, and what the paper's budgets cost.

Each is a whole iteration of the preset, in a process of its own; what comes first is left out. With
`--runs` the iterations of finished runs count where there are any, and only the rest is measured.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import resource
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from turns import machine

if TYPE_CHECKING:
    from emi.report.load import Run

SEEDS = 5  # of the paper
HOURS_PER_DAY = 24
NOT_IN_THE_BUDGET = "BoxImage"  # the paper trains no agent there


class Cost(NamedTuple):
    seconds: float  # of an iteration, the median
    counted: int  # iterations behind it
    peak_mb: float | None
    iterations: int  # of the paper's budget

    @property
    def hours(self) -> float:
        """Of a run of the paper's length."""
        return self.seconds * self.iterations / 3600


def _work(
    env: str, method: str, threads: int, warm_up: int, iterations: int, found: Connection
) -> None:
    from emi.training.config import resolve
    from emi.training.trainer import Trainer

    trainer = Trainer(resolve(env, method, threads=threads))
    seconds = []
    for _ in range(warm_up + iterations):
        start = time.perf_counter()
        trainer.iterate()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB on Linux
    median = statistics.median(seconds[warm_up:])
    found.send(Cost(median, iterations, peak, trainer.config.iterations))


def cost(env: str, method: str, threads: int, warm_up: int, iterations: int) -> Cost:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    given = (env, method, threads, warm_up, iterations, there)
    process = context.Process(target=_work, args=given)
    process.start()
    there.close()
    found: Cost = here.recv()
    process.join()
    return found


def cost_of_runs(env: str, method: str, threads: int, roots: list[Path]) -> Cost | None:
    """The same from finished runs below `roots` that had so many threads; None without any."""
    from emi.training.config import resolve

    seconds = [
        step
        for run in (run for root in roots for run in _runs_below(root))
        if (run.env, run.method, run.config["threads"]) == (env, method, threads)
        for step in np.diff(run.metrics["seconds"], prepend=0.0).tolist()
    ]
    if not seconds:
        return None
    return Cost(statistics.median(seconds), len(seconds), None, resolve(env, method).iterations)


@functools.cache
def _runs_below(root: Path) -> list[Run]:
    from emi.report.load import load_runs

    return load_runs(root)


def main() -> None:
    from emi.envs import ENVIRONMENTS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--envs", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--methods", nargs="+", default=["emi", "trpo"])
    parser.add_argument("--warm-up", type=int, default=1, help="iterations before those measured")
    parser.add_argument("--iterations", type=int, default=1, help="measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument(
        "--runs", type=Path, nargs="+", default=[], metavar="DIR", help="of presets"
    )
    options = parser.parse_args()
    print(machine())
    print(
        f"Threads: {options.threads}; the median of {options.iterations} iteration(s) "
        f"after {options.warm_up}, or of all iterations of finished runs: these have no peak.\n"
    )
    print("| environment | method | s / iteration | counted | peak MB | of the paper | hours |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    all_costs: dict[str, list[Cost]] = {method: [] for method in options.methods}
    for env in options.envs:
        for method in options.methods:
            one = cost_of_runs(env, method, options.threads, options.runs)
            one = one or cost(env, method, options.threads, options.warm_up, options.iterations)
            if env != NOT_IN_THE_BUDGET:
                all_costs[method].append(one)
            peak = "–" if one.peak_mb is None else f"{one.peak_mb:,.0f}"
            print(
                f"| {env} | {method} | {one.seconds:.2f} | {one.counted:,} | {peak} "
                f"| {one.iterations:,} | {one.hours:,.1f} |",
                flush=True,
            )
    cores = os.cpu_count() or 1
    print(f"\nThe paper's budgets of these environments, {SEEDS} seeds, in days:\n")
    print(f"| method | runs | these {cores} cores | 32 cores | all at once |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for method, costs in all_costs.items():
        hours = sorted((c.hours for c in costs for _ in range(SEEDS)), reverse=True)
        workers = (cores // options.threads, 32 // options.threads, len(hours))
        days = [makespan(hours, n) / HOURS_PER_DAY for n in workers]
        print(f"| {method} | {len(hours)} | {' | '.join(f'{d:,.1f}' for d in days)} |")


def makespan(hours: list[float], workers: int) -> float:
    """When the last of the jobs ends if each goes to the worker that is free first."""
    free = [0.0] * workers
    for job in hours:
        first = free.index(min(free))
        free[first] += job
    return max(free)


if __name__ == "__main__":
    main()
