"""Files that hold the old version or the new one, even if the machine stops while writing."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: write a temporary file, flush it to disk, rename it."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        write_and_sync(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_and_sync(path: Path, data: bytes) -> None:
    """Write `data` to `path` and flush it to disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the entries of directory `path`, so that a power failure does not undo a rename."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
