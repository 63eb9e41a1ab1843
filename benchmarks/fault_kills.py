"""Kill training at random moments, resume it, and compare it bit for bit with an undisturbed run.

Also kills `emi report` while it writes: every file must be the old one or the new one.
benchmarks/README.md describes it. It can be stopped and started again.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turns import machine

from emi.durable_file import write_durably
from emi.report.figures import write_figures
from emi.report.page.html import write_page
from emi.runs import checkpoint
from emi.runs.provenance import describe_start
from emi.runs.run import run
from emi.runs.run_directory import RunDirectory, config_bytes
from emi.training.config import TrainConfig
from emi.training.presets import resolve

ITERATIONS = 12
MOST_KILLS = 10  # of one run, which is then left to complete
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PLACES = ("start-up", "iteration", "writing")
VECTORS: dict[str, Any] = {"steps_per_iteration": 400, "num_envs": 2}
IMAGES: dict[str, Any] = {"steps_per_iteration": 100, "num_envs": 2}
# Updates in every iteration, and a replay memory that wraps around.
REPLAY = {"min_replay": 100, "updates": 20, "replay_size": 1_000}


class Case(NamedTuple):
    env: str
    method: str
    threads: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.env}-{self.method}-{self.threads}".replace(":", "-")

    @property
    def config(self) -> TrainConfig:
        steps = self.settings["steps_per_iteration"] * ITERATIONS
        settings = {**self.settings, "steps": steps, "threads": self.threads}
        return resolve(self.env, self.method, settings)


CASES = (
    Case("SparseHalfCheetah", "emi", 1, VECTORS),
    Case("SparseHalfCheetah", "emi", 2, VECTORS),
    Case("SparseHalfCheetah", "vime", 2, {**VECTORS, "intrinsic": REPLAY}),
    Case("SwimmerGather", "ex2", 1, {**VECTORS, "intrinsic": {**REPLAY, "first_updates": 20}}),
    Case("SwimmerGather", "rnd", 2, VECTORS),
    Case("Freeway", "emi", 1, IMAGES),
    Case("Freeway", "simhash", 2, IMAGES),
    Case("gym:CartPole-v1", "icm", 1, VECTORS),
    Case("gym:CartPole-v1", "emi", 2, VECTORS),
)


def fork(work: Callable[[], object], log: Path) -> int:
    """Do `work` in a process of its own session and return its id.

    A fork, because a new interpreter would need seconds to import PyTorch.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            for number in STOP_SIGNALS:  # a background job would inherit an ignored SIGINT
                signal.signal(number, signal.SIG_DFL)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(output, 1)
            os.dup2(output, 2)
            work()
            code = 0
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(code)
    return child


def command(words: Sequence[str], log: Path) -> int:
    """Start `emi WORD…` in a session of its own and return its process id."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "emi", *words], stdout=file, stderr=file, start_new_session=True
        ).pid


class Watch:
    """Waits for moments in the life of a child process."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.began = time.monotonic()

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def until(self, moment: Callable[[], bool], poll: float = 0.0005) -> None:
        """Return when `moment` is true or the child has ended."""
        while not moment() and not self.ended():
            time.sleep(poll)

    def sleep(self, seconds: float, poll: float = 0.0005) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, poll)

    def kill(self, number: signal.Signals) -> bool:
        """Send the signal to all processes of the child's session; return whether it killed it."""
        if not self.ended():
            os.killpg(self.child, number)
        return self.code() == -number

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def starts(directory: RunDirectory) -> bytes:
    """Changes when a process has begun to write."""
    return directory.provenance.read_bytes() if directory.provenance.exists() else b""


def unfinished(path: Path) -> list[Path]:
    """Files and checkpoints that were not completely written."""
    while True:
        # A folder can be renamed by the process between being listed and being opened.
        with contextlib.suppress(FileNotFoundError):
            return [*path.rglob(".*.writing"), *path.glob("checkpoints/.writing-*")]


def train(config: TrainConfig, out: Path) -> None:
    resume = RunDirectory(out).config.exists()
    run(config, out, resume=resume, checkpoint_seconds=0.0)


