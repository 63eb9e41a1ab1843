"""`emi paper`: list what there is, run a grid, collect finished runs into results/, draw.

Runs of `run` live in OUT/<folder>/<environment>/<method>/seed<k>, the layout of results/, so that
what was run can be drawn where it is, and collected without saying where to.
"""

import functools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emi.report.load import collect as collect_runs
from emi.report.load import (
    commits_of,
    load_run,
    read_stored,
    same_metrics,
    stored,
    write_compressed,
)
from emi.reproduction.catalogue import EXPERIMENTS, named
from emi.reproduction.experiment import (
    Budget,
    Experiment,
    Found,
    Group,
    begun,
    find,
    finished_run,
    seed_text,
)
from emi.reproduction.made_files import collect_files, make_files
from emi.reproduction.paper_values import in_millions
from emi.sweeps.sweep import Cell, check_engine, plan, sweep
from emi.training.presets import resolve

RUNS, RESULTS = Path("runs/paper"), Path("results")
FEWEST_ITERATIONS = 3  # of a scaled run


def list_all(results: Path) -> int:
    """One line for each table and figure: name, question, how much of its grid is there."""
    _require_folder(results)
    width = max(len(experiment.name) for experiment in EXPERIMENTS)
    for experiment in EXPERIMENTS:
        found = find(experiment, results)
        there = sum(map(len, found.runs.values()))
        whole = there + sum(map(len, found.missing.values()))
        short = sum(run.steps < group.steps for group, runs in found.runs.items() for run in runs)
        scaled = f", {short} of them scaled" if short else ""
        parts = [f"{there} of {whole} runs{scaled}"] if whole else []
        if experiment.files:
            files = len(experiment.files)
            parts.append(f"{files - len(found.missing_files)} of {files} files")
        print(f"{experiment.name:<{width}}  {experiment.question} ({', '.join(parts)})")
    return 0


def default_runs(scale: float) -> Path:
    """Scaled runs have a root of their own: one run directory cannot hold two budgets."""
    return RUNS if scale == 1 else RUNS.with_name(f"{RUNS.name}_{scale:g}")


def run(
    names: Sequence[str],
    out: Path,
    budget: Budget,
    results: Path = RESULTS,
    *,
    words: Sequence[str],
    missing: bool = False,
) -> int:
    """All groups of these experiments in one sweep, or only the runs `missing` in `results`.

    `words` is the command as typed.
    """
    if not names:
        raise ValueError("name what to run: see 'emi paper list'")
    if not 0 < budget.scale <= 1:
        raise ValueError(f"--scale lies above 0 and not above 1, got {budget.scale:g}")
    if budget.jobs is not None and budget.jobs < 1:
        raise ValueError(f"--jobs must be positive, got {budget.jobs}")
    check_engine(budget.engine, budget.address)
    experiments = named(names)
    lacking_in = results if missing else None
    cells = planned(experiments, out, budget, lacking_in)
    to_make = [
        (e, e.made)
        for e in experiments
        if e.made is not None
        and budget.chosen(e.made.seeds)
        and (lacking_in is None or e.made.lacking(lacking_in, budget))
    ]
    if not cells and not to_make:
        seeds = [g.seeds for e in experiments for g in e.groups if not g.past]
        seeds += [e.made.seeds for e in experiments if e.made is not None]
        if not any(map(budget.chosen, seeds)):
            raise ValueError("there is nothing to run: these grids have no such seeds")
        print(f"nothing is missing: every run of these grids is in {results}")
        return 0
    for experiment, made in to_make:
        make_files(experiment, made, out, budget, words, lacking_in)
    code = 0
    if cells:
        code = sweep(cells, jobs=budget.jobs, engine=budget.engine, address=budget.address)
    if code == 0:
        chosen = [experiment.name for experiment in experiments]
        where = [] if results == RESULTS else ["--results", str(results)]
        print("next:", shlex.join(["emi", "paper", "collect", *chosen, "--runs", str(out), *where]))
        print("then:", shlex.join(["emi", "paper", "draw", *chosen, *where]))
    return code


