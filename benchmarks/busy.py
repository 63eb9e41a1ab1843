"""Environment steps per second of EMI on an idle and on a busy machine.

Foreign load is one or two processes that compute without pause. benchmarks/README.md has details.
"""

import argparse
import functools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from turns import Train, commit, machine, measure_under, save

from emi.start import WAITING

# What the command sets, and what a program gets that sets nothing.
POLICIES: dict[str, dict[str, str]] = {"the command's": WAITING, "the default": {}}
TASKS: dict[str, dict[str, Any]] = {
    "SparseHalfCheetah": {},
    "MontezumaRevenge": {"steps_per_iteration": 10_000},
}
LOADS = (0, 1, 2)  # foreign processes


def trainer(env: str, threads: int, settings: dict[str, Any]) -> Train:
    """EMI with the preset."""
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    made = Trainer(resolve(env, "emi", {"threads": threads, **settings}))

    def train(iterations: int) -> None:
        for _ in range(iterations):
            made.iterate()
        made.collector.wait()  # for the batch that was begun early: it is part of the round

    return train


def spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Foreign load for the duration of the block."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=spin, daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    if started:
        time.sleep(1.0)  # until they spin
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--envs", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--steps", type=int, default=10_000, help="batch of MontezumaRevenge")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    options = parser.parse_args()
    TASKS["MontezumaRevenge"] = {"steps_per_iteration": options.steps}
    print(f"{machine()}, commit {commit()}")
    print(f"Threads: {options.threads}; medians of {options.rounds} rounds.\n")
    print("| environment | waiting threads | busy processes | steps/s | busy / idle | lowest |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    rows: list[dict[str, object]] = []
    for env in options.envs:
        steps, iterations = (options.steps, 1) if TASKS[env] else (5_000, 10)
        made: dict[str, Callable[[], Train]] = {
            policy: functools.partial(trainer, env, options.threads, TASKS[env])
            for policy in options.policies
        }
        found = measure_under(made, LOADS, busy, options.rounds, iterations, POLICIES)
        for policy in options.policies:
            speeds = {load: [steps / s for s in found[policy, load]] for load in LOADS}
            for load in LOADS:
                # The ratio of each round: idle and busy alternate.
                ratios = [b / a for a, b in zip(speeds[0], speeds[load], strict=True)]
                speed, ratio = statistics.median(speeds[load]), statistics.median(ratios)
                print(
                    f"| {env} | {policy} | {load} | {speed:,.0f} | {ratio:.2f} "
                    f"| {min(ratios):.2f} |",
                    flush=True,
                )
                rows.append(
                    {
                        "env": env,
                        "waiting": policy,
                        "busy": load,
                        "threads": options.threads,
                        "steps_per_second": round(speed),
                        "ratio": round(ratio, 3),
                        "lowest": round(min(ratios), 3),
                    }
                )
    print(f"\n{save('busy', rows).name}")


if __name__ == "__main__":
    main()
