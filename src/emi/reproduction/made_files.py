"""Files that no sweep trains: made by functions of their experiment, with a record of how.

Their folder holds a `provenance.json` as a run directory does, with one start for each time that
something was made, its seeds and its seconds. `collect` makes a row of MANIFEST.csv of it.
"""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.report.load import add_to_manifest, manifest_row
from emi.reproduction.experiment import Budget, Experiment, Made, seed_text
from emi.runs.provenance import describe_start

PROVENANCE = "provenance.json"

Starts = list[dict[str, Any]]


def make_files(
    experiment: Experiment,
    made: Made,
    out: Path,
    budget: Budget,
    words: Sequence[str],
    lacking_in: Path | None = None,
) -> None:
    """Make what is not below `out` yet, and of that only what `lacking_in` lacks, if given.

    `words` is the command as typed.
    """
    place = out / _folder(experiment)
    if lacking_in is not None and made.merge(lacking_in, out):
        _write(place, _together(lacking_in / _folder(experiment), place))
    seeds = made.lacking(out, budget)
    if not seeds:
        print(f"{experiment.name}: all of it is in {place}")
        return
    place.mkdir(parents=True, exist_ok=True)
    earlier = _starts(place)
    start = describe_start(words, 0) | {"seeds": seeds}
    began, before = time.monotonic(), _state(place)
    _write(place, [*earlier, start])
    try:
        made.make(out, budget)
    finally:
        seconds = round(time.monotonic() - began, 1)
        lacking = made.lacking(out, budget)
        # What was stopped may have made a part of a seed, or nothing at all.
        start["seeds"] = [seed for seed in seeds if seed not in lacking] or seeds
        started = [start | {"seconds": seconds}] if _state(place) != before else []
        _write(place, [*earlier, *started])


def collect_files(experiment: Experiment, made: Made, runs: Path, results: Path) -> list[Path]:
    """Takes over what `results` lacks, and the record of it; its row goes to MANIFEST.csv."""
    written = made.merge(runs, results)
    folder = _folder(experiment)
    starts = _together(results / folder, runs / folder)
    if written and starts:
        _write(results / folder, starts)
        seeds = sorted({seed for start in starts for seed in start["seeds"]})
        seconds = sum(start.get("seconds", 0.0) for start in starts)
        row = manifest_row(folder.as_posix(), starts, seed_text(seeds), seconds)
        commands = "; ".join(dict.fromkeys(start["command"] for start in starts))
        add_to_manifest(results, [row | {"command": commands}])
    return written


def _folder(experiment: Experiment) -> Path:
    return Path(experiment.files[0]).parent


def _state(place: Path) -> dict[Path, int]:
    """When each file was last written, but for the record of it."""
    files = (path for path in place.rglob("*") if path.is_file() and path.name != PROVENANCE)
    return {path: path.stat().st_mtime_ns for path in files}


def _starts(place: Path) -> Starts:
    path = place / PROVENANCE
    starts: Starts = json.loads(path.read_text())["starts"] if path.exists() else []
    return starts


def _together(*places: Path) -> Starts:
    """The starts of several records, each once, in the order of time."""
    starts = {(s["time"], s["command"]): s for place in places for s in _starts(place)}
    return [starts[key] for key in sorted(starts)]


def _write(place: Path, starts: Iterable[dict[str, Any]]) -> None:
    text = json.dumps({"starts": list(starts)}, indent=2) + "\n"
    write_durably(place / PROVENANCE, text.encode())
