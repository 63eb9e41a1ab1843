"""Runs as files: read a run directory or a committed result, and commit a finished run.

A run directory holds `config.json`, `provenance.json` and `metrics.csv`. A committed run holds the
same three, the last one compressed, at `results/<experiment>/<env>/<method>/seed<seed>/`, and has a
row in `results/MANIFEST.csv`; where a figure needs it, its embedding too, compressed.
"""

import csv
import gzip
import io
import json
import math
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emi.durable_file import write_durably

# Options that runs of one experiment may differ in: they change time and memory, not the method.
NOT_SETTINGS = frozenset({"seed", "threads", "device", "trpo.slices"})
MANIFEST_COLUMNS = ("run", "commit", "command", "seed", "machine", "minutes")


@dataclass(frozen=True)
class Run:
    """One run as its files tell it; every column of `metrics` is float64 [iterations]."""

    env: str
    method: str
    seed: int
    steps: int  # asked for in the config, not necessarily reached
    config: dict[str, Any]
    provenance: dict[str, Any]
    metrics: dict[str, npt.NDArray[np.float64]]

    @property
    def finished(self) -> bool:
        iterations = math.ceil(self.steps / self.config["steps_per_iteration"])
        return len(self.metrics["iteration"]) >= iterations

    @property
    def settings(self) -> dict[str, Any]:
        """The config with dotted keys, without the options that tell no experiments apart."""
        return {key: value for key, value in dotted(self.config) if key not in NOT_SETTINGS}

    @property
    def changed(self) -> list[str]:
        """The settings that `--set` changed from those of the preset when it was started."""
        starts = self.provenance.get("starts") or [{}]
        typed = _keys_after_set(str(starts[0].get("command") or ""))
        return [key for key in typed if key not in NOT_SETTINGS]

    def final_return(self, iterations: int = 1) -> float:
        """Mean of `return_mean` over the last iterations in which an episode ended, or NaN."""
        returns = self.metrics["return_mean"]
        known = returns[~np.isnan(returns)]
        return float(known[-iterations:].mean()) if len(known) else math.nan


