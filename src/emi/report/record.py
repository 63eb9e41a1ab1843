"""The record of a run, its config and provenance, checked: it can come from anyone.

A problem is a UserError whose sentence names the file and the field.
"""

import math
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from emi.errors import UserError
from emi.untrusted_file import read_json

CONFIG_BYTES = 1_000_000
PROVENANCE_BYTES = 2_000_000  # a start has about a thousand
MOST_LEVELS = 32  # of nested objects and lists
MOST_STEPS = 10**15
MOST_SEED = 10**18
# Of an environment or a method; a dollar would begin a formula in a figure.
NAME = re.compile(r"[^$|\\]{1,200}")

Json = dict[str, Any]


class Record(NamedTuple):
    """What config.json and provenance.json of a run directory hold."""

    config: Json
    provenance: Json


# Fields of a start in provenance.json.
_START: tuple[tuple[str, type, str], ...] = (
    ("command", str, "text"),
    ("commit", str, "text"),
    ("modified", bool, "true or false"),
    ("versions", dict, "an object"),
    ("machine", dict, "an object"),
)


def read_record(path: Path) -> Record:
    """The record in a run directory, not yet checked."""
    config = read_json(path / "config.json", CONFIG_BYTES)
    return Record(config, read_json(path / "provenance.json", PROVENANCE_BYTES))


def checked(record: Record, files: tuple[str, str]) -> Record:
    """The record, if the report can show it; `files` are the names of its two parts."""
    config, provenance = record
    for part, file in zip(record, files, strict=True):
        if not isinstance(part, dict):
            raise UserError(f"{file} must be a JSON object")
        _check_values(part, file)

    def require(field: str, sound: bool, kind: str, value: Any) -> None:
        if not sound:
            raise UserError(f"{field} must be {kind}, got {reprlib.repr(value)}")

    for key in ("env", "method"):
        value = config.get(key)
        name = isinstance(value, str) and value.isprintable() and NAME.fullmatch(value) is not None
        kind = "a name of at most 200 letters without $, | and \\"
        require(f"{key} in {files[0]}", name, kind, value)
    ranges = {"seed": (0, MOST_SEED), "steps": (1, MOST_STEPS)}
    for key, (low, high) in (ranges | {"steps_per_iteration": (1, MOST_STEPS)}).items():
        value = config.get(key)
        whole = type(value) is int and low <= value <= high
        require(f"{key} in {files[0]}", whole, f"a whole number from {low} to {high:.0e}", value)

    changed, starts = provenance.get("changed"), provenance.get("starts")
    texts = changed is None or _is_list(changed, str)
    require(f"changed in {files[1]}", texts, "a list of settings", changed)
    require(f"starts in {files[1]}", _is_list(starts, dict), "a list of objects", starts)
    for start in starts or ():
        for key, python_type, meaning in _START:
            value = start.get(key)
            sound = value is None or isinstance(value, python_type)
            require(f"{key} of a start in {files[1]}", sound, meaning, value)
    return record


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


def _check_values(content: Json, file: str) -> None:
    """Refuse what cannot be written again: infinite numbers, broken Unicode, endless nesting."""
    for key, value, level in _walk(content):
        if level > MOST_LEVELS:
            raise UserError(f"{file} is nested too deeply")
        for text in (key, value):
            if isinstance(text, str) and not _is_unicode(text):
                raise UserError(f"{reprlib.repr(key)} in {file} is not valid Unicode")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{reprlib.repr(key)} in {file} must be finite")


def _walk(content: Json) -> Iterator[tuple[str, Any, int]]:
    """Every value in `content` with its key and its level; without recursion."""
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        key, value, level = waiting.pop()
        yield key, value, level
        if isinstance(value, dict):
            waiting += [(name, part, level + 1) for name, part in value.items()]
        elif isinstance(value, list):
            waiting += [(key, part, level + 1) for part in value]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
