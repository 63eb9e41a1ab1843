"""What a table or figure of the paper consists of, and which part of it is available.

An experiment has a question, a grid of runs and a drawing. The grid consists of arms; the runs of
an arm lie at `<root>/<folder>/<environment>/<method>/seed<k>`. The root is results/ or any folder
with the same layout, such as that of `emi paper run`.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emi.errors import UserError
from emi.intrinsic.table import title_of
from emi.report.groups import Group
from emi.report.load import Run, check_embedding, dotted, has_begun, load_run
from emi.report.tables import in_millions
from emi.runs.run_directory import file_name
from emi.training.config import TrainConfig, to_dict
from emi.training.presets import resolve

Draw = Callable[["Found", Path], list[Path]]  # the files' path without ending → files written
Load = Callable[[Path], Run]
Cell = tuple[str, int]


@dataclass(frozen=True)
class Arm:
    """Runs of a grid that differ only in their seed."""

    folder: str
    env: str
    method: str
    seeds: tuple[int, ...]
    steps: int
    settings: tuple[str, ...] = ()  # KEY=VALUE, as `emi train --set` takes them
    label: str = ""
    preset: str = "paper"
    past: bool = False  # made by an earlier version of the code: cannot be run again
    env_args: tuple[tuple[str, Any], ...] = ()  # arguments of the environment

    @property
    def title(self) -> str:
        return self.label or title_of(self.method)

    @property
    def place(self) -> str:
        return f"{self.folder}/{file_name(self.env)}/{self.method}"

    def path(self, root: Path, seed: int) -> Path:
        return root / self.place / f"seed{seed}"

    @property
    def options(self) -> dict[str, Any]:
        """The settings of `presets.resolve` that are not text."""
        return {"env_args": dict(self.env_args)} if self.env_args else {}

    @functools.cached_property
    def config(self) -> TrainConfig:
        """The config of its runs, except for their seed and number of steps."""
        return resolve(self.env, self.method, self.options, self.settings, self.preset)


@dataclass(frozen=True)
class Budget:
    """The options of `emi paper run`."""

    jobs: int | None = None
    threads: int = 1
    engine: str = "local"
    address: str | None = None
    scale: float = 1.0
    seeds: tuple[int, ...] | None = None  # None for all seeds of the grid
    methods: tuple[str, ...] | None = None  # None for all methods of the grid

    def chosen(self, seeds: Iterable[int]) -> list[int]:
        return [seed for seed in seeds if self.seeds is None or seed in self.seeds]


@dataclass(frozen=True)
class FileMaker:
    """How the files of an experiment are made that are not runs.

    They lie in `<root>/<name of the experiment>`, and hold cells (variant, seed) of some number of
    samples. A cell with fewer samples than asked for counts as missing.
    """

    cells: tuple[Cell, ...]
    samples: int  # of a complete cell
    fewest: int  # of a scaled cell
    sizes: Callable[[Path], Mapping[Cell, int]]  # samples of the cells below a root
    make: Callable[[Path, Sequence[Cell], int, Budget], None]  # cells with so many samples
    copy: Callable[[Path, Path, Sequence[Cell]], list[Path]]  # cells to another root; files written

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(seed for _, seed in self.cells))

    def asked(self, budget: Budget) -> int:
        return max(self.fewest, round(self.samples * budget.scale))

    def chosen(self, budget: Budget) -> list[Cell]:
        seeds = budget.chosen(self.seeds)
        return [cell for cell in self.cells if cell[1] in seeds]

    def lacking(self, root: Path, budget: Budget) -> list[Cell]:
        sizes, asked = self.sizes(root), self.asked(budget)
        return [cell for cell in self.chosen(budget) if sizes.get(cell, 0) < asked]

    def merge(self, source: Path, target: Path) -> list[Path]:
        """Copy cells that are larger in `source`; returns the files written."""
        new, old = self.sizes(source), self.sizes(target)
        larger = [cell for cell in self.cells if new.get(cell, 0) > old.get(cell, 0)]
        return self.copy(source, target, larger) if larger else []


@dataclass(frozen=True)
class Experiment:
    """One table or figure."""

    name: str
    question: str
    paper: str  # what the paper reports, in a sentence
    draw: Draw
    arms: tuple[Arm, ...] = ()
    embeddings: tuple[str, ...] = ()  # runs below a root whose embedding samples are drawn
    files: tuple[str, ...] = ()  # files below a root that are drawn and are not runs
    maker: FileMaker | None = None  # makes `files`


@dataclass(frozen=True)
class Found:
    """The part of an experiment's grid that is available."""

    experiment: Experiment
    root: Path
    runs: Mapping[Arm, list[Run]]  # finished runs, by seed; arms without any are left out
    missing: Mapping[Arm, list[int]] = field(default_factory=dict)  # seeds without finished runs
    missing_files: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # a sentence on each run that is there and cannot be used

    @property
    def nothing(self) -> bool:
        files = (*self.experiment.embeddings, *self.experiment.files)
        return not self.runs and len(self.missing_files) == len(files)

    @property
    def samples(self) -> list[Run]:
        """The runs whose embedding samples are drawn, as far as they are available."""
        runs = {run.path: run for row in self.runs.values() for run in row}
        paths = [self.root / name for name in self.experiment.embeddings]
        return [runs[path] for path in paths if path in runs and runs[path].embedding is not None]

    def groups(self, env: str) -> list[Group]:
        """The arms of an environment as groups, in the grid's order."""
        return [
            Group(arm.title, runs, preset=not arm.settings and arm.preset == "paper")
            for arm, runs in self.runs.items()
            if arm.env == env
        ]

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(arm.env for arm in self.runs))

    def scaled(self, env: str | None = None) -> str:
        """A note on runs with fewer steps than the grid asks for, in all or in one environment."""
        parts = []
        for name in self.environments if env is None else [env]:
            asked = max((arm.steps for arm in self.runs if arm.env == name), default=0)
            steps = (run.steps for group in self.groups(name) for run in group.runs)
            fewest = min(steps, default=asked)
            if fewest < asked:
                parts.append(f"{name} at {in_millions(fewest)} of {in_millions(asked)} steps")
        return f"SCALED: {'; '.join(parts)}" if parts else ""


