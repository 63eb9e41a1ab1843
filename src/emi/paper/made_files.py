"""Files that no sweep trains: made by a function of their experiment, with a record of how.

Their folder holds a `provenance.json` as a run directory does, with one start for each time that
something was made, its seeds and its seconds. `collect` makes a row of MANIFEST.csv of it.
"""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.experiment.provenance import describe_start
from emi.paper.experiment import Budget, Experiment, seed_text
from emi.report.load import add_to_manifest, manifest_row

PROVENANCE = "provenance.json"


def folder_of(experiment: Experiment) -> Path:
    """Of its files, below any root."""
    return Path(experiment.files[0]).parent


def make_files(
    experiment: Experiment,
    out: Path,
    budget: Budget,
    words: Sequence[str],
    lacking_in: Path | None = None,
) -> None:
    """Make what is not below `out` yet, and of that only what `lacking_in` lacks, if given.

    `words` is the command as typed.
    """
    assert experiment.make is not None, "an experiment of runs"
    place = out / folder_of(experiment)
    place.mkdir(parents=True, exist_ok=True)
    if lacking_in is not None:  # what is there is brought along, and a maker keeps what it finds
        for name in (*experiment.files, str(folder_of(experiment) / PROVENANCE)):
            if (lacking_in / name).exists() and not (out / name).exists():
                shutil.copyfile(lacking_in / name, out / name)
    earlier = _starts(place)
    start = describe_start(words, 0) | {"seeds": budget.chosen(experiment.seeds)}
    begun = time.monotonic()
    _write(place, [*earlier, start])
    try:
        experiment.make(out, budget)
    finally:
        _write(place, [*earlier, start | {"seconds": round(time.monotonic() - begun, 1)}])


def collect_files(experiment: Experiment, runs: Path, results: Path) -> list[Path]:
    """Copies the files that `results` lacks, and their record; its row goes to MANIFEST.csv."""
    copied = []
    for name in experiment.files:
        source, target = runs / name, results / name
        if source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            copied.append(Path(shutil.copyfile(source, target)))
    starts = _starts(runs / folder_of(experiment))
    if copied and starts:
        _write(results / folder_of(experiment), starts)
        seeds = sorted({seed for start in starts for seed in start["seeds"]})
        seconds = sum(start.get("seconds", 0.0) for start in starts)
        key = folder_of(experiment).as_posix()
        add_to_manifest(results, [manifest_row(key, starts, seed_text(seeds), seconds)])
    return copied


def _starts(place: Path) -> list[dict[str, Any]]:
    path = place / PROVENANCE
    starts: list[dict[str, Any]] = json.loads(path.read_text())["starts"] if path.exists() else []
    return starts


def _write(place: Path, starts: Sequence[dict[str, Any]]) -> None:
    write_durably(place / PROVENANCE, (json.dumps({"starts": starts}, indent=2) + "\n").encode())
