"""Files that a stranger made: special files, bombs, damage."""

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from emi.errors import UserError
from emi.untrusted_file import open_regular, read_file, read_json


def test_reads_plain_and_compressed_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_bytes(b"abc")
    packed.write_bytes(gzip.compress(b"abc") + gzip.compress(b"def"))  # two members
    assert read_file(plain, 3) == b"abc"
    assert read_file(packed, 60) == b"abcdef"
    link = tmp_path / "link.csv"
    link.symlink_to(plain)
    assert read_file(link, 3) == b"abc"


def test_a_fifo_a_device_and_a_directory_are_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "config.json"
    os.mkfifo(fifo)
    with pytest.raises(UserError, match=r"config\.json is a FIFO, not a file"):
        read_file(fifo, 10)
    with pytest.raises(UserError, match="/dev/zero is a device"):
        read_file(Path("/dev/zero"), 10)
    with pytest.raises(UserError, match="is a directory"):
        open_regular(tmp_path)


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "metrics.csv"
    link.symlink_to("/dev/urandom")
    with pytest.raises(UserError, match="is a device"):
        read_file(link, 10)


def test_the_limit_holds_before_and_after_decompression(tmp_path: Path) -> None:
    plain, bomb = tmp_path / "a.json", tmp_path / "a.csv.gz"
    plain.write_bytes(b"x" * 11)
    bomb.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(UserError, match=r"a\.json is too large: it may have 10 bytes at most"):
        read_file(plain, 10)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"too large: it may have 100,000 bytes"):
            read_file(bomb, 100_000)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


PACKED = gzip.compress(b"abc", mtime=0)


@pytest.mark.parametrize("content", [b"junk", PACKED[:-3], PACKED + b"x"], ids=len)
def test_a_damaged_gzip_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.csv\.gz (is not a gzip file|ends too early)"):
        read_file(path, 1000)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is not JSON: "),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"\xff", "is not JSON: "),
        (b"[" * 200_000, "is nested too deeply"),
        (b"9" * 5000, "is not JSON: "),
    ],
)
def test_json(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.json.*{problem}"):
        read_json(path, 1_000_000)
