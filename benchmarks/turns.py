"""Contenders that take turns: how all benchmarks here measure.

Every contender runs in its own process, and only one works at a time. They take turns, one round
each, so that other load on the machine affects all of them. The median over rounds is reported.
"""

import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

# Runs a given number of iterations, which are timed.
Train = Callable[[int], None]


class Measured(NamedTuple):
    seconds: list[float]  # per iteration, one entry for each round
    peak_mb: float  # resident memory of the process


def _work(make: Callable[[], Train], warm_up: int, orders: Connection) -> None:
    """The process of one contender: runs the numbers of iterations it receives, until 0."""
    train = make()
    train(warm_up)  # first calls allocate and compile
    orders.send(0.0)
    while iterations := orders.recv():
        start = time.perf_counter()
        train(iterations)
        orders.send((time.perf_counter() - start) / iterations)
    orders.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)  # MB on Linux


def measure(
    contenders: Mapping[str, Callable[[], Train]], rounds: int, iterations: int, warm_up: int = 2
) -> dict[str, Measured]:
    """Seconds per iteration in every round, and the peak memory, by contender."""
    context = multiprocessing.get_context("spawn")
    lines: dict[str, Connection] = {}
    for name, make in contenders.items():
        lines[name], orders = context.Pipe()
        context.Process(target=_work, args=(make, warm_up, orders), daemon=True).start()
        lines[name].recv()  # one warm-up at a time
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name, line in lines.items():
            line.send(iterations)
            seconds[name].append(line.recv())
            time.sleep(0.3)  # idle worker threads spin for a short time before they sleep
    for line in lines.values():
        line.send(0)
    return {name: Measured(seconds[name], line.recv()) for name, line in lines.items()}


def machine() -> str:
    """The processor, the system and the load, in one line."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    return (
        f"{model}, {platform.platform()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} before the start"
    )
