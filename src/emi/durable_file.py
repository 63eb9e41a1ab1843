"""Files that hold the old version or the new one, even if the machine stops while writing.

Nothing is written through a symbolic link: a run directory can come from anyone, and a link in it
could lead to any file of the user.
"""

import errno
import io
import os
import stat
from pathlib import Path

from emi.errors import FAILED, UserError


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
    with open_own(path, os.O_TRUNC) as file:
        while data:  # a nearly full disk may accept a part before it reports that it is full
            data = data[file.write(data) :]
        os.fsync(file.fileno())


def open_own(path: Path, flags: int) -> io.FileIO:
    """Open or create a regular file for writing, unbuffered; UserError for a link or a device.

    `flags` is os.O_APPEND, os.O_TRUNC or os.O_EXCL.
    """
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = io.FileIO(os.open(path, flags, 0o666), "wb")
    except OSError as error:
        # ELOOP: a link. ENXIO: a FIFO that nobody reads.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _not_a_file(path)
    return file


def own_directory(path: Path) -> None:
    """Create `path` with its parents if it is missing; UserError if it is a link."""
    if path.is_symlink():
        raise _not_a_file(path)
    path.mkdir(parents=True, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Flush the entries of directory `path`, so that a power failure does not undo a rename."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_a_file(path: Path) -> UserError:
    return UserError(
        f"{path} is a link or a device, through which emi does not write: remove it", FAILED
    )
