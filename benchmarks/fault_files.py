"""Damage the files of runs in every way, and call every command that reads them.

    .venv/bin/python benchmarks/fault_files.py                  # 10,000 cases, resumed if stopped
    .venv/bin/python benchmarks/fault_files.py --replay OUT/failures/00042

A few small runs are made once. Case k takes a copy of one of them, damages one file or folder of it
(`file_mutations`) and calls one reader; everything about it follows from (seed, k). Each reader has
a budget of time and memory, and may write only where it was told to. A case fails if the reader

- crashes, takes more than 20 s or more than 1 GB,
- reports a bug of emi, shows a traceback, or stops without a sentence,
- imports a module that a file names, or writes outside of the run,
- refuses files that were not damaged, or lets one damaged run spoil a report of several.

The input of a failed case is kept in OUT/failures.
"""

import argparse
import contextlib
import csv
import functools
import importlib
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from file_mutations import KINDS, MODULE, update_manifest

RESULTS = Path(__file__).parents[1] / "results"
SECONDS = 20.0  # for one case
TRAINING_SECONDS = 4.0  # after which a run that has been read counts as accepted
GROWTH = 1_000_000_000  # bytes that a case may add to the memory of the worker
CASES_PER_WORKER = 40
UNCHANGED = "unchanged"
STOPPED = 128 + signal.SIGUSR1  # the exit code of a run that was told to stop
TINY = ("num_envs=2", "policy.hidden=4", "threads=1")
SMALL_EMI = (
    *("intrinsic.state_hidden=4", "intrinsic.action_hidden=4", "intrinsic.information_hidden=4"),
    *("intrinsic.error_hidden=4", "intrinsic.epochs=1"),
)
SMALL_REPLAY = ("intrinsic.updates=2", "intrinsic.replay_size=200", "intrinsic.min_replay=10")
# The settings of the runs, small enough that an iteration takes a fraction of a second.
RUNS: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "cheetah": ("SparseHalfCheetah", "emi", 100, SMALL_EMI),
    "rnd": ("gym:CartPole-v1", "rnd", 60, ("intrinsic.features=4", "intrinsic.hidden=4")),
    "ex2": ("gym:CartPole-v1", "ex2", 60, ("intrinsic.first_updates=2", *SMALL_REPLAY)),
    "simhash": ("gym:CartPole-v1", "simhash", 60, ()),
    "vime": ("gym:CartPole-v1", "vime", 60, SMALL_REPLAY),
    "box": ("BoxImage", "emi", 40, ("intrinsic.epochs=1",)),
}
ITERATIONS = 2  # that the runs have done, of one more
# Experiments of the paper that are drawn, and patterns of the files of results/ that they need.
EXPERIMENTS = {
    "ablation": ("ablation_no_information/**/*",),
    "embedding_paths": (
        "sparse_half_cheetah/runs.json",
        "sparse_half_cheetah/SparseHalfCheetah/emi/seed0*",
    ),
    "box_image": ("box_image/*-seed0*",),
    "sb3_success": ("sb3_success/*",),
}
STATE = "bonus.safetensors"  # of the callback for Stable-Baselines3


class Place(NamedTuple):
    """The folders of one case."""

    top: Path
    name: str  # of the run that is damaged

    @property
    def run(self) -> Path:
        return self.top / "runs" / self.name

    @property
    def out(self) -> Path:
        return self.top / "out"


class Reader(NamedTuple):
    bases: tuple[str, ...]
    call: Callable[[Place], int]
    weight: int = 10
    always: bool = False  # whether it must succeed, since a sound run is next to the damaged one
    answers: tuple[int, ...] = ()  # other exit codes than 0 that need no sentence
    files: tuple[str, ...] = ()  # what it reads of a run; everything if empty
    modules: tuple[str, ...] = ("emi.runs.run",)  # that it imports


class Outcome(NamedTuple):
    case: int
    reader: str
    kind: str
    file: str
    outcome: str  # accepted, refused, or what went wrong
    seconds: float


def emi(*words: Any) -> int:
    from emi.cli import main

    return main(list(map(str, words)))


def callback() -> Any:
    """A callback for Stable-Baselines3 with a small method."""
    from gymnasium.spaces import Box, Discrete

    from emi.adapters.stable_baselines3 import IntrinsicRewardCallback
    from emi.intrinsic.rnd import RND, RNDConfig

    method = RND(Box(-1, 1, (4,)), Discrete(2), RNDConfig(features=4, hidden=(4,)))
    return IntrinsicRewardCallback(method, 0.1)


