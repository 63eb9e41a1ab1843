"""One model of a run, whether it lies in a run directory or in a packed experiment.

A run directory holds `config.json`, `provenance.json` and `metrics.csv`; complete runs of emi and
emi-d also `embedding.safetensors`, runs with `--coverage` also `visits.safetensors`. For packed
experiments see `packed`.
"""

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emi.errors import FAILED, UserError
from emi.intrinsic.table import order_of
from emi.report import packed
from emi.report.first_reward import FirstReward, first_reward
from emi.report.metrics_table import read_metrics
from emi.report.privacy import HIDDEN, clean, private_words
from emi.report.record import Record, checked, read_record
from emi.report.sample_file import read_sample_file
from emi.report.statistics import Array
from emi.report.visits_file import read_visits_file

# These change time, memory and what is recorded, not the method: seeds of one group may differ.
NOT_SETTINGS = frozenset({"seed", "threads", "device", "trpo.slices", "coverage", "coverage_axes"})
# Absent from older runs; empty, they mean the same.
ABSENT_IF_EMPTY = frozenset({"wrappers", "observation"})
VISITS = "visits.safetensors"
MOST_PRIVATE_WORDS = 1_000  # in the files of a run: each is searched for in every text


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
    visits: Path | None = None  # the file of its visited states

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
        return {
            key: value
            for key, value in self.flat_config.items()
            if key not in NOT_SETTINGS and (value or key not in ABSENT_IF_EMPTY)
        }

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
        return _public_place(self.shown, self.private)

    @cached_property
    def private(self) -> frozenset[str]:
        """Names of people and hosts that its files or its path mention."""
        return private_words(self.provenance, self.config, os.path.realpath(self.path))

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
    damaged; its embedding is not read.
    """
    try:
        return _load(path, shown or path, packed.record_of(path))
    except UserError as error:
        sentence = f"{path} cannot be read as a run ({error}): repair it or leave it out"
        raise UserError(sentence) from None


def _load(path: Path, shown: Path, record: Record | UserError | None) -> Run:
    """The run at `path`; a UserError names the file and the field that cannot be read."""
    if isinstance(record, UserError):
        raise record
    if record is None and not (path / "config.json").exists():
        raise UserError("it has no config.json")
    files = f"{path}/config.json", f"{path}/provenance.json"
    if record is not None:
        files = (f"its config in {packed.RUNS}", f"its provenance in {packed.RUNS}")
    try:
        config, provenance = checked(record or read_record(path), files)
        metrics = read_metrics(metrics_of(path) or path / "metrics.csv")
        embedding = embedding_of(path)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise UserError(f"{error.filename or path} cannot be read: {problem}") from None
    run = Run(
        env=config["env"],
        method=config["method"],
        seed=config["seed"],
        steps=config["steps"],
        path=path,
        shown=shown,
        config=config,
        provenance=provenance,
        metrics=metrics,
        embedding=embedding,
        visits=path / VISITS if (path / VISITS).exists() else None,
    )
    if len(run.private) > MOST_PRIVATE_WORDS:
        raise UserError(f"its files name more than {MOST_PRIVATE_WORDS:,} people and hosts")
    return run


def _public_place(shown: Path, private: frozenset[str]) -> str:
    # Each part is cleaned by itself: none of them is an absolute path, or becomes one.
    parts = (printable(clean(part, private)) for part in shown.parts)
    return "/".join(HIDDEN if part in ("", ".", "..") else part for part in parts)


def printable(text: str) -> str:
    """`text` in one line, without characters that a terminal would act on."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def has_begun(path: Path) -> bool:
    """Whether there is a run at `path` with metrics, which it has after its first iteration."""
    try:
        if metrics_of(path) is None:
            return False
        return (path / "config.json").exists() or packed.record_of(path) is not None
    except OSError:  # which `load_run` reports
        return True


def metrics_of(path: Path) -> Path | None:
    """The metrics file of the run at `path`, if it has one."""
    files = (path / "metrics.csv", packed.metrics_file(path))
    return next((file for file in files if file.exists()), None)


def embedding_of(path: Path) -> Path | None:
    """The embedding sample of the run at `path`, if it has one."""
    files = (path / "embedding.safetensors", packed.embedding_file(path))
    return next((file for file in files if file.exists()), None)