def disturb(case: Case, out: Path, log: Path, pace: float, chance: random.Random) -> Counter[str]:
    """Train once in `out` and interrupt it at a random moment; returns what happened."""
    directory, config = RunDirectory(out), case.config
    before = starts(directory)
    stop = chance.random() < 1 / 6
    number = chance.choice(STOP_SIGNALS) if stop else signal.SIGKILL
    moment = chance.choice(("start-up", "iteration", "iteration", "writing", "writing"))
    if directory.config.exists() and not stop and chance.random() < 1 / 8:
        watch = Watch(command(["resume", str(out)], log))  # killed while it imports, most often
        watch.sleep(chance.uniform(0.0, 6.0))
    else:
        watch = Watch(fork(lambda: train(config, out), log))
        if moment == "start-up":
            watch.sleep(chance.uniform(0.05, 1.0))  # the signal handlers are installed by then
        else:
            watch.until(lambda: starts(directory) != before)  # rows of killed processes are gone
            row = iteration(out) + chance.randint(1, 4)
            watch.until(lambda: number_of_rows(directory) >= row)
            watch.sleep(chance.uniform(0.0, 2 * pace))
        if moment == "writing":
            watch.until(lambda: bool(unfinished(out)))
            watch.sleep(chance.uniform(0.0, 0.005))
    if stop:
        if not watch.ended():
            os.killpg(watch.child, number)
        code = watch.code()
        return Counter({"stop signals": 1} if code == 0 else {f"exit code {code}": 1})
    if not watch.kill(number):
        return Counter()  # it was complete before
    if starts(directory) == before:
        place = "start-up"
    else:
        place = "writing" if unfinished(out) else "iteration"
    return Counter({"kills": 1, place: 1})


def number_of_rows(directory: RunDirectory) -> int:
    lines = directory.metrics.read_bytes().count(b"\n") if directory.metrics.exists() else 0
    return max(0, lines - 1)


def iteration(out: Path) -> int:
    """Where a run will be resumed."""
    return checkpoint.latest_iteration(out / "checkpoints") or 0


def disturbed_run(case: Case, work: Path, number: int, seed: int) -> Counter[str]:
    """A run that is killed and resumed until it is complete, compared with the undisturbed one."""
    chance = random.Random(f"{seed}/{case.name}/{number}")
    straight, out = work / case.name / "straight", work / case.name / f"run{number}"
    log = work / case.name / "log.txt"
    shutil.rmtree(out, ignore_errors=True)
    with (straight / "metrics.csv").open() as file:
        pace = float(list(csv.DictReader(file))[-1]["seconds"]) / ITERATIONS
    counts: Counter[str] = Counter(runs=1)
    for _ in range(MOST_KILLS):
        if iteration(out) == ITERATIONS:
            break
        counts["resumed"] += iteration(out) > 0
        counts += disturb(case, out, log, pace, chance)
    else:
        counts["resumed"] += 0 < iteration(out) < ITERATIONS
        code = Watch(fork(lambda: train(case.config, out), log)).code()
        counts += Counter({f"exit code {code}": 1} if code else {})
    found = differences(straight, out)
    counts += Counter({"differ": bool(found), "left over": len(unfinished(out))})
    for line in found:
        print(f"{case.name} run {number}: {line}", flush=True)
    if not found:
        shutil.rmtree(out)
    return counts


def rows(path: Path) -> list[dict[str, str]]:
    """metrics.csv without the times, which differ between any two runs."""
    with (path / "metrics.csv").open() as file:
        return [
            {k: v for k, v in row.items() if k not in ("seconds", "steps_per_second")}
            for row in csv.DictReader(file)
        ]


def differences(straight: Path, disturbed: Path) -> list[str]:
    """What differs between two complete runs: metrics, the last checkpoint, the sample."""
    names = ["config.json"]
    if (straight / "embedding.safetensors").exists():
        names.append("embedding.safetensors")
    last = f"checkpoints/{ITERATIONS:08d}"
    names += [f"{last}/{name}" for name in ("tensors.safetensors", "state.json", "manifest.json")]
    found = [] if rows(straight) == rows(disturbed) else ["metrics.csv differs"]
    for name in names:
        ours = disturbed / name
        if not ours.exists():
            found.append(f"{name} is missing")
        elif ours.read_bytes() != (straight / name).read_bytes():
            found.append(f"{name} differs")
    return found


def undisturbed_run(case: Case, work: Path) -> None:
    """By the command line, in a new process, unlike the disturbed runs."""
    folder = work / case.name
    if iteration(folder / "straight") != ITERATIONS:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(config_bytes(case.config))
        words = ["train", "--config", str(folder / "config.json")]
        child = command([*words, "--out", str(folder / "straight")], folder / "log.txt")
        assert Watch(child).code() == 0, f"see {folder / 'log.txt'}"


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if not path.name.endswith(".writing")
    }


