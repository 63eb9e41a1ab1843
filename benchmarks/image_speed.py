"""Environment steps per second and peak memory of EMI on MontezumaRevenge, and of the games alone.

With --other DIR, another checkout takes turns with this one. benchmarks/README.md has details.
"""

import argparse
import functools
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from env_speed import emulator
from turns import ROOT, Train, commit, machine, measure, save

ENV, NUM_ENVS = "MontezumaRevenge", 20


def trainer(source: str, steps: int, threads: int) -> Train:
    """EMI with the preset, of the checkout whose `src` is `source`."""
    sys.path.insert(0, source)  # before the path of the process that started this one
    import emi

    if not Path(emi.__file__).is_relative_to(source):
        raise RuntimeError(f"{emi.__file__} was imported instead of {source}")
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    settings: dict[str, Any] = {"threads": threads, "steps_per_iteration": steps}
    made = Trainer(resolve(ENV, "emi", settings))
    assert made.config.num_envs == NUM_ENVS

    def train(iterations: int) -> None:
        for _ in range(iterations):
            made.iterate()

    return train


def games(steps: int, threads: int) -> Train:
    """The vector environment of ale-py with a constant action."""
    play = emulator(ENV, NUM_ENVS, threads)
    return lambda iterations: play(iterations * steps)


def main() -> None:
    from emi.start import WAITING  # not above: another process may import the other checkout

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100_000, help="batch (default: the preset's)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--other", type=Path, help="another checkout (default: none)")
    options = parser.parse_args()
    print(f"{machine()}, commit {commit()}")
    print(f"Threads: {options.threads}; batch {options.steps:,}; {options.rounds} rounds.\n")
    checkouts = {"this checkout": ROOT}
    if options.other is not None:
        checkouts["the other checkout"] = options.other.resolve()
    contenders, environments = {}, {}
    for name, root in checkouts.items():
        source = str(root / "src")
        contenders[name] = functools.partial(trainer, source, options.steps, options.threads)
        environments[name] = {**WAITING, "PYTHONPATH": source}
    contenders["the games alone"] = functools.partial(games, options.steps, options.threads)
    found = measure(contenders, options.rounds, 1, 1, environments)
    speeds = {name: [options.steps / s for s in m.seconds] for name, m in found.items()}
    print("| | steps/s | best | peak MB | relative to the games | commit |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    rows: list[dict[str, object]] = []
    for name, values in speeds.items():
        bounds = speeds["the games alone"]
        ratio = statistics.median(a / b for a, b in zip(values, bounds, strict=True))
        named, peak = commit(checkouts.get(name, ROOT)), found[name].peak_mb
        speed, best = statistics.median(values), max(values)
        print(f"| {name} | {speed:,.0f} | {best:,.0f} | {peak:,.0f} | {ratio:.2f} | {named} |")
        rows.append(
            {
                "contender": name,
                "batch": options.steps,
                "threads": options.threads,
                "steps_per_second": round(speed),
                "best": round(best),
                "peak_mb": round(peak),
                "ratio_to_games": round(ratio, 3),
                "of_commit": named,
            }
        )
    if options.other is not None:
        ours, theirs = (speeds[name] for name in checkouts)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        print(f"\nthis checkout relative to the other: {statistics.median(ratios):.2f}")
    print(f"\n{save('image_speed', rows).name}")


if __name__ == "__main__":
    main()
