"""Packed experiments: the format in which results/ keeps finished runs.

A packed experiment is a folder with

    runs.json                                  config, changed settings and starts of every run
    <env>/<method>/seed<k>.csv.gz              metrics.csv of a run
    <env>/<method>/seed<k>.safetensors.gz      its embedding sample, where a figure needs it

The path of a packed run is `<folder>/<env>/<method>/seed<k>`, as that of a run directory. In
runs.json, what all runs of one (env, method) have in common is written once.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from emi.errors import UserError
from emi.report.record import Json, Record
from emi.untrusted_file import read_json

RUNS = "runs.json"
RUNS_BYTES = 4_000_000  # the largest of results/ has 80,000
DEPTH = 3  # folders between an experiment and the name of a run

# What a value of the wrong type can raise, and a file that cannot be read.
UNREADABLE = (OSError, AttributeError, KeyError, TypeError, ValueError)


def metrics_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.csv.gz")


def embedding_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.safetensors.gz")


def record_of(path: Path) -> Record | None:
    """The record of the packed run at `path`; None if there is no such run."""
    for experiment in path.parents[DEPTH - 1 : DEPTH]:
        return read_records(experiment).get(path.relative_to(experiment).as_posix())
    return None


def read_records(experiment: Path) -> dict[str, Record]:
    """The records of a packed experiment by `<env>/<method>/seed<k>`; empty if it has none."""
    path = experiment / RUNS
    found: dict[str, Record] = {}
    try:
        if not path.exists():
            return found
        for method, group in read_json(path, RUNS_BYTES).items():
            for seed, own in group["runs"].items():
                _require_place(f"{method}/{seed}")
                starts = [{**group["start"], **start} for start in own["starts"]]
                record = Record({**group["config"], **own["config"]}, {"starts": starts})
                if "changed" in own:
                    record.provenance["changed"] = own["changed"]
                found[f"{method}/{seed}"] = record
        return found
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged ({reason(error)}): restore it") from None


def reason(error: Exception) -> str:
    """An exception as one line."""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())


def _require_place(key: str) -> None:
    """UserError unless a run of this name lies below the experiment."""
    parts = key.split("/")
    if len(parts) != DEPTH or not {"", ".", ".."}.isdisjoint(parts) or not key.isprintable():
        raise UserError(f"{key!a} is not <env>/<method>/seed<k>")


def pack(records: Mapping[str, Record]) -> bytes:
    """The content of runs.json; the same records give the same bytes in any order."""
    groups: dict[str, dict[str, Record]] = {}
    for key in sorted(records, key=_by_seed):
        method, _, seed = key.rpartition("/")
        groups.setdefault(method, {})[seed] = records[key]
    content = {}
    for method, runs in groups.items():
        configs = [record.config for record in runs.values()]
        starts = [start for record in runs.values() for start in record.provenance["starts"]]
        config, start = _common(configs), _common(starts)
        content[method] = {
            "config": config,
            "start": start,
            "runs": {seed: _own(record, config, start) for seed, record in runs.items()},
        }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _by_seed(key: str) -> tuple[str, int, str]:
    method, _, seed = key.rpartition("/")
    return method, len(seed), seed  # seed2 before seed10


def _common(parts: Sequence[Json]) -> Json:
    """The items that all parts share."""
    return {
        key: value
        for key, value in (parts[0] if parts else {}).items()
        if all(key in part and part[key] == value for part in parts)
    }


def _own(record: Record, config: Json, start: Json) -> Json:
    def without(part: Json, shared: Json) -> Json:
        return {key: value for key, value in part.items() if key not in shared}

    own: Json = {"config": without(record.config, config)}
    if "changed" in record.provenance:
        own["changed"] = record.provenance["changed"]
    own["starts"] = [without(each, start) for each in record.provenance["starts"]]
    return own
