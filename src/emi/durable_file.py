"""Files that hold the old version or the new one, even if the machine stops while writing.

Nothing is written through a symbolic link: a run directory can come from anyone, and a link in it
could lead to any file of the user.
"""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import platform
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from emi.errors import FAILED, UserError


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: write a temporary file, flush it to disk, rename it."""
    with _temporary(path, data) as temporary:
        os.replace(temporary, path)


def create_durably(path: Path, data: bytes) -> bool:
    """Write `data` to `path` unless it exists; False if it does, then it is left as it is."""
    with _temporary(path, data) as temporary:
        try:
            os.link(temporary, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            with _directory(path.parent) as parent:
                fcntl.flock(parent, fcntl.LOCK_EX)
                if path.exists():
                    return False
                os.replace(temporary, path)
    return True


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


def require_in_place(path: Path, descriptor: int) -> None:
    """Raise OSError unless `path` still is the open file `descriptor`.

    A file that was deleted, moved or replaced can still be written to, but nobody can read it.
    """
    try:
        in_place = os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        in_place = False
    if not in_place:
        lost = path if path.parent.is_dir() else path.parent
        raise OSError(errno.ENOENT, f"{lost.name} was deleted, moved or replaced during the run")


def own_directory(path: Path) -> None:
    """Create `path` with its parents if it is missing; UserError if it is a link."""
    if path.is_symlink():
        raise _not_a_file(path)
    path.mkdir(parents=True, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Flush the entries of directory `path`, so that a power failure does not undo a rename."""
    with _directory(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _temporary(path: Path, data: bytes) -> Iterator[Path]:
    """A file with `data` next to `path`, flushed to disk, to be renamed or linked to `path`."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            raise _not_a_file(path)
        # Its own name in every thread of every process, and short: a name has 255 bytes at most.
        # The name of the machine, because process ids of other machines say nothing here.
        key = hashlib.sha256(os.fsencode(f"{platform.node()}/{path.name}")).hexdigest()[:12]
        own = f".{key}.{os.getpid()}.{threading.get_native_id()}.writing"
        temporary = path.with_name(own)
        _remove_leftovers(path.parent, key)
        try:
            write_and_sync(temporary, data)
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        # With the name that was given, not that of the temporary file.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _remove_leftovers(directory: Path, key: str) -> None:
    """Remove the temporary files of processes that were killed while they wrote the same file."""
    for name in os.listdir(directory):
        match = re.fullmatch(rf"\.{key}\.(\d{{1,9}})\.\d+\.writing", name)
        if match is not None and not _is_alive(int(match[1])):
            (directory / name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        pass
    return True


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _not_a_file(path: Path) -> UserError:
    return UserError(
        f"{path} is a link or a device, through which emi does not write:"
        " remove it or choose another path",
        FAILED,
    )
