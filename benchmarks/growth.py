"""Cost per step over the length of a run, the batch, the number of environments and the threads.

Every comparison takes turns in one run, and its ratio is that of the lowest costs.
"""

import argparse
import functools
import os
import time
from typing import Any

from turns import Train, commit, machine, measure, save

from emi.intrinsic.table import METHODS
from emi.start import WAITING

EARLY, LATE = (1, 20), (200, 220)  # iterations of a run that are compared
SMALL = {"steps_per_iteration": 1_000, "num_envs": 10, "threads": 1}
BATCHES = (1_000, 2_500, 5_000, 10_000, 20_000)
ENVIRONMENTS = (10, 20, 50, 100)


def trainer(method: str, settings: dict[str, Any]) -> Train:
    """Our trainer on SparseHalfCheetah; nothing is written to disk."""
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    made = Trainer(resolve("SparseHalfCheetah", method, {"steps": 10_000_000, **settings}))

    def train(iterations: int) -> None:
        for _ in range(iterations):
            made.iterate()
        made.collector.wait()  # for the batch that was begun early: it is part of the round

    return train


def over_a_run(method: str) -> tuple[float, float]:
    """Median microseconds per step in the early and the late iterations of one run."""
    train, seconds = trainer(method, SMALL), []
    for _ in range(LATE[1]):
        start = time.perf_counter()
        train(1)
        seconds.append(time.perf_counter() - start)
    # The first iteration allocates and compiles.
    windows = (sorted(seconds[a:b]) for a, b in (EARLY, LATE))
    early, late = (1e6 * window[len(window) // 2] / 1_000 for window in windows)
    return early, late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--only", nargs="+", default=["run", "batch", "environments", "threads"], metavar="WHAT"
    )
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    os.environ.update(WAITING)  # as the command does; PyTorch is not imported yet
    print(f"{machine()}, commit {commit()}\n")
    print("| over | method | from | to | µs / step | µs / step | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    rows: list[dict[str, object]] = []

    def add(over: str, method: str, ends: tuple[Any, Any], costs: tuple[float, float]) -> None:
        (a, b), (low, high), ratio = ends, costs, costs[1] / costs[0]
        print(f"| {over} | {method} | {a} | {b} | {low:.1f} | {high:.1f} | {ratio:.2f} |")
        names = ("over", "method", "from", "to", "cost_from", "cost_to", "ratio")
        values = (over, method, a, b, round(low, 2), round(high, 2), round(ratio, 3))
        rows.append(dict(zip(names, values, strict=True)))

    if "run" in options.only:
        for method in options.methods:
            ends = ("–".join(map(str, EARLY)), "–".join(map(str, LATE)))
            add("iterations", method, ends, over_a_run(method))
    axes = {
        "batch": {n: {"steps_per_iteration": n, "threads": cores} for n in BATCHES},
        "environments": {n: {"num_envs": n, "threads": cores} for n in ENVIRONMENTS},
        "threads": {n: {"threads": n} for n in sorted({1, 2, cores})},
    }
    for over, values in axes.items():
        if over not in options.only:
            continue
        made = {str(n): functools.partial(trainer, "emi", given) for n, given in values.items()}
        measured = measure(made, options.rounds, 3)
        sizes = {str(n): given.get("steps_per_iteration", 5_000) for n, given in values.items()}
        costs = {n: 1e6 * min(m.seconds) / sizes[n] for n, m in measured.items()}
        first = next(iter(costs))
        for n, cost in costs.items():
            add(over, "emi", (first, n), (costs[first], cost))
    print(f"\n{save('growth', rows).name}")


if __name__ == "__main__":
    main()
