"""One model of a run, whether it lies in a run directory or in a packed experiment.

A run directory holds `config.json`, `provenance.json` and `metrics.csv`; complete runs of emi and
emi-d also `embedding.safetensors`. For packed experiments see `packed`.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from emi.errors import UserError
from emi.intrinsic.table import order_of
from emi.report import packed
from emi.report.first_reward import FirstReward, first_reward
from emi.report.privacy import clean, private_words
from emi.report.statistics import Array

# These change time and memory, not the method: seeds of one group may differ in them.
NOT_SETTINGS = frozenset({"seed", "threads", "device", "trpo.slices"})


@dataclass(frozen=True, eq=False)
class Run:
    """One run as its files describe it; every column of `metrics` is float64 [iterations]."""

    env: str
    method: str
    seed: int
    steps: int  # environment steps that the config asks for; an unfinished run has taken fewer
    path: Path  # its directory, or the path of a packed run
    shown: Path  # `path` below the folder that the user named
    config: dict[str, Any]
    provenance: dict[str, Any]
    metrics: dict[str, Array]
    embedding: Path | None  # the file of its embedding sample

    @property
    def finished(self) -> bool:
        iterations = math.ceil(self.steps / self.config["steps_per_iteration"])
        return len(self.metrics["iteration"]) >= iterations

    @property
    def reached(self) -> float:
        """Environment steps taken so far."""
        steps = self.metrics["steps"]
        return float(steps[-1]) if len(steps) else 0.0

    @cached_property
    def flat_config(self) -> dict[str, Any]:
        """The config with dotted keys."""
        return dict(dotted(self.config))

    @property
    def settings(self) -> dict[str, Any]:
        """The dotted settings that seeds of one group have in common."""
        return {key: value for key, value in self.flat_config.items() if key not in NOT_SETTINGS}

    @property
    def changed(self) -> list[str] | None:
        """Settings of the method that differ from its preset; None if the run does not say.

        A longer or shorter run of the preset is still a run of the preset.
        """
        keys = self.provenance.get("changed")
        ignored = NOT_SETTINGS | {"steps"}
        return None if keys is None else [key for key in keys if key not in ignored]

    @property
    def has_return(self) -> bool:
        """Whether any episode has ended."""
        return not np.isnan(self.metrics["return_mean"]).all()

    def final_return(self, iterations: int = 1) -> float:
        """Mean of `return_mean` over the last iterations in which an episode ended, or NaN."""
        returns = self.metrics["return_mean"]
        known = returns[~np.isnan(returns)]
        return float(known[-iterations:].mean()) if len(known) else math.nan

    @property
    def first_reward(self) -> FirstReward | None:
        """When the run first met a reward; None before its first iteration."""
        if self.reached == 0:
            return None
        best = self.metrics.get("return_max", self.metrics["return_mean"])
        return first_reward(self.metrics["steps"], best)

    @cached_property
    def place(self) -> str:
        """Where the run lies, as readers of a report see it: without private names."""
        # Each part is cleaned by itself: none of them is an absolute path.
        return "/".join(clean(part, self.private) for part in self.shown.parts)

    @cached_property
    def private(self) -> frozenset[str]:
        """Names of people and hosts that its files or its path mention."""
        return private_words(self.provenance, self.config, str(self.path.resolve()))

    def same_metrics(self, other: "Run") -> bool:
        return self.metrics.keys() == other.metrics.keys() and all(
            np.array_equal(column, other.metrics[name], equal_nan=True)
            for name, column in self.metrics.items()
        )


def final_returns(runs: Iterable[Run], iterations: int = 1) -> Array:
    """The final returns of those runs that have one, [≤ runs].

    A run without a finished episode has no return. It is left out here, and so everywhere.
    """
    return np.array([run.final_return(iterations) for run in runs if run.has_return])


def dotted(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """{"trpo": {"max_kl": 0.01}} as ("trpo.max_kl", 0.01)."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def load_run(path: Path, shown: Path | None = None) -> Run:
    """Read the run at `path`: a run directory, or a run of a packed experiment.

    `shown` is the path below the folder that the user named. UserError if there is no run or it is
    damaged.
    """
    record = packed.record_of(path)
    if record is None and not (path / "config.json").exists():
        raise UserError(f"{path} holds no run: there is no config.json in it")
    try:
        config, provenance = record or [
            json.loads((path / name).read_bytes()) for name in ("config.json", "provenance.json")
        ]
        run = Run(
            env=config["env"],
            method=config["method"],
            seed=config["seed"],
            steps=config["steps"],
            path=path,
            shown=shown or path,
            config=config,
            provenance=provenance,
            metrics=_read_metrics(metrics_of(path) or path / "metrics.csv"),
            embedding=embedding_of(path),
        )
        _ = run.finished, run.has_return, run.changed  # need what every run has
    except packed.UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read as a run ({packed.reason(error)}): repair it or leave it out"
        ) from None
    return run