def load_callback(place: Place) -> int:
    """`IntrinsicRewardCallback.load`, with the errors of the command line."""
    from emi.errors import UserError

    try:
        callback().load(place.run / STATE)
    except UserError as error:
        print(f"emi: {error}", file=sys.stderr)
        return 2
    return 0


ALL = tuple(RUNS)
SHOWN = ("config.json", "provenance.json", "metrics.csv", "embedding.safetensors")
TRAINED = ("config.json", "checkpoints")
REPORT = ("emi.report.figures", "emi.report.page.html", "emi.reproduction.paper_values")
PAPER = ("emi.reproduction.commands",)
READERS: dict[str, Reader] = {
    "resume": Reader(ALL, lambda p: emi("resume", p.run), weight=20),
    "report": Reader(
        ALL,
        lambda p: emi("report", p.top / "runs", "--out", p.out / "report.html"),
        weight=20,
        always=True,
        files=SHOWN,
        modules=REPORT,
    ),
    "report --figures": Reader(
        ALL,
        lambda p: emi("report", p.top / "runs", "--figures", p.out / "figures"),
        weight=4,
        always=True,
        files=SHOWN,
        modules=REPORT,
    ),
    "watch": Reader(
        ("box",),
        lambda p: emi("watch", p.run, "--out", p.out / "watch.gif"),
        weight=2,
        files=TRAINED,
        modules=("emi.runs.watch", "imageio.v2"),
    ),
    "doctor --bonus": Reader(
        ALL, lambda p: emi("doctor", "--bonus", p.run), answers=(1,), files=TRAINED
    ),
    "train --config": Reader(
        ALL,
        lambda p: emi("train", "--config", p.run / "config.json", "--out", p.out / "new"),
        files=("config.json",),
    ),
    "paper list": Reader(
        tuple(EXPERIMENTS),
        lambda p: emi("paper", "list", "--results", p.run),
        always=True,
        modules=PAPER,
    ),
    "paper draw": Reader(
        tuple(EXPERIMENTS),
        lambda p: emi("paper", "draw", p.name, "--results", p.run, "--out", p.out / "figures"),
        weight=4,
        modules=PAPER,
    ),
    "callback.load": Reader(
        ("callback",), load_callback, modules=("emi.adapters.stable_baselines3",)
    ),
}


def restrict(readers: list[str], runs: list[str]) -> None:
    """Only these readers and runs."""
    for name, reader in list(READERS.items()):
        kept = tuple(base for base in reader.bases if base in runs or base not in RUNS)
        READERS[name] = reader._replace(bases=kept)
        if name not in readers or not kept:
            del READERS[name]
    for name in RUNS.keys() - set(runs):
        del RUNS[name]


