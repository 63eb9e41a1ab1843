"""Files of an experiment that are not runs: make them, and record how they were made.

Their folder has the name of the experiment. It holds a `provenance.json` as a run directory does,
with one start for each time that something was made, its seeds and its seconds. Collecting
turns it into a row of MANIFEST.csv.
"""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.errors import UserError
from emi.report.record import PROVENANCE_BYTES
from emi.reproduction.collect import add_to_manifest, manifest_row
from emi.reproduction.experiment import Budget, Cell, FileMaker, seed_text
from emi.runs.provenance import describe_start
from emi.untrusted_file import read_json

PROVENANCE = "provenance.json"

Starts = list[dict[str, Any]]


def make_files(
    name: str,
    maker: FileMaker,
    wanted: Sequence[Cell],
    out: Path,
    budget: Budget,
    command: Sequence[str],
) -> None:
    """Make the `wanted` cells that are missing below `out`, and record the command."""
    place = out / name

    def lacking() -> list[Cell]:
        return [cell for cell in maker.lacking(out, budget) if cell in wanted]

    cells = lacking()
    if not cells:
        print(f"{name}: complete in {place}")
        return
    place.mkdir(parents=True, exist_ok=True)
    earlier = _starts(place)
    seeds = sorted({seed for _, seed in cells})
    start = describe_start(command, 0) | {"seeds": seeds}
    began, before = time.monotonic(), _state(place)
    _write(place, [*earlier, start])
    try:
        maker.make(out, cells, maker.asked(budget), budget)
    finally:
        seconds = round(time.monotonic() - began, 1)
        unmade = {seed for _, seed in lacking()}
        # If it was interrupted, it may have made a part of a seed, or nothing at all.
        start["seeds"] = [seed for seed in seeds if seed not in unmade] or seeds
        started = [start | {"seconds": seconds}] if _state(place) != before else []
        _write(place, [*earlier, *started])


def collect_files(name: str, maker: FileMaker, source: Path, results: Path) -> list[Path]:
    """Copy what `results` lacks with its record, and update its row in MANIFEST.csv."""
    written = maker.merge(source, results)
    # The starts of both records, each once, by time.
    every = {(s["time"], s["command"]): s for r in (results, source) for s in _starts(r / name)}
    starts = [every[key] for key in sorted(every)]
    if written and starts:
        _write(results / name, starts)
        seeds = sorted({seed for start in starts for seed in start["seeds"]})
        seconds = sum(start.get("seconds", 0.0) for start in starts)
        command = "; ".join(dict.fromkeys(start["command"] for start in starts))
        row = manifest_row(name, starts, command, seed_text(seeds), seconds)
        add_to_manifest(results, [row])
    return written


def _state(place: Path) -> dict[Path, int]:
    """The modification time of each file except the record."""
    files = (path for path in place.rglob("*") if path.is_file() and path.name != PROVENANCE)
    return {path: path.stat().st_mtime_ns for path in files}


def _starts(place: Path) -> Starts:
    path = place / PROVENANCE
    if not path.exists():
        return []
    match read_json(path, PROVENANCE_BYTES):
        case {"starts": [*starts]} if all(map(_is_start, starts)):
            return starts
    raise UserError(f"{path} is damaged: restore it")


def _is_start(start: Any) -> bool:
    match start:
        case {"time": str(), "command": str(), "seeds": [*seeds]}:
            return all(isinstance(seed, int) for seed in seeds)
    return False


def _write(place: Path, starts: Iterable[dict[str, Any]]) -> None:
    text = json.dumps({"starts": list(starts)}, indent=2) + "\n"
    write_durably(place / PROVENANCE, text.encode())
