"""Checkpoints that survive a crash at any moment and are safe to read from untrusted sources.

One checkpoint is one directory, `00000120/` for the state after 120 iterations:

    tensors.safetensors   every tensor and array
    state.json            the rest of the state, see `state_codec`
    manifest.json         format, version, iteration, size and sha256 of the two files above

It is written under a temporary name, flushed and renamed. A directory with a number as its name is
therefore complete, unless it was damaged later, which the checksums detect. File names are fixed:
nothing inside a checkpoint names another file to open. Whether a state fits a trainer is checked by
`Trainer.load_state_dict`. One that does not fit is not skipped like a damaged one: it is complete
and may fit another version, but the run would overwrite it if it resumed from an earlier one.
"""

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file
from safetensors.torch import save as serialize

from emi.durable_file import own_directory, sync_directory, write_and_sync
from emi.errors import FAILED, UserError
from emi.state_codec import decode, encode
from emi.training.memory import as_text, machine_memory
from emi.untrusted_file import open_regular, read_json

FORMAT = "emi-checkpoint"
VERSION = 1
_MANIFEST, _STATE, _TENSORS = "manifest.json", "state.json", "tensors.safetensors"
_WRITING = ".writing-"
_MANIFEST_BYTES = 64 * 1024
_STATE_BYTES = 64 * 1024 * 1024
_NEWEST = 10  # checkpoints that are tried; emi keeps two


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

    own_directory(directory)
    folder = directory / f"{iteration:08d}"
    if _is_sound(folder):
        return folder
    writing = directory / f"{_WRITING}{folder.name}"
    _remove(writing)
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
        _remove(folder)  # damaged, otherwise we would have returned above
        os.replace(writing, folder)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(writing)
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
    for iteration in _iterations(directory)[:_NEWEST]:
        folder = directory / f"{iteration:08d}"
        try:
            state = _read(folder, iteration)
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
    numbers = _iterations(directory)[:_NEWEST]
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
        with contextlib.suppress(OSError):
            _remove(directory / f"{number:08d}")
    for entry in directory.glob(f"{_WRITING}*"):
        with contextlib.suppress(OSError):
            _remove(entry)


def _remove(path: Path) -> None:
    """Remove a directory, a file or a link, but never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_sound(folder: Path) -> bool:
    try:
        _verify(folder)
    except _Damaged:
        return False
    return True


def _read(folder: Path, iteration: int) -> dict[str, Any]:
    _verify(folder)
    skeleton = _json(folder / _STATE, _STATE_BYTES)
    try:
        # Cloned, because safetensors maps the file into memory.
        tensors = {k: v.clone() for k, v in load_file(folder / _TENSORS).items()}
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise _Damaged(f"{_TENSORS} cannot be read: {error}") from None
    try:
        state = decode(skeleton, tensors)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"{_STATE} does not match {_TENSORS}: {error}") from None
    if not isinstance(state, dict):
        raise _Damaged(f"{_STATE} does not hold a state")
    named = state.get("iteration", iteration)
    if type(named) is not int or named != iteration:
        raise _Damaged(f"{_STATE} belongs to another iteration")
    return state


def _verify(folder: Path) -> None:
    """Raise _Damaged unless format, version, iteration, sizes and checksums are right."""
    manifest = _json(folder / _MANIFEST, _MANIFEST_BYTES)
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
        path = _require_here(folder / name)
        try:
            found = _fingerprint(path)
        except UserError as error:
            raise _Damaged(str(error)) from None
        except OSError as error:
            raise _Damaged(f"{name} cannot be read: {error.strerror}") from None
        if files.get(name) != found:
            raise _Damaged(f"{name} does not match its checksum")


def _fingerprint(path: Path) -> dict[str, str | int]:
    with open_regular(path) as file:
        size, most = os.fstat(file.fileno()).st_size, machine_memory() // 2
        if size > most:  # a file can be larger than all memory without using the disk
            raise UserError(f"{path} has {as_text(size)}, too much for the memory of this machine")
        digest = hashlib.file_digest(file, "sha256")
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _require_here(path: Path) -> Path:
    """Return `path`; _Damaged if it is missing or a link."""
    if path.is_symlink():
        raise _Damaged(f"{path.name} is a link")
    if not path.exists():
        raise _Damaged(f"{path.name} is missing")
    return path


def _json(path: Path, limit: int) -> Any:
    try:
        return read_json(_require_here(path), limit)
    except UserError as error:
        raise _Damaged(str(error)) from None
    except OSError as error:
        raise _Damaged(f"{path.name} cannot be read: {error.strerror}") from None