def _keys_after_set(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its partner
        words = command.split()
    keys, option = [], ""
    for word in words:
        if word.startswith("--"):
            option, _, word = word.partition("=")  # --set=eta=0.5
        if option == "--set" and word:
            keys.append(word.partition("=")[0])
    return keys


def dotted(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """{"trpo": {"max_kl": 0.01}} as ("trpo.max_kl", 0.01)."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def load_run(directory: Path) -> Run:
    """Reads a run directory or a committed run."""
    if not (directory / "config.json").exists():
        raise ValueError(f"{directory} holds no run: there is no config.json in it")
    try:
        config = _read_json(directory / "config.json")
        run = Run(
            env=config["env"],
            method=config["method"],
            seed=config["seed"],
            steps=config["steps"],
            config=config,
            provenance=_read_json(directory / "provenance.json"),
            metrics=_parse_metrics(_read_metrics(directory).decode()),
        )
        _ = run.finished  # reads what a config of ours always has
    except (OSError, EOFError, KeyError, TypeError, ValueError, zlib.error) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"{directory} cannot be read as a run ({reason}): repair it or leave it out"
        ) from None
    return run


def same_metrics(a: Run, b: Run) -> bool:
    return a.metrics.keys() == b.metrics.keys() and all(
        np.array_equal(a.metrics[name], b.metrics[name], equal_nan=True) for name in a.metrics
    )


def load_runs(root: Path) -> list[Run]:
    """All runs below `root`, ordered by environment, method and seed."""
    directories = sorted({path.parent for path in root.rglob("metrics.csv*")})
    if not directories:
        raise ValueError(f"no runs below {root}: give a folder that holds metrics.csv files")
    runs = [load_run(directory) for directory in directories]
    return sorted(runs, key=lambda run: (run.env, run.method, run.seed))


def collect(run_directories: Iterable[Path], experiment: Path) -> list[Path]:
    """Copies finished runs into `experiment`, a folder of results/, each with its manifest row.

    The same run gives the same bytes, so collecting twice changes nothing. All runs are read before
    the first is written: one that is unfinished stops the whole call with nothing changed.
    """
    runs = [(directory, load_run(directory)) for directory in run_directories]
    for directory, run in runs:
        if not run.finished:
            raise ValueError(
                f"{directory} has not reached its {run.steps} steps: "
                f"finish it with 'emi resume {directory}'"
            )

    rows, targets = [], []
    for directory, run in runs:
        env = run.env.replace(":", "-").replace("/", "-")  # `gym:Ant-v5` is no folder name
        target = experiment / env / run.method / f"seed{run.seed}"
        target.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "provenance.json"):
            write_durably(target / name, (directory / name).read_bytes())
        _forget_another_run(target, _read_metrics(directory))
        write_compressed(target / "metrics.csv", _read_metrics(directory))
        key = target.relative_to(experiment.parent).as_posix()
        seconds = float(run.metrics["seconds"][-1])
        rows.append(manifest_row(key, run.provenance["starts"], str(run.seed), seconds))
        targets.append(target)
    add_to_manifest(experiment.parent, rows)
    return targets


def _forget_another_run(target: Path, metrics: bytes) -> None:
    """Removes the embedding of a run that is about to be replaced by one with other metrics."""
    if stored(target / "metrics.csv") is not None and _read_metrics(target) != metrics:
        for path in target.glob("embedding.safetensors*"):
            path.unlink()


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def stored(path: Path) -> Path | None:
    """The file as it stands: plain, as a run writes it, or with .gz, as results/ keeps it."""
    compressed = path.with_name(f"{path.name}.gz")
    return next((each for each in (path, compressed) if each.exists()), None)


def read_stored(path: Path) -> bytes:
    """The content of a file that `stored` has found."""
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def write_compressed(path: Path, content: bytes) -> Path:
    """Writes `path`.gz; the same content gives the same bytes: no time stamp, no file name."""
    target = path.with_name(f"{path.name}.gz")
    write_durably(target, gzip.compress(content, mtime=0))
    return target


def _read_metrics(directory: Path) -> bytes:
    path = directory / "metrics.csv"
    return read_stored(stored(path) or path)


def _parse_metrics(text: str) -> dict[str, npt.NDArray[np.float64]]:
    # What follows the last line break is a row that a live run is still writing.
    header, *rows = csv.reader(text.rpartition("\n")[0].splitlines())
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
    return dict(zip(header, table.T, strict=True))


def manifest_row(
    key: str, starts: Sequence[Mapping[str, Any]], seed: str, seconds: float
) -> dict[str, str]:
    """What was stopped and resumed has several starts: the first command, every commit."""
    machine = starts[0]["machine"]
    return {
        "run": key,
        "commit": " ".join(commits_of({"starts": starts})),
        "command": starts[0]["command"],
        "seed": seed,
        "machine": f"{machine['cpu']}, {machine['cores']} cores",
        "minutes": f"{seconds / 60:.1f}",
    }


def add_to_manifest(results: Path, rows: Iterable[dict[str, str]]) -> None:
    """Adds rows to MANIFEST.csv, each in its place; one of the same run is replaced."""
    path = results / "MANIFEST.csv"
    known = _read_manifest(path) | {row["run"]: row for row in rows}
    text = io.StringIO()
    writer = csv.DictWriter(text, MANIFEST_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(known[key] for key in sorted(known))
    write_durably(path, text.getvalue().encode())


def commits_of(provenance: Mapping[str, Any]) -> list[str]:
    """The commits that a run was started or resumed at, each once."""
    starts = provenance["starts"]
    return list(
        dict.fromkeys(
            (start["commit"] or "unknown") + ("+modified" if start["modified"] else "")
            for start in starts
        )
    )


def _read_manifest(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["run"]: row for row in csv.DictReader(file)}
