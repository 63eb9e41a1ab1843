"""Seconds per iteration and peak memory of every environment, and what the paper's budgets cost.

Each is a whole iteration of the preset, in a process of its own; what comes first is left out.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from turns import machine

SEEDS = 5  # of the paper
HOURS_PER_DAY = 24
NOT_IN_THE_BUDGET = "BoxImage"  # the paper trains no agent there


class Cost(NamedTuple):
    seconds: float  # of an iteration, the median
    peak_mb: float
    iterations: int  # of the paper's budget

    @property
    def hours(self) -> float:
        """Of a run of the paper's length."""
        return self.seconds * self.iterations / 3600


def _work(
    env: str, method: str, threads: int, warm_up: int, iterations: int, found: Connection
) -> None:
    from emi.experiment.config import resolve
    from emi.experiment.train import Trainer

    trainer = Trainer(resolve(env, method, threads=threads))
    seconds = []
    for _ in range(warm_up + iterations):
        start = time.perf_counter()
        trainer.iterate()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB on Linux
    found.send(Cost(statistics.median(seconds[warm_up:]), peak, trainer.config.iterations))


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


def main() -> None:
    from emi.envs import ENVIRONMENTS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--envs", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--methods", nargs="+", default=["emi", "trpo"])
    parser.add_argument("--warm-up", type=int, default=1, help="iterations before those measured")
    parser.add_argument("--iterations", type=int, default=1, help="measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    options = parser.parse_args()
    print(machine())
    print(
        f"Threads: {options.threads}; the median of {options.iterations} iteration(s) "
        f"after {options.warm_up}.\n"
    )
    print("| environment | method | s / iteration | peak MB | iterations | hours of a run |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    all_costs: dict[str, list[Cost]] = {method: [] for method in options.methods}
    for env in options.envs:
        for method in options.methods:
            one = cost(env, method, options.threads, options.warm_up, options.iterations)
            if env != NOT_IN_THE_BUDGET:
                all_costs[method].append(one)
            print(
                f"| {env} | {method} | {one.seconds:.2f} | {one.peak_mb:,.0f} "
                f"| {one.iterations:,} | {one.hours:,.1f} |",
                flush=True,
            )
    print(f"\nThe paper's budgets of these environments, {SEEDS} seeds, in days:\n")
    print("| method | this machine, a run at a time | 32 cores like these | one core pair a run |")
    print("| --- | ---: | ---: | ---: |")
    for method, costs in all_costs.items():
        hours = sorted((c.hours for c in costs for _ in range(SEEDS)), reverse=True)
        side_by_side = makespan(hours, 32 // options.threads)
        days = [h / HOURS_PER_DAY for h in (sum(hours), side_by_side, hours[0])]
        print(f"| {method} | {' | '.join(f'{d:,.1f}' for d in days)} |")


def makespan(hours: list[float], workers: int) -> float:
    """When the last of the jobs ends if each goes to the worker that is free first."""
    free = [0.0] * workers
    for job in hours:
        first = free.index(min(free))
        free[first] += job
    return max(free)


if __name__ == "__main__":
    main()