def make_bases(bases: Path) -> None:
    """The runs and files that are damaged later; those that exist are kept."""
    bases.mkdir(parents=True, exist_ok=True)
    for name, (env, method, steps, settings) in RUNS.items():
        if (bases / name).exists():
            continue
        making = bases / f".{name}"
        shutil.rmtree(making, ignore_errors=True)
        size = ("--steps", ITERATIONS * steps, "--set", f"steps_per_iteration={steps}")
        code = emi("train", env, "--method", method, "--out", making, *size, *TINY, *settings)
        assert code == 0, f"{name} cannot be trained"
        config = json.loads((making / "config.json").read_text())
        config["steps"] += steps  # one iteration is left
        (making / "config.json").write_text(json.dumps(config, indent=2))
        older = sorted((making / "checkpoints").iterdir())[:-1]
        for folder in older:  # it would be used in the place of a damaged one
            shutil.rmtree(folder)
        making.rename(bases / name)
    if "callback.load" in READERS and not (bases / "callback").exists():
        (bases / "callback").mkdir()
        callback().save(bases / "callback" / STATE)
    for name, patterns in EXPERIMENTS.items():
        files = {file for pattern in patterns for file in RESULTS.glob(pattern) if file.is_file()}
        for file in files:
            target = bases / name / file.relative_to(RESULTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def paths_of(reader: str, run: Path) -> list[Path]:
    """The files and folders of a run that a reader reads."""
    files = READERS[reader].files
    return [
        path
        for path in sorted(run.rglob("*"))
        if not files or path.relative_to(run).parts[0] in files
    ]


def build(bases: Path, place: Place, outside: Path, random: Random, reader: str, kind: str) -> str:
    """Copy a run to `place` and damage it; returns the name of the damaged file."""
    shutil.copytree(bases / place.name, place.run)
    place.out.mkdir()
    if kind == UNCHANGED:
        return ""
    mutation = KINDS[kind]
    path = random.choice([p for p in paths_of(reader, place.run) if mutation.applies(p)])
    mutation.change(random, path, outside)
    if path.parent.parent.name == "checkpoints" and random.random() < 0.9:
        update_manifest(path.parent)
    return path.relative_to(place.run).as_posix()


def choose(seed: int, case: int, bases: Path) -> tuple[str, str, str, Random]:
    """Reader, run, kind of mutation and random generator of a case."""
    random = Random(f"{seed}/{case}")
    names, readers = list(READERS), list(READERS.values())
    reader = random.choices(names, [each.weight for each in readers])[0]
    base = random.choice(READERS[reader].bases)
    paths = paths_of(reader, bases / base)
    kinds = [kind for kind, mutation in KINDS.items() if any(map(mutation.applies, paths))]
    return reader, base, random.choice(kinds), random


def attempt(home: Path, bases: Path, top: Path, seed: int, case: int) -> Iterator[Outcome]:
    """Build a case and call its reader; yields what is known before, then the outcome."""
    reader, base, kind, random = choose(seed, case, bases)
    if case < 0:  # every reader and run once, without damage
        every = [(name, run) for name, each in READERS.items() for run in each.bases]
        (reader, base), kind = every[case], UNCHANGED
    place = Place(top, base)
    remove(top)
    top.mkdir(parents=True)
    sentinel = plant(home)
    file = build(bases, place, home / "outside", random, reader, kind)
    if READERS[reader].always and base in RUNS:
        shutil.copytree(bases / next(iter(RUNS)), place.run.with_name("sound"))
    before = state_of(home)
    yield Outcome(case, reader, kind, file, "began", 0.0)
    start = time.monotonic()
    with captured(top / "output") as output:
        try:
            code: int | None = READERS[reader].call(place)
        except BaseException as error:
            code, output.problem = None, f"raised {type(error).__name__}: {error}"
    said = (top / "output").read_text(errors="replace")
    outcome = output.problem or judge(said, code, READERS[reader], kind)
    if sentinel.exists():
        outcome = "imported a module"
    elif state_of(home) != before or stray(place):
        outcome = "wrote outside"
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]
    yield Outcome(case, reader, kind, file, outcome, time.monotonic() - start)


def judge(said: str, code: int | None, reader: Reader, kind: str) -> str:
    """What a reader did, from its output and exit code."""
    if "bug in emi" in said:
        return "reported a bug"
    if "Traceback" in said:
        return "showed a traceback"
    named = re.search("^emi: (?!warning)", said, re.M) is not None
    if code == 0 and reader.always:
        return "refused" if named else "accepted"
    if code in (0, STOPPED) or (code in reader.answers and not named):
        return "accepted"
    if not named:
        return f"exit code {code} without a sentence"
    return f"spoiled: exit code {code}" if reader.always or kind == UNCHANGED else "refused"


def plant(home: Path) -> Path:
    """A module on the path and files that must not change; returns the mark that it would leave."""
    mark = home / "mark"
    mark.unlink(missing_ok=True)
    outside = home / "outside"
    remove(outside)  # which an earlier case may have changed
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("precious\n")
    (outside / "folder" / "file").write_text("precious\n")
    (home / f"{MODULE}.py").write_text(f"open({str(mark)!r}, 'w').close()\nX = None\n")
    return mark


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and number of every file in and below a folder."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        if not path.is_dir() or path.is_symlink():
            found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino)
        else:
            found[str(path)] = (0, 0, status.st_ino)
    return found


def stray(place: Place) -> bool:
    """Whether something was written next to the folders that the reader was given."""
    expected = {"runs", "out", "output"}, {"report.html", "figures", "watch.gif", "new"}
    found = ({p.name for p in folder.iterdir()} for folder in (place.top, place.out))
    return any(not names <= known for names, known in zip(found, expected, strict=True))


def remove(folder: Path) -> None:
    """Also a tree that is too deep for Python."""
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


class Captured:
    problem = ""


