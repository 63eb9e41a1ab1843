"""A read-only disk for the tests, which root cannot write to either."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"),
    *("os.truncate", "os.chmod", "os.utime", "os.chown"),
}
_roots: list[Path] = []


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's audit hook: called before every file is opened, in whichever way."""
    if not _roots or event not in {"open", *_CHANGES}:
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
        return
    for name in arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]:
        if isinstance(name, str | bytes | os.PathLike):
            path = Path(os.path.abspath(os.fsdecode(name)))
            if any(path.is_relative_to(root) for root in _roots):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


sys.addaudithook(_refuse)


@contextlib.contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Inside, everything in and below `root` can be read but not changed."""
    _roots.append(root)
    try:
        yield
    finally:
        _roots.remove(root)
