"""`emi paper`: list the experiments, run a grid, collect finished runs into results/, draw.

`run` writes to OUT/<folder>/<environment>/<method>/seed<k>, the layout of results/. So its runs can
be drawn where they are, and be collected without naming a target.
"""

import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from emi import program
from emi.errors import FAILED, UserError
from emi.report.load import load_run, printable
from emi.report.tables import in_millions
from emi.reproduction.catalogue import EXPERIMENTS, named
from emi.reproduction.collect import collect_arm, collect_embedding
from emi.reproduction.experiment import Arm, Budget, Experiment, find, finished_run, seed_text
from emi.reproduction.made_files import collect_files, make_files
from emi.runs.progress import working
from emi.sweeps.sweep import Cell, check_engine, plan, sweep

RUNS, RESULTS = Path("runs/paper"), Path("results")
FEWEST_ITERATIONS = 3  # of a scaled run


def list_experiments(results: Path) -> int:
    """Print one line per table and figure: name, question, how much of its grid is available."""
    _require_folder(results)
    load = functools.cache(load_run)  # experiments share runs
    width = max(len(experiment.name) for experiment in EXPERIMENTS)
    problems: dict[str, None] = {}
    for experiment in EXPERIMENTS:
        found = find(experiment, results, load)
        problems |= dict.fromkeys(found.problems)
        there = sum(map(len, found.runs.values()))
        whole = there + sum(map(len, found.missing.values()))
        short = sum(run.steps < arm.steps for arm, runs in found.runs.items() for run in runs)
        scaled = f", {short} of them scaled" if short else ""
        parts = [f"{there} of {whole} runs{scaled}"] if whole else []
        files = len(experiment.embeddings) + len(experiment.files)
        if files:
            parts.append(f"{files - len(found.missing_files)} of {files} files")
        print(f"{experiment.name:<{width}}  {experiment.question} ({', '.join(parts)})")
    _name(problems)
    return 0


def default_runs(scale: float) -> Path:
    """Scaled runs have a root of their own: a run directory cannot hold two budgets."""
    return RUNS if scale == 1 else RUNS.with_name(f"{RUNS.name}_{scale:g}")


def run_experiments(
    names: Sequence[str],
    out: Path,
    budget: Budget,
    results: Path = RESULTS,
    *,
    command: Sequence[str],
    missing: bool = False,
) -> int:
    """Run all arms of these experiments in one sweep, or only the runs `missing` in `results`.

    `command` is the command line, which is recorded with files that are made.
    """
    if not names:
        raise UserError(f"name what to run: see '{program.command('paper', 'list')}'")
    if not 0 < budget.scale <= 1:
        raise UserError(f"--scale must be above 0 and at most 1, got {budget.scale:g}")
    if budget.jobs is not None and budget.jobs < 1:
        raise UserError(f"--jobs must be positive, got {budget.jobs}")
    check_engine(budget.engine, budget.address)
    experiments = named(names)
    _check_methods(experiments, budget)
    cells = planned(experiments, out, budget, results if missing else None)
    makers = {e.name: e.maker for e in experiments if e.maker is not None}
    to_make = []
    for name, maker in makers.items():
        wanted = maker.lacking(results, budget) if missing else maker.chosen(budget)
        if wanted:
            to_make.append((name, maker, wanted))
    if not cells and not to_make:
        grids = [arm.seeds for arm in arms_of(experiments)] + [m.seeds for m in makers.values()]
        if not any(map(budget.chosen, grids)):
            raise UserError("there is nothing to run: these grids have no such seeds")
        print(f"nothing is missing: every run of these grids is in {results}")
        return 0
    for name, maker, wanted in to_make:
        make_files(name, maker, wanted, out, budget, command)
    code = 0
    if cells:
        code = sweep(cells, jobs=budget.jobs, engine=budget.engine, address=budget.address)
    if code == 0:
        chosen = [experiment.name for experiment in experiments]
        where = [] if results == RESULTS else ["--results", str(results)]
        print("next:", program.command("paper", "collect", *chosen, "--runs", str(out), *where))
        print("then:", program.command("paper", "draw", *chosen, *where))
    return code


def _check_methods(experiments: Sequence[Experiment], budget: Budget) -> None:
    """Only runs of an experiment have a method; files that it makes cannot be chosen by one."""
    if budget.methods is None:
        return
    for experiment in experiments:
        known = sorted({arm.method for arm in arms_of([experiment])})
        if not known:
            raise UserError(f"{experiment.name} has no runs of methods: leave --methods out")
        for method in budget.methods:
            if method not in known:
                raise UserError(
                    f"{experiment.name} has no runs of {method}: --methods can be "
                    f"{', '.join(known)}"
                )