def _read_metrics(file: Path) -> dict[str, Array]:
    # What follows the last line break is a row that a running process is still writing.
    header, *rows = csv.reader(read_file(file).decode().rpartition("\n")[0].splitlines())
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
    return dict(zip(header, table.T, strict=True))


def read_file(file: Path) -> bytes:
    """The content of a file; of one that ends in .gz, decompressed."""
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content


def has_begun(path: Path) -> bool:
    """Whether there is a run at `path` with metrics, which it has after its first iteration."""
    if metrics_of(path) is None:
        return False
    return (path / "config.json").exists() or packed.record_of(path) is not None


def metrics_of(path: Path) -> Path | None:
    """The metrics file of the run at `path`, if it has one."""
    files = (path / "metrics.csv", packed.metrics_file(path))
    return next((file for file in files if file.exists()), None)


def embedding_of(path: Path) -> Path | None:
    """The embedding sample of the run at `path`, if it has one."""
    files = (path / "embedding.safetensors", packed.embedding_file(path))
    return next((file for file in files if file.exists()), None)


def find_runs(roots: Sequence[Path]) -> list[Run]:
    """All runs in and below these folders, each once, by environment, method, seed and place."""
    found: dict[Path, Run] = {}
    roots = list({root.resolve(): root for root in roots}.values())
    for root, shown in zip(roots, _shown_roots(roots), strict=True):
        paths = sorted(_paths_below(root))
        if not paths and not root.exists():
            raise UserError(f"there is no {root}: give the folder of a run, a sweep or results")
        if not paths:
            raise UserError(f"no runs in {root}: give a folder that holds metrics.csv files")
        for path in paths:
            if path.resolve() not in found:
                found[path.resolve()] = load_run(path, shown / path.relative_to(root))
    return sorted(
        found.values(), key=lambda run: (run.env, order_of(run.method), run.seed, run.place)
    )


def _paths_below(root: Path) -> set[Path]:
    """The paths of all runs in and below `root`, which may lie inside a packed experiment."""
    paths = {file.parent for file in root.rglob("metrics.csv")}
    above = [folder / packed.RUNS for folder in list(root.parents)[: packed.DEPTH]]
    for file in (*root.rglob(packed.RUNS), *(file for file in above if file.is_file())):
        records = (file.parent / key for key in packed.read_records(file.parent))
        paths |= {path for path in records if path.is_relative_to(root)}
    return paths


def _shown_roots(roots: Sequence[Path]) -> list[Path]:
    """The folders as readers see them: without where they lie on this machine."""
    names = [
        root.resolve().name if root.is_absolute() or ".." in root.parts else root.as_posix()
        for root in roots
    ]
    return [Path(name) for name in numbered(names, "folder")]


def numbered(names: Sequence[str | None], default: str) -> list[str]:
    """The names, with a number where there is no name or where several are equal."""
    return [
        name if name is not None and names.count(name) == 1 else f"{name or default} {number}"
        for number, name in enumerate(names, 1)
    ]