def find(experiment: Experiment, root: Path, load: Load = load_run) -> Found:
    """What `root` holds of an experiment.

    An unfinished run counts as missing: its last return is not a final return. So does a run that
    is damaged or does not belong where it lies, which is a problem as well.
    """
    runs: dict[Arm, list[Run]] = {}
    missing: dict[Arm, list[int]] = {}
    problems: dict[str, None] = {}  # each once: all runs of an experiment share a runs.json
    for arm in experiment.arms:
        for seed in arm.seeds:
            run = None
            try:
                run = finished_run(arm, root, seed, load)
            except UserError as error:
                problems[str(error)] = None
            if run is None:
                missing.setdefault(arm, []).append(seed)
                continue
            try:
                if f"{arm.place}/seed{seed}" in experiment.embeddings:
                    check_embedding(run)
            except UserError as error:
                problems[str(error)] = None
                run = replace(run, embedding=None)
            runs.setdefault(arm, []).append(run)
    found = Found(experiment, root, runs, missing, problems=tuple(problems))
    drawn = {run.path for run in found.samples}
    absent = [f"the embedding of {n}" for n in experiment.embeddings if root / n not in drawn]
    absent += [name for name in experiment.files if not (root / name).exists()]
    return replace(found, missing_files=tuple(absent))


def finished_run(arm: Arm, root: Path, seed: int, load: Load = load_run) -> Run | None:
    path = arm.path(root, seed)
    if not has_begun(path):
        return None
    run = load(path)
    if (run.env, run.method, run.seed) != (arm.env, arm.method, seed):
        what = f"a run of {run.env}, {run.method}, seed {run.seed}"
        raise UserError(f"{path} holds {what}: move it where it belongs")
    wanted = _settings(arm)
    own = () if arm.preset == "paper" else ("preset",)
    for key in (*own, *(word.split("=")[0] for word in arm.settings)):
        if key not in run.settings:
            raise UserError(f"{path} does not say its {key}: move it elsewhere")
    for key, value in run.settings.items():
        # Settings that are unknown today, or did not exist then, cannot be compared.
        if key in wanted and value != wanted[key]:
            raise UserError(
                f"{path} was run with {key}={value} and not {wanted[key]}: move it elsewhere "
                "and run this arm again"
            )
    return run if run.finished else None


@functools.cache
def _settings(arm: Arm) -> dict[str, object]:
    """The settings that every run of the arm must have; runs may be scaled to fewer steps."""
    # Through JSON: tuples become lists, as in the file.
    settings = dict(dotted(json.loads(json.dumps(to_dict(arm.config)))))
    if arm.past:
        return {key: settings[key] for key in (word.split("=")[0] for word in arm.settings)}
    return {key: value for key, value in settings.items() if key != "steps"}


def seed_text(seeds: Sequence[int]) -> str:
    """[0, 1, 2, 7] to `0-2,7`."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
