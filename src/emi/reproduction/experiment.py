"""What a table or figure of the paper is made of, and what of it is there.

An experiment has a question, a grid of runs and a drawing. Its runs live in
`results/<folder>/<environment>/<method>/seed<k>`; the same layout below any other root, a folder of
`emi paper run` say, can be drawn as well.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emi.report.load import Run, dotted, load_run, stored
from emi.reproduction.paper_values import TITLES, in_millions
from emi.runs.run_directory import file_name
from emi.training.config import to_dict
from emi.training.presets import resolve

Draw = Callable[["Found", Path], list[Path]]  # what is there, and the files' path but their ending
Load = Callable[[Path], Run]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only: results/<folder>/<env>/<method>/seed<k>."""

    folder: str
    env: str
    method: str
    seeds: tuple[int, ...]
    steps: int
    settings: tuple[str, ...] = ()  # KEY=VALUE, as `emi train --set` takes them
    label: str = ""
    past: bool = False  # made by an earlier version of the code: cannot be run again

    @property
    def title(self) -> str:
        return self.label or TITLES.get(self.method, self.method)

    @property
    def place(self) -> str:
        return f"{self.folder}/{file_name(self.env)}/{self.method}"

    def directory(self, root: Path, seed: int) -> Path:
        return root / self.place / f"seed{seed}"


@dataclass(frozen=True)
class Budget:
    """How `emi paper run` does it."""

    jobs: int | None = None
    threads: int = 1
    engine: str = "local"
    address: str | None = None
    scale: float = 1.0
    seeds: tuple[int, ...] | None = None  # of the grid's; None for all

    def chosen(self, seeds: Iterable[int]) -> list[int]:
        return [seed for seed in seeds if self.seeds is None or seed in self.seeds]


@dataclass(frozen=True)
class Made:
    """How files come about that no sweep trains; they lie in one folder below any root.

    A part of them with fewer steps or samples than asked for counts as not there.
    """

    seeds: tuple[int, ...]
    make: Callable[[Path, Budget], None]  # below a root; what is there is kept
    lacking: Callable[[Path, Budget], list[int]]  # seeds of which a root has not all
    merge: Callable[[Path, Path], list[Path]]  # what one root has and another lacks; files written


@dataclass(frozen=True)
class Experiment:
    """One table or figure."""

    name: str
    question: str
    paper: str  # what the paper reports, in a sentence
    groups: tuple[Group, ...]
    draw: Draw
    files: tuple[str, ...] = ()  # below results/, that the drawing needs beside the runs' metrics
    made: Made | None = None  # how `files` come about, if not with runs


@dataclass(frozen=True)
class Found:
    """The part of an experiment's grid that is there."""

    experiment: Experiment
    results: Path
    runs: Mapping[Group, list[Run]]  # finished ones, by seed; groups without any are left out
    missing: Mapping[Group, list[int]] = field(default_factory=dict)  # seeds, where any are
    missing_files: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.runs and len(self.missing_files) == len(self.experiment.files)

    def of(self, env: str) -> list[list[Run]]:
        """The runs of every group in an environment, in the grid's order."""
        return [runs for group, runs in self.runs.items() if group.env == env]

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(group.env for group in self.runs))

    def scaled(self, env: str | None = None) -> str:
        """Which runs had fewer steps than the grid asks for, of all or of one environment."""
        parts = []
        for world in self.environments if env is None else [env]:
            groups = {group: runs for group, runs in self.runs.items() if group.env == world}
            asked = max((group.steps for group in groups), default=0)
            fewest = min((run.steps for runs in groups.values() for run in runs), default=asked)
            if fewest < asked:
                parts.append(f"{world} at {in_millions(fewest)} of {in_millions(asked)} steps")
        return f"SCALED: {'; '.join(parts)}" if parts else ""


def find(experiment: Experiment, results: Path, load: Load = load_run) -> Found:
    """Reads what `results` holds of an experiment; ValueError if a run is another than it should.

    A run that has not finished counts as missing: its last return is no final return.
    """
    runs: dict[Group, list[Run]] = {}
    missing: dict[Group, list[int]] = {}
    for group in experiment.groups:
        for seed in group.seeds:
            run = finished_run(group, results, seed, load)
            if run is None:
                missing.setdefault(group, []).append(seed)
            else:
                runs.setdefault(group, []).append(run)
    absent = tuple(name for name in experiment.files if stored(results / name) is None)
    return Found(experiment, results, runs, missing, absent)


def finished_run(group: Group, root: Path, seed: int, load: Load = load_run) -> Run | None:
    directory = group.directory(root, seed)
    if not begun(directory):
        return None
    run = load(directory)
    _check(group, seed, run, directory)
    return run if run.finished else None


def begun(directory: Path) -> bool:
    """Whether there is a run with a row: its first iteration can take minutes."""
    return (directory / "config.json").exists() and stored(directory / "metrics.csv") is not None


def _check(group: Group, seed: int, run: Run, directory: Path) -> None:
    """A run in the wrong folder, or with other settings, would be drawn as what it is not."""
    if (run.env, run.method, run.seed) != (group.env, group.method, seed):
        what = f"a run of {run.env}, {run.method}, seed {run.seed}"
        raise ValueError(f"{directory} holds {what}: move it where it belongs")
    wanted = _settings(group)
    for key, value in run.settings.items():
        # An option that came later kept what had been done before it.
        if key in wanted and value != wanted[key]:
            raise ValueError(
                f"{directory} was run with {key}={value} and not {wanted[key]}: move it elsewhere "
                "and run the group again"
            )


@functools.cache
def _settings(group: Group) -> dict[str, object]:
    """What every run of the group has in its config.json, whatever its steps: some are scaled."""
    made = to_dict(resolve(group.env, group.method, words=group.settings))
    settings = dict(dotted(json.loads(json.dumps(made))))  # lists, as in the file
    if group.past:
        return {key: settings[key] for key in (word.split("=")[0] for word in group.settings)}
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


def write_page(found: Found, stem: Path, body: str) -> Path:
    """Writes `stem`.md: the question, the mark of scaled runs, the body, what the paper says."""
    scaled = found.scaled()
    parts = [
        found.experiment.question,
        *([f"**{scaled}**"] if scaled else []),
        body.strip(),
        f"The paper: {found.experiment.paper}",
    ]
    page = stem.with_name(f"{stem.name}.md")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page