def planned(
    experiments: Sequence[Experiment], out: Path, budget: Budget, lacking_in: Path | None = None
) -> list[Cell]:
    """The cells of all arms, each once, ordered by seed: an interrupted sweep is balanced."""
    cells: dict[Path, Cell] = {}
    for arm in arms_of(experiments):
        if budget.methods is not None and arm.method not in budget.methods:
            continue
        seeds = budget.chosen(arm.seeds)
        steps = scaled_steps(arm, budget.scale)
        if lacking_in is not None:
            there = {seed: finished_run(arm, lacking_in, seed) for seed in seeds}
            seeds = [seed for seed, run in there.items() if run is None or run.steps < steps]
        options = {**arm.options, "steps": steps, "threads": budget.threads}
        label = (
            arm.folder if arm.settings or arm.preset != "paper" else ""
        )  # tells variants of a method apart
        for seed in seeds:
            folder, methods = out / arm.folder, [arm.method]
            own = plan(folder, [arm.env], methods, [seed], options, arm.settings, arm.preset)
            cells |= {cell.path: replace(cell, label=label) for cell in own}
    return sorted(cells.values(), key=lambda cell: cell.config.seed)


def arms_of(experiments: Sequence[Experiment]) -> list[Arm]:
    """The arms that can be run, each once."""
    return list(dict.fromkeys(arm for e in experiments for arm in e.arms if not arm.past))


def scaled_steps(arm: Arm, scale: float) -> int:
    """This share of the arm's steps, but at least a few iterations."""
    least = FEWEST_ITERATIONS * arm.config.steps_per_iteration
    return min(arm.steps, max(round(arm.steps * scale), least))


def collect_results(names: Sequence[str], runs: Path, results: Path) -> int:
    """Pack finished runs from `runs` into `results`, and say which are not finished."""
    experiments = named(names)
    if runs.resolve() == results.resolve():
        raise UserError(f"--runs and --results are both {runs}: give the folder of the runs")
    copied: list[Path] = []
    with working(f"collecting runs from {runs}") as show:
        for arm in arms_of(experiments):
            copied += collect_arm(arm, runs, results)
            show(f"{len(copied)} copied")
        # Any embedding that is drawn is collected with its run, whatever experiments were named.
        for name in dict.fromkeys(name for e in EXPERIMENTS for name in e.embeddings):
            if results / name in copied:
                copied += collect_embedding(runs / name, results / name)
        for experiment in experiments:
            if experiment.maker is not None:
                copied += collect_files(experiment.name, experiment.maker, runs, results)
    for path in copied:
        print(path)
    if not copied:
        print(f"nothing new below {runs}")
    return 0


def draw_experiments(names: Sequence[str], results: Path, out: Path) -> int:
    """Draw every table and figure of which something is in `results`, then say what is missing.

    What is damaged or does not belong where it lies is named and left out. The exit code is 1 if
    something that is there could not be drawn.
    """
    _require_folder(results)
    load = functools.cache(load_run)
    lacking: dict[str, list[str]] = {}
    problems: dict[str, None] = {}
    for experiment in named(names):
        found = find(experiment, results, load)
        problems |= dict.fromkeys(found.problems)
        try:
            with working(f"drawing {experiment.name}"):
                written = [] if found.nothing else experiment.draw(found, out / experiment.name)
        except UserError as error:
            problems[f"{experiment.name} is not drawn: {error}"] = None
            continue
        for path in written:
            print(path)
        if found.scaled():
            print(f"{experiment.name}: {found.scaled()}")
        for arm, seeds in found.missing.items():
            word = "seed" if len(seeds) == 1 else "seeds"
            line = f"{arm.place} {word} {seed_text(seeds)}, {in_millions(arm.steps)} steps"
            lacking.setdefault(line, []).append(experiment.name)
        for line in found.missing_files:
            lacking.setdefault(line, []).append(experiment.name)
    for line, wanted in lacking.items():
        print(f"missing: {line} ({', '.join(wanted)})")
    _name(problems)
    return FAILED if problems else 0


def _name(problems: Iterable[str]) -> None:
    for problem in problems:
        print(f"emi: {printable(problem)}", file=sys.stderr)


def _require_folder(results: Path) -> None:
    """UserError for a mistyped name; the default folder may not exist yet."""
    if not results.is_dir() and (results.exists() or results != RESULTS):
        raise UserError(f"{results} is not a folder: give the folder of the results with --results")
