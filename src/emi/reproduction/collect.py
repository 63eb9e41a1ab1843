"""Collect finished runs into results/: packed experiments and MANIFEST.csv."""

import csv
import gzip
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.report import packed
from emi.report.load import Run, embedding_of, has_begun, metrics_of
from emi.report.metrics_table import METRICS_BYTES
from emi.report.record import Record
from emi.report.sample_file import SAMPLE_BYTES, read_sample_file
from emi.report.tables import in_millions
from emi.reproduction.experiment import Arm, finished_run
from emi.training.config import from_dict
from emi.training.presets import command_words
from emi.untrusted_file import read_file

MANIFEST_BYTES = 16_000_000


def collect_arm(arm: Arm, source: Path, results: Path) -> list[Path]:
    """Pack the finished runs of an arm into `results`; returns the paths of the packed runs.

    A run in results/ is not replaced by one of fewer steps. Collecting the same run twice gives the
    same bytes.
    """
    ready = []
    for seed in arm.seeds:
        new, old = (finished_run(arm, root, seed) for root in (source, results))
        path = arm.path(results, seed)
        if new is None:
            if has_begun(arm.path(source, seed)):
                print(f"not finished: {arm.path(source, seed)}")
        elif old is not None and old.steps > new.steps:
            steps = f"{in_millions(old.steps)} steps, the new run {in_millions(new.steps)}"
            print(f"kept: {path} has {steps}")
        else:
            if old is not None and not old.same_metrics(new):
                commits = " and now ".join(commits_of(r.provenance["starts"]) for r in (old, new))
                print(f"replaced: {path} was of commit {commits}")
            ready.append(new)
    return pack_runs(ready, arm, results) if ready else []


def pack_runs(runs: Sequence[Run], arm: Arm, results: Path) -> list[Path]:
    experiment = results / arm.folder
    records = packed.read_records(experiment)
    rows, paths = [], []
    for run in runs:
        path = arm.path(results, run.seed)
        file = metrics_of(run.path)
        assert file is not None, "a finished run has metrics"
        content, target = read_file(file, METRICS_BYTES), packed.metrics_file(path)
        if target.exists() and read_file(target, METRICS_BYTES) != content:
            # The embedding belongs to the run that is replaced.
            packed.embedding_file(path).unlink(missing_ok=True)
        write_compressed(target, content)
        provenance = {k: v for k, v in run.provenance.items() if k in ("changed", "starts")}
        records[path.relative_to(experiment).as_posix()] = Record(run.config, provenance)
        # Sweeps hand a run its config as a file: the manifest has the equivalent command.
        command = shlex.join(["emi", *command_words(from_dict(run.config))])
        key, seconds = path.relative_to(results).as_posix(), float(run.metrics["seconds"][-1])
        rows.append(manifest_row(key, provenance["starts"], command, str(run.seed), seconds))
        paths.append(path)
    write_durably(experiment / packed.RUNS, packed.pack(records))
    add_to_manifest(results, rows)
    return paths


def collect_embedding(source: Path, target: Path) -> list[Path]:
    """Pack the embedding sample of the run at `source`, if it has one."""
    file, packed_file = embedding_of(source), packed.embedding_file(target)
    if file is None:
        return []
    read_sample_file(file)  # UserError if it is damaged
    return [write_compressed(packed_file, read_file(file, SAMPLE_BYTES))]


def write_compressed(target: Path, content: bytes) -> Path:
    """Write a .gz file; the same content gives the same bytes: no time stamp, no file name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    write_durably(target, gzip.compress(content, mtime=0))
    return target


def manifest_row(
    key: str, starts: Sequence[Mapping[str, Any]], command: str, seed: str, seconds: float
) -> dict[str, str]:
    machine = starts[0].get("machine") or {} if starts else {}
    return {
        "run": key,
        "commit": commits_of(starts),
        "command": command,
        "seed": seed,
        "machine": f"{machine.get('cpu', 'unknown')}, {machine.get('cores', '?')} cores",
        "minutes": f"{seconds / 60:.1f}",
    }


def commits_of(starts: Iterable[Mapping[str, Any]]) -> str:
    """The commits at which a run was started or resumed, each once."""
    commits = (
        (start.get("commit") or "unknown") + ("+modified" if start.get("modified") else "")
        for start in starts
    )
    return " ".join(dict.fromkeys(commits))


def add_to_manifest(results: Path, rows: Sequence[dict[str, str]]) -> None:
    """Add rows to MANIFEST.csv in sorted order; a row of the same run is replaced."""
    path = results / "MANIFEST.csv"
    content = read_file(path, MANIFEST_BYTES).decode() if path.exists() else ""
    known = {row["run"]: row for row in (*csv.DictReader(content.splitlines()), *rows)}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(known[key] for key in sorted(known))
    write_durably(path, text.getvalue().encode())
