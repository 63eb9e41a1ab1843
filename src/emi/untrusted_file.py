"""Read files that a stranger may have made: regular files only, of bounded size and depth.

A run directory can come from anyone. A FIFO or a device in the place of a file would block the
reader, and a small compressed file can expand to more than the memory of the machine.
"""

import io
import json
import os
import stat
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from emi.errors import UserError

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one; UserError for anything else, OSError as usual."""
    _require_regular(path, path.stat())  # before opening: that can act on a device
    # Not blocking, and checked again, in case the file was exchanged in between.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    try:
        _require_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def read_file(path: Path, limit: int) -> bytes:
    """The content of a regular file, of one that ends in .gz decompressed.

    UserError if it has more than `limit` bytes, before or after decompression, or is damaged.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if path.suffix == ".gz" and len(content) <= limit:
        content = _decompressed(path, content, limit)
    if len(content) > limit:
        raise UserError(f"{path} is too large: it may have {limit:,} bytes at most")
    return content


def read_json(path: Path, limit: int) -> Any:
    """The value in a JSON file; UserError if it is not JSON, too large or nested too deeply.

    A key that an object has twice is an error: two readers could see two values.
    """
    content = read_file(path, limit)
    try:
        return json.loads(
            content, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
        )
    except RecursionError:
        raise UserError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise UserError(f"{path} is {kind}, not a file: remove it or restore the original")


def _decompressed(path: Path, content: bytes, limit: int) -> bytes:
    """At most `limit` + 1 bytes of a gzip file, however large the whole would be."""
    parts, size = [], 0
    while content:  # a gzip file may have several members
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            part = member.decompress(content, limit + 1 - size)
        except zlib.error as error:
            raise UserError(f"{path} is not a gzip file: {error}") from None
        parts.append(part)
        size += len(part)
        if size > limit:
            break
        if not member.eof:
            raise UserError(f"{path} ends too early: restore the original")
        content = member.unused_data
    return b"".join(parts)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {repeated[:60]!r} occurs twice")
    return items