def planned(
    experiments: Sequence[Experiment], out: Path, budget: Budget, lacking_in: Path | None = None
) -> list[Cell]:
    """The cells of all groups, each once, seed by seed: a sweep cut short has covered all alike."""
    cells: dict[Path, Cell] = {}
    for group in dict.fromkeys(g for e in experiments for g in e.groups if not g.past):
        seeds = budget.chosen(group.seeds)
        steps = scaled_steps(group, budget.scale)
        if lacking_in is not None:
            there = {seed: finished_run(group, lacking_in, seed) for seed in seeds}
            seeds = [seed for seed, run in there.items() if run is None or run.steps < steps]
        if not seeds:
            continue
        made = plan(
            out / group.folder,
            [group.env],
            [group.method],
            seeds,
            {"steps": steps, "threads": budget.threads},
            group.settings,
        )
        label = group.folder if group.settings else ""  # a variant: its method is another's too
        cells |= {cell.path: replace(cell, label=label) for cell in made}
    return sorted(cells.values(), key=lambda cell: cell.config.seed)


def scaled_steps(group: Group, scale: float) -> int:
    """So much of the group's steps, but a few iterations at least."""
    config = resolve(group.env, group.method, words=group.settings)
    least = FEWEST_ITERATIONS * config.steps_per_iteration
    return min(group.steps, max(round(group.steps * scale), least))


def collect(names: Sequence[str], runs: Path, results: Path) -> int:
    """Copies finished runs from `runs` into `results`, and says what is not finished there.

    A run in results/ is not replaced by one of fewer steps, and not without a word.
    """
    experiments = named(names)
    if runs.resolve() == results.resolve():
        raise ValueError(f"--runs and --results are both {runs}: give the folder of the runs")
    copied: list[Path] = []
    for group in dict.fromkeys(g for e in experiments for g in e.groups if not g.past):
        ready = []
        for seed in group.seeds:
            new, old = (finished_run(group, root, seed) for root in (runs, results))
            if new is None:
                if begun(group.directory(runs, seed)):
                    print(f"not finished: {group.directory(runs, seed)}")
                continue
            if old is not None and old.steps > new.steps:
                steps = f"{in_millions(old.steps)} steps, the new run {in_millions(new.steps)}"
                print(f"kept: {group.directory(results, seed)} has {steps}")
                continue
            if old is not None and not same_metrics(old, new):
                commits = " and now ".join(" ".join(commits_of(r.provenance)) for r in (old, new))
                print(f"replaced: {group.directory(results, seed)} was of commit {commits}")
            ready.append(group.directory(runs, seed))
        if ready:
            copied += collect_runs(ready, results / group.folder)
    for experiment in experiments:
        if experiment.made is not None:
            copied += collect_files(experiment, experiment.made, runs, results)
    # What any drawing needs of a run goes with that run, whatever was named, and with no other.
    for name in dict.fromkeys(name for e in EXPERIMENTS if e.made is None for name in e.files):
        there, target = stored(runs / name), results / name
        if there is not None and target.parent in copied:
            # Compressed: frames of a game are large and much alike.
            copied.append(write_compressed(target, read_stored(there)))
    for path in copied:
        print(path)
    if not copied:
        print(f"nothing new below {runs}")
    return 0


def draw(names: Sequence[str], results: Path, out: Path) -> int:
    """Every figure and table of which anything is in `results`; then, what is missing.

    1 if something could not be drawn although it is there.
    """
    _require_folder(results)
    load = functools.cache(load_run)  # experiments share runs
    lacking: dict[str, list[str]] = {}
    code = 0
    for experiment in named(names):
        try:
            found = find(experiment, results, load)
            written = [] if found.nothing else experiment.draw(found, out / experiment.name)
        except ValueError as error:
            print(f"emi: {experiment.name} is not drawn: {error}", file=sys.stderr)
            code = 1
            continue
        for path in written:
            print(path)
        if found.scaled():
            print(f"{experiment.name}: {found.scaled()}")
        for line in missing_lines(found):
            lacking.setdefault(line, []).append(experiment.name)
    for line, wanted in lacking.items():
        print(f"missing: {line} ({', '.join(wanted)})")
    return code


def _require_folder(results: Path) -> None:
    """ValueError for a name that was mistyped; before anything was collected there is no folder."""
    if not results.is_dir() and (results.exists() or results != RESULTS):
        raise ValueError(f"{results} is no folder: give that of the results with --results")


def missing_lines(found: Found) -> list[str]:
    """One for each group that is not whole, one for each file."""
    lines = [
        f"{group.place} {'seed' if len(seeds) == 1 else 'seeds'} {seed_text(seeds)}, "
        f"{in_millions(group.steps)} steps"
        for group, seeds in found.missing.items()
    ]
    return [*lines, *found.missing_files]