class Problem(NamedTuple):
    """A run or a folder that cannot be read, or not all of it."""

    path: Path
    shown: Path
    reason: str
    effect: str = "cannot be read"

    @property
    def sentence(self) -> str:
        """For the user, who knows where the files are."""
        return printable(f"{self.path} {self.effect} ({self.reason})")

    @property
    def remark(self) -> str:
        """For every reader of a report: without private names."""
        private = private_words(os.path.realpath(self.path))
        reason = printable(clean(self.reason, private))
        return f"{_public_place(self.shown, private)} {self.effect} ({reason})."


class FoundRuns(NamedTuple):
    """The runs in some folders, and what there cannot be read."""

    runs: list[Run]
    problems: list[Problem]


def find_runs(roots: Sequence[Path]) -> FoundRuns:
    """All runs in and below these folders, each once, by environment, method, seed and place.

    What cannot be read is left out and named on stderr. UserError if nothing is left.
    """
    found: dict[str, Run] = {}
    problems: list[Problem] = []
    roots = list({os.path.realpath(root): root for root in roots}.values())
    for root, shown in zip(roots, _shown_roots(roots), strict=True):
        paths = _search(root)
        if not paths and not root.exists():
            raise UserError(f"there is no {root}: give the folder of a run, a sweep or results")
        if not paths:
            raise UserError(f"no runs in {root}: give a folder that holds metrics.csv files")
        for path, record in sorted(paths.items()):
            real, where = os.path.realpath(path), shown / os.path.relpath(path, root)
            if real in found:
                continue
            try:
                found[real] = _load(path, where, record)
            except UserError as error:
                problems.append(Problem(path, where, str(error)))
                continue
            try:
                check_embedding(found[real])
            except UserError as error:
                effect = "is shown without its embedding"
                problems.append(Problem(path, where, str(error), effect))
                found[real] = replace(found[real], embedding=None)
            try:
                check_visits(found[real])
            except UserError as error:
                effect = "is shown without its visited states"
                problems.append(Problem(path, where, str(error), effect))
                found[real] = replace(found[real], visits=None)
    _name(problems, nothing_left=not found)
    runs = sorted(
        found.values(), key=lambda run: (run.env, order_of(run.method), run.seed, run.place)
    )
    return FoundRuns(runs, problems)


def check_embedding(run: Run) -> None:
    """UserError if the run has an embedding sample that cannot be shown."""
    if run.embedding is not None:
        read_sample_file(run.embedding)


def check_visits(run: Run) -> None:
    """UserError if the run has visited states that cannot be shown."""
    if run.visits is not None:
        read_visits_file(run.visits)


def _name(problems: Sequence[Problem], *, nothing_left: bool) -> None:
    """One line each on stderr; UserError if nothing is left."""
    if nothing_left and len(problems) == 1:
        raise UserError(problems[0].sentence, FAILED)
    for problem in problems:
        print(f"emi: {problem.sentence}", file=sys.stderr)
    if nothing_left:
        raise UserError(f"none of these {len(problems)} runs can be read: repair one", FAILED)


def _search(root: Path) -> dict[Path, Record | UserError | None]:
    """The paths of all runs in and below `root`, which may lie inside a packed experiment.

    The value of a packed run is its record, that of a folder that cannot be read the reason. Links
    to folders are not followed. No recursion: a tree can be deeper than Python's stack.
    """
    found: dict[Path, Record | UserError | None] = {}
    experiments = list(root.parents)[: packed.DEPTH]
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                inside = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if folder == root:  # which the user has named, unlike those below it
                raise UserError(f"{root} cannot be read ({reason}): give another folder") from None
            found[folder] = UserError(reason)
            continue
        folders += [folder / name for name, is_folder in inside.items() if is_folder]
        if "metrics.csv" in inside:
            found[folder] = None
        if packed.RUNS in inside:
            experiments.append(folder)
    for experiment in experiments:
        try:
            records = packed.read_records(experiment)
        except UserError as error:
            found[experiment / packed.RUNS] = error
            continue
        places = ((experiment / key, record) for key, record in records.items())
        found |= {path: record for path, record in places if path.is_relative_to(root)}
    return found


def _shown_roots(roots: Sequence[Path]) -> list[Path]:
    """The folders as readers see them: without where they lie on this machine."""
    names = [
        Path(os.path.realpath(root)).name
        if root.is_absolute() or ".." in root.parts
        else root.as_posix()
        for root in roots
    ]
    return [Path(name) for name in numbered(names, "folder")]


def numbered(names: Sequence[str | None], default: str) -> list[str]:
    """The names, with a number where there is no name or where several are equal."""
    return [
        name if name is not None and names.count(name) == 1 else f"{name or default} {number}"
        for number, name in enumerate(names, 1)
    ]