@contextlib.contextmanager
def captured(path: Path) -> Iterator[Captured]:
    """Write what this process prints to a file, also what bypasses sys.stdout."""
    kept = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), write_through=True)  # noqa: SIM115
        try:
            yield Captured()
        finally:
            *descriptors, sys.stdout, sys.stderr = kept
            for number, old in enumerate(descriptors, 1):
                os.dup2(old, number)
                os.close(old)


def work(cases: range, attempt: Callable[[int], Iterator[Outcome]], pipe: Connection) -> None:
    """The process that calls the readers; it may die at any time."""
    import torch

    from emi.training.trainer import Trainer

    torch.set_num_threads(1)
    iterate = Trainer.iterate

    def iterate_once(trainer: Trainer) -> Any:
        pipe.send("training")
        report = iterate(trainer)
        os.kill(os.getpid(), signal.SIGUSR1)  # stop after this iteration
        return report

    Trainer.iterate = iterate_once  # type: ignore[method-assign]
    limit = memory("VmData") + GROWTH
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for case in cases:
        for outcome in attempt(case):
            pipe.send(outcome)
    os._exit(0)  # threads of a failed case must not keep the process


def memory(what: str, process: int | str = "self") -> int:
    """Bytes, from the status of a process."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return (
            next((int(line.split()[1]) for line in lines if line.startswith(f"{what}:")), 0) << 10
        )
    return 0


def cpu_seconds(process: int | None) -> float:
    """Of a process so far; the time that counts on a busy machine, unless it waits for nothing."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def watched(cases: range, attempt: Callable[[int], Iterator[Outcome]]) -> Iterator[Outcome]:
    """The outcomes of all cases, in worker processes that are replaced when they die or hang."""
    fork = multiprocessing.get_context("fork")
    while cases:
        ours, theirs = fork.Pipe(duplex=False)
        worker = fork.Process(target=work, args=(cases[:CASES_PER_WORKER], attempt, theirs))
        worker.start()
        theirs.close()
        last = Outcome(cases[0], "?", "?", "", "began", 0.0)
        began = deadline = moved = time.monotonic()
        before, used, limit, training, done, problem = 0, 0.0, SECONDS, False, 0, ""
        while not problem:
            try:
                if ours.poll(0.05):
                    news = ours.recv()
                    if news == "training":
                        training, deadline = True, time.monotonic() + TRAINING_SECONDS
                        continue
                    last = news
                    if last.outcome == "began":
                        began = moved = time.monotonic()
                        before, training = memory("VmRSS", worker.pid), False
                        used = cpu_seconds(worker.pid)
                        limit = used + SECONDS
                    else:
                        done += 1
                        yield last
                    continue
            except EOFError:
                break
            if last.outcome != "began" or last.reader == "?":
                continue
            now, used_before, used = time.monotonic(), used, cpu_seconds(worker.pid)
            moved = now if used > used_before else moved
            if training and now > deadline:
                problem = "accepted"
            elif not training and (used > limit or now - moved > SECONDS):
                problem = f"took more than {SECONDS:.0f} s"
            elif memory("VmRSS", worker.pid) - before > GROWTH:
                problem = "took more than 1 GB"
        if worker.is_alive() and problem:
            worker.kill()
        worker.join()
        if last.outcome == "began":
            problem = problem or f"died (exit code {worker.exitcode})"
            done += 1
            yield last._replace(outcome=problem, seconds=time.monotonic() - began)
        cases = cases[done:]


def failed(outcome: Outcome) -> bool:
    return outcome.outcome not in ("accepted", "refused")


