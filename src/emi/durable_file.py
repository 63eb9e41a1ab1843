"""Files that are either the old version or the new one, whatever moment the machine stops at."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: written beside, flushed to disk, then renamed."""
    beside = path.with_name(f".{path.name}.writing")
    try:
        write_and_sync(beside, data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_and_sync(path: Path, data: bytes) -> None:
    """Write `data` to `path` and flush it to disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the entries of directory `path`: without it a rename may be lost with the power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