def killed_report(kind: str, runs: Sequence[Path], work: Path, kills: int, seed: int) -> Counter:
    """Kill the writing of a report of all `runs` over one of the first; count old, new and half."""

    def write(roots: Sequence[Path], folder: Path) -> None:
        if kind == "page":
            write_page(roots, folder / "report.html", {})
        else:
            write_figures(roots, folder, {})

    chance, counts = random.Random(f"{seed}/{kind}"), Counter(kills=0)
    old, new, out = (work / kind / name for name in ("old", "new", "out"))
    shutil.rmtree(work / kind, ignore_errors=True)
    (work / kind).mkdir()
    write(runs[:1], old)
    began = time.monotonic()
    write(runs, new)
    seconds = time.monotonic() - began
    before, after = contents(old), contents(new)
    folders = {(out / name).parent for name in after}

    def writing() -> bool:
        """Faster than `unfinished`: a small file is written within a millisecond."""
        there = [folder for folder in folders if folder.exists()]
        return any(name.endswith(".writing") for folder in there for name in os.listdir(folder))

    while counts["kills"] < kills:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        watch = Watch(fork(lambda: write(runs, out), work / kind / "log.txt"))
        if chance.random() < 1 / 4:
            watch.sleep(chance.uniform(0.0, seconds))
        else:
            for _ in range(chance.randint(1, (len(after) + 1) // 2)):
                watch.until(lambda: not writing(), poll=0.0)
                watch.until(writing, poll=0.0)
            watch.sleep(chance.choice((0.0, 0.0, 0.0, 0.002, 0.01)), poll=0.0)
        if not watch.kill(signal.SIGKILL):
            continue
        counts += Counter({"kills": 1, "writing": bool(unfinished(out))})
        for name, content in contents(out).items():
            if content == after.get(name):
                counts["new"] += 1
            else:
                counts["old" if content == before.get(name) else "half"] += 1
        write(runs, out)
        assert contents(out) == before | after
        counts["left over"] += len(unfinished(out))
    return counts


def table(header: Sequence[str], lines: Sequence[Sequence[object]], texts: int) -> str:
    """A Markdown table whose first `texts` columns are text."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (header, rule, *lines))


def total(lines: Sequence[Counter[str]]) -> Counter[str]:
    whole: Counter[str] = Counter()
    for line in lines:
        whole.update(line)
    return whole


def described(about: str, counts: dict[str, Counter[str]], cases: Sequence[Case]) -> str:
    """The output: what was measured, one table of runs, one of reports."""
    keys = ("runs", "kills", *PLACES, "stop signals", "resumed", "differ")
    names = ("environment", "method", "threads", *keys)
    done = [case for case in cases if case.name in counts]
    lines = [[*case[:3], *(counts[case.name][key] for key in keys)] for case in done]
    whole = total([counts[case.name] for case in done])
    lines.append(["all", "", "", *(whole[key] for key in keys)])
    reports = [name for name in ("page", "figures") if name in counts]
    columns = ("kills", "writing", "old", "new", "half")
    second = [[name, *(counts[name][key] for key in columns)] for name in reports]
    problems = [
        f"{name}: {count} times {key}\n"
        for name, counter in counts.items()
        for key, count in counter.items()
        if count and key.startswith(("exit code", "left over"))
    ]
    parts = [about, table(names, lines, 2)]
    parts += [table(("report", *columns), second, 1)] if reports else []
    return "\n".join(parts + (["".join(problems)] if problems else []))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=23, help="of each case, at least")
    parser.add_argument("--reports", type=int, default=25, help="kills of each kind of report")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--work", type=Path, default=Path("runs/fault_kills"))
    parser.add_argument("--out", type=Path, default=Path("results/reliability/kills.txt"))
    args = parser.parse_args()
    cases = [case for case in CASES if args.only in case.name]
    start = describe_start([], 0)
    commit = f"{start['commit']}{', modified' if start['modified'] else ''}"
    about = f"{machine()}\nCommit {commit}, seed {args.seed}.\n"
    record = args.work / "counts.json"
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(record.read_text()) if record.exists() else {"commit": commit, "counts": {}}
    if kept["commit"] != commit:
        sys.exit(f"{args.work} belongs to commit {kept['commit']}: choose another --work")
    counts = {name: Counter(values) for name, values in kept["counts"].items()}

    def keep() -> None:
        write_durably(record, json.dumps({"commit": commit, "counts": counts}).encode())
        write_durably(args.out, described(about, counts, cases).encode())

    for case in cases:
        undisturbed_run(case, args.work)
        so_far = counts.setdefault(case.name, Counter())
        while so_far["kills"] < args.kills:
            so_far += disturbed_run(case, args.work, so_far["runs"], args.seed)
            keep()
            print(case.name, dict(so_far), flush=True)
    straight = [args.work / case.name / "straight" for case in cases[:3]]
    for kind in ("page", "figures"):
        if counts.get(kind, Counter())["kills"] < args.reports:
            counts[kind] = killed_report(kind, straight, args.work, args.reports, args.seed)
            keep()
    print(args.out.read_text())
    whole = total(list(counts.values()))
    bad = [key for key in whole if key.startswith(("exit code", "differ", "half", "left over"))]
    return int(any(whole[key] for key in bad))


if __name__ == "__main__":
    sys.exit(main())