def table(outcomes: list[Outcome]) -> str:
    """Markdown: a row for each kind of mutation, a column for each reader."""
    cells: dict[tuple[str, str], Counter[str]] = {}
    for each in outcomes:
        outcome = "failed" if failed(each) else each.outcome
        for key in ((each.kind, each.reader), ("all", each.reader), (each.kind, "all")):
            cells.setdefault(key, Counter())[outcome] += 1
        cells.setdefault(("all", "all"), Counter())[outcome] += 1
    kinds = [kind for kind in (*KINDS, UNCHANGED, "all") if (kind, "all") in cells]
    readers = [reader for reader in (*READERS, "all") if ("all", reader) in cells]
    header = ["damage", *(f"`{reader}`" if reader in READERS else reader for reader in readers)]
    rows = [[kind, *(_cell(cells.get((kind, r), Counter())) for r in readers)] for kind in kinds]
    lines = [header, ["---", *["---:"] * len(readers)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(counts: Counter[str]) -> str:
    tried = counts.total()
    return f"{tried:,} / {counts['refused']:,} / {counts['failed']:,}" if tried else ""


def keep(outcome: Outcome, bases: Path, home: Path, seed: int, failures: Path) -> None:
    """Keep the input of a failed case as it was before the reader saw it."""
    reader, base, kind, random = choose(seed, outcome.case, bases)
    top = failures / f"{outcome.case:05d}"
    remove(top)
    top.mkdir(parents=True)
    build(bases, Place(top, base), home / "outside", random, reader, kind)
    about = outcome._asdict() | {"base": base, "seed": seed}
    about |= {"readers": list(READERS), "runs": list(RUNS)}
    (top / "case.json").write_text(json.dumps(about, indent=1) + "\n")


def replay(failure: Path, out: Path) -> int:
    """Call the reader of a kept case again, on its damaged files, and show what it prints."""
    about = json.loads((failure / "case.json").read_text())
    restrict(about["readers"], about["runs"])
    attempted = functools.partial(
        attempt, out / "home", out / "bases", out / "replayed", about["seed"]
    )
    print({k: about[k] for k in ("reader", "kind", "file", "base", "outcome")})
    (outcome,) = watched(range(about["case"], about["case"] + 1), attempted)
    output = out / "replayed" / "output"
    print(output.read_text(errors="replace") if output.exists() else "", outcome)
    return int(failed(outcome))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5_000, help="of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "emi_fault_files")
    parser.add_argument("--readers", nargs="+", choices=list(READERS), default=list(READERS))
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--replay", type=Path, metavar="DIR", help="a folder in OUT/failures")
    args = parser.parse_args()
    out: Path = args.out.resolve()
    home, bases = out / "home", out / "bases"
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HOME": str(home), "MPLCONFIGDIR": str(out / "matplotlib"), "TERM": "dumb"}
    os.environ |= {"TMPDIR": str(out), "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    sys.path.append(str(home))
    restrict(args.readers, args.runs)
    warm_up(bases)
    os.chdir(home)
    if args.replay is not None:
        return replay(args.replay.resolve(), out)
    done = [outcome for seed in args.seeds for outcome in outcomes(out, seed, args.cases)]
    failures = sum(map(failed, done))
    seconds = sum(outcome.seconds for outcome in done)
    print(f"{len(done):,} cases, {failures} failed, {seconds / 60:.0f} minutes in the readers\n")
    print("Each cell: tried / refused with a sentence / failed. The others were accepted.\n")
    print(table(done))
    return int(failures > 0)


def outcomes(out: Path, seed: int, cases: int) -> list[Outcome]:
    """All cases of a seed; those of an earlier start are read, and the rest is appended."""
    home, bases, log = out / "home", out / "bases", out / f"outcomes-{seed}.csv"
    done = [Outcome(int(row[0]), *row[1:5], float(row[5])) for row in rows_of(log)]
    first = -sum(len(reader.bases) for reader in READERS.values())
    start = done[-1].case + 1 if done else first
    attempted = functools.partial(attempt, home, bases, out / "case", seed)
    with open(log, "a", newline="") as file:
        writer = csv.writer(file)
        for outcome in watched(range(start, cases), attempted):
            writer.writerow(outcome)
            file.flush()
            done.append(outcome)
            if failed(outcome):
                print("FAILED", *outcome, flush=True)
                if outcome.case >= 0:
                    keep(outcome, bases, home, seed, out / "failures")
            if outcome.case % 500 == 0:
                bad = sum(map(failed, done))
                print(f"seed {seed}: {outcome.case:,} of {cases:,} cases, {bad} failed", flush=True)
    return done


def rows_of(log: Path) -> list[list[str]]:
    """The complete rows of an earlier start."""
    text = log.read_text() if log.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if text:
        log.write_text(whole)
    return list(csv.reader(whole.splitlines()))


def warm_up(bases: Path) -> None:
    """Make the runs, and import what the workers use: a forked process need not do so again."""
    maker = multiprocessing.get_context("fork").Process(target=make_bases, args=(bases,))
    maker.start()
    maker.join()
    if maker.exitcode != 0:
        raise SystemExit("the runs could not be made")
    for reader in READERS.values():
        for module in reader.modules:
            importlib.import_module(module)


if __name__ == "__main__":
    sys.exit(main())
