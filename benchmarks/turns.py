"""Contenders that take turns: how all benchmarks here measure.

Every contender runs in its own process, and only one works at a time. They take turns, one round
each, so that other load on the machine affects all of them. The median over rounds is reported.
"""

import contextlib
import csv
import functools
import multiprocessing
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "speed"

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
    contenders: Mapping[str, Callable[[], Train]],
    rounds: int,
    iterations: int,
    warm_up: int = 2,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Measured]:
    """Seconds per iteration in every round, and the peak memory, by contender.

    `environments` are further environment variables of some contenders' processes.
    """
    lines = _start(contenders, warm_up, environments or {})
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name, line in lines.items():
            seconds[name].append(_round(line, iterations))
    return {name: Measured(seconds[name], _end(line)) for name, line in lines.items()}


def measure_under(
    contenders: Mapping[str, Callable[[], Train]],
    loads: Sequence[int],
    load: Callable[[int], contextlib.AbstractContextManager[None]],
    rounds: int,
    iterations: int,
    environments: Mapping[str, Mapping[str, str]],
) -> dict[tuple[str, int], list[float]]:
    """Seconds per iteration in every round, by contender and load, which alternate."""
    lines = _start(contenders, 1, environments)
    seconds: dict[tuple[str, int], list[float]] = {(n, k): [] for n in lines for k in loads}
    for _ in range(rounds):
        for name, line in lines.items():
            for level in loads:
                with load(level):
                    seconds[name, level].append(_round(line, iterations))
    for line in lines.values():
        _end(line)
    return seconds


def _start(
    contenders: Mapping[str, Callable[[], Train]],
    warm_up: int,
    environments: Mapping[str, Mapping[str, str]],
) -> dict[str, Connection]:
    context = multiprocessing.get_context("spawn")
    lines: dict[str, Connection] = {}
    for name, make in contenders.items():
        lines[name], orders = context.Pipe()
        process = context.Process(target=_work, args=(make, warm_up, orders), daemon=True)
        with variables(environments.get(name, {})):
            process.start()
        orders.close()  # so that the end of the process is seen
        lines[name].recv()  # one warm-up at a time
    return lines


def _round(line: Connection, iterations: int) -> float:
    line.send(iterations)
    seconds: float = line.recv()
    time.sleep(0.3)  # idle worker threads spin for a short time before they sleep
    return seconds


def _end(line: Connection) -> float:
    """End a contender's process; its peak memory in MB."""
    line.send(0)
    peak: float = line.recv()
    return peak


@contextlib.contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started meanwhile.

    OpenMP reads its own when PyTorch is imported, so they must be there before the process is.
    """
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def commit(root: Path = ROOT) -> str:
    """The commit of a checkout, with a + if files differ from it."""
    run = functools.partial(subprocess.run, cwd=root, capture_output=True, text=True, check=True)
    named = run(["git", "rev-parse", "--short=10", "HEAD"]).stdout.strip()
    changed = run(["git", "status", "--porcelain", "--untracked-files=no", "src"]).stdout
    return named + ("+" if changed else "")


def save(name: str, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows to results/speed/`name`.csv, each with the commit and the machine."""
    path, where = RESULTS / f"{name}.csv", {"commit": commit(), "machine": machine()}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **where} for row in rows)
    return path


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
