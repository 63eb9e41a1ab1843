"""Seconds per iteration and peak memory of every environment, and the cost of the paper's budgets.

Whole iterations of a preset are measured in a separate process, after a warm-up. With `--runs`, the
times of finished runs are used if there are any, and only the rest is measured.
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
NOT_IN_THE_BUDGET = "BoxImage"  # the paper trains no agent in it


class Cost(NamedTuple):
    seconds: float  # per iteration, the median
    counted: int  # iterations of the median
    peak_mb: float | None
    iterations: int  # of the paper's budget

    @property
    def hours(self) -> float:
        """Hours of a run of the paper's length."""
        return self.seconds * self.iterations / 3600


def _work(
    env: str, method: str, threads: int, warm_up: int, iterations: int, found: Connection
) -> None:
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    trainer = Trainer(resolve(env, method, {"threads": threads}))
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
    """The cost from finished runs below `roots` with as many threads; None if there is none."""
    from emi import preset

    if not roots:
        return None
    seconds = [
        step
        for run in _runs_below(tuple(roots))
        if (run.env, run.method, run.config["threads"]) == (env, method, threads)
        for step in np.diff(run.metrics["seconds"], prepend=0.0).tolist()
    ]
    if not seconds:
        return None
    return Cost(statistics.median(seconds), len(seconds), None, preset(env, method).iterations)


@functools.cache
def _runs_below(roots: tuple[Path, ...]) -> list[Run]:
    from emi.report.load import find_runs

    return find_runs(roots).runs


def main() -> None:
    from emi.envs.table import ENVIRONMENTS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--envs", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--methods", nargs="+", default=["emi", "trpo"])
    parser.add_argument("--warm-up", type=int, default=1, help="iterations before those measured")
    parser.add_argument("--iterations", type=int, default=1, help="measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument(
        "--runs", type=Path, nargs="+", default=[], metavar="DIR", help="runs of presets"
    )
    options = parser.parse_args()
    print(machine())
    print(
        f"Threads: {options.threads}; the median of {options.iterations} iteration(s) "
        f"after {options.warm_up}, or of all iterations of finished runs, without a peak.\n"
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
    """Hours until the last job ends, if each job goes to the first free worker."""
    free = [0.0] * workers
    for job in hours:
        first = free.index(min(free))
        free[first] += job
    return max(free)


if __name__ == "__main__":
    main()
