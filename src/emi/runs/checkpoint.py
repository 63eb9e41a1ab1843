"""Checkpoints that survive a crash at any moment and are safe to read from untrusted sources.

One checkpoint is one directory, `00000120/` for the state after 120 iterations:

    tensors.safetensors   every tensor and array
    state.json            the rest of the state, see `state_codec`
    manifest.json         format, version, iteration, size and sha256 of the two files above

It is written under a temporary name, flushed and renamed. A directory with a number as its name is
therefore complete, unless it was damaged later, which the checksums detect. File names are fixed:
nothing inside a checkpoint names another file to open.
"""

import hashlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import safetensors
from safetensors.torch import load_file
from safetensors.torch import save as serialize

from emi.durable_file import sync_directory, write_and_sync
from emi.errors import FAILED, UserError
from emi.state_codec import decode, encode

FORMAT = "emi-checkpoint"
VERSION = 1
_MANIFEST, _STATE, _TENSORS = "manifest.json", "state.json", "tensors.safetensors"
_WRITING = ".writing-"
_MANIFEST_BYTES = 64 * 1024
_STATE_BYTES = 64 * 1024 * 1024


class _Damaged(Exception):
    """Why one checkpoint cannot be used."""


@dataclass(frozen=True)
class Loaded:
    """The newest sound checkpoint; each warning names a damaged one that was skipped."""

    iteration: int
    state: dict[str, Any]
    path: Path
    warnings: tuple[str, ...]


def save(directory: Path, iteration: int, state: dict[str, Any]) -> Path:
    """Write the state after `iteration` iterations under `directory`; keep the previous one.

    A sound checkpoint of the same iteration is left as it is: a run is deterministic, so it holds
    the same state. If writing fails with OSError, the earlier checkpoints are untouched.
    """
    encoded = encode(state)
    skeleton = json.dumps(encoded.skeleton, allow_nan=False, separators=(",", ":")).encode()
    if len(skeleton) > _STATE_BYTES:
        raise ValueError(f"state without tensors is {len(skeleton)} bytes, over {_STATE_BYTES}")

    directory.mkdir(parents=True, exist_ok=True)
    folder = directory / f"{iteration:08d}"
    if _is_sound(folder):
        return folder
    writing = directory / f"{_WRITING}{folder.name}"
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir()
    try:
        # Not save_file: it hides the reason of a failed write and makes the file private.
        write_and_sync(writing / _TENSORS, serialize(encoded.tensors))
        write_and_sync(writing / _STATE, skeleton)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "iteration": iteration,
            "files": {name: _fingerprint(writing / name) for name in (_STATE, _TENSORS)},
        }
        write_and_sync(writing / _MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
        sync_directory(writing)
        if folder.exists():  # damaged, otherwise we would have returned above
            shutil.rmtree(folder)
        os.replace(writing, folder)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    sync_directory(directory)
    _tidy(directory, iteration)
    return folder


def exists(directory: Path) -> bool:
    """Return whether there is any checkpoint, sound or not."""
    return bool(_iterations(directory))


def load_latest(directory: Path) -> Loaded:
    """Load the newest sound checkpoint; UserError if there is none."""
    problems: list[str] = []
    for iteration in _iterations(directory):
        folder = directory / f"{iteration:08d}"
        try:
            state = _read(folder)
        except _Damaged as damage:
            problems.append(f"checkpoint {folder.name} is damaged ({damage})")
            continue
        warnings = tuple(f"{p}: using {folder.name} instead" for p in problems)
        return Loaded(iteration, state, folder, warnings)
    if problems:
        raise UserError(f"no usable checkpoint in {directory}: {'; '.join(problems)}", FAILED)
    raise UserError(f"there is no checkpoint in {directory}", FAILED)


def latest_iteration(directory: Path) -> int | None:
    """The iteration of the newest undamaged checkpoint, or None; only checksums are verified."""
    numbers = _iterations(directory)
    return next((n for n in numbers if _is_sound(directory / f"{n:08d}")), None)


def _iterations(directory: Path) -> list[int]:
    """Return the iterations of all checkpoints, the newest first."""
    names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
    numbers = [name for name in names if name.isascii() and name.isdigit()]
    return sorted((int(n) for n in numbers if n == f"{int(n):08d}"), reverse=True)


def _tidy(directory: Path, newest: int) -> None:
    """Keep `newest` and the one before it.

    Later ones are damaged, otherwise the run would have resumed from them. What cannot be removed
    is left: the new checkpoint matters more than the space.
    """
    numbers = _iterations(directory)
    before = [n for n in numbers if n < newest]
    for number in set(numbers) - {newest, *before[:1]}:
        shutil.rmtree(directory / f"{number:08d}", ignore_errors=True)
    for entry in directory.glob(f"{_WRITING}*"):
        shutil.rmtree(entry, ignore_errors=True)


def _is_sound(folder: Path) -> bool:
    try:
        _verify(folder)
    except _Damaged:
        return False
    return True


def _read(folder: Path) -> dict[str, Any]:
    _verify(folder)
    skeleton = _read_json(folder / _STATE, _STATE_BYTES)
    try:
        # Cloned, because safetensors maps the file into memory.
        tensors = {k: v.clone() for k, v in load_file(folder / _TENSORS).items()}
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise _Damaged(f"{_TENSORS} cannot be read: {error}") from None
    try:
        state = decode(skeleton, tensors)
    except (ValueError, TypeError, RecursionError) as error:
        raise _Damaged(f"{_STATE} does not match {_TENSORS}: {error}") from None
    if not isinstance(state, dict):
        raise _Damaged(f"{_STATE} does not hold a state")
    return state


def _verify(folder: Path) -> None:
    """Raise _Damaged unless format, version, iteration, sizes and checksums are right."""
    manifest = _read_json(folder / _MANIFEST, _MANIFEST_BYTES)
    match manifest:
        case {"format": str(name), "version": int(version)} if (name, version) != (FORMAT, VERSION):
            raise _Damaged(f"{_MANIFEST} is {name} version {version}, not {FORMAT} {VERSION}")
        case {"format": str(), "version": int(), "iteration": int(iteration), "files": dict(files)}:
            pass
        case _:
            raise _Damaged(f"{_MANIFEST} is incomplete")
    if f"{iteration:08d}" != folder.name:
        raise _Damaged(f"{_MANIFEST} belongs to iteration {iteration}")
    for name in (_STATE, _TENSORS):
        _require_regular(folder / name)
        try:
            found = _fingerprint(folder / name)
        except OSError as error:
            raise _Damaged(f"{name} cannot be read: {error.strerror}") from None
        if files.get(name) != found:
            raise _Damaged(f"{name} does not match its checksum")


def _fingerprint(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _require_regular(path: Path) -> int:
    """Return the size of `path`; _Damaged if it is missing or not a regular file."""
    try:
        status = path.lstat()
    except OSError:
        raise _Damaged(f"{path.name} is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise _Damaged(f"{path.name} is not a regular file")
    return status.st_size


def _read_json(path: Path, limit: int) -> Any:
    size = _require_regular(path)
    if size > limit:
        raise _Damaged(f"{path.name} is too large: {size} bytes")
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise _Damaged(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise _Damaged(f"{path.name} is not JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
