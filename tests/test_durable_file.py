"""Writing: old or new, never half; links and devices in the place of our own files."""

import os
from pathlib import Path

import pytest

from emi.durable_file import open_own, own_directory, write_and_sync, write_durably
from emi.errors import UserError


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "metrics.csv"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    for write in (lambda: write_and_sync(link, b"new"), lambda: open_own(link, os.O_APPEND)):
        with pytest.raises(UserError, match=r"metrics\.csv is a link or a device"):
            write()
    assert victim.read_bytes() == b"precious"


def test_a_link_is_replaced_and_its_target_is_kept(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "config.json"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    write_durably(link, b"new")
    assert not link.is_symlink()
    assert (link.read_bytes(), victim.read_bytes()) == (b"new", b"precious")


def test_a_link_with_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    real, temporaries = os.open, []

    def exchanged(path: Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(".writing"):
            temporaries.append(path)
            Path(path).symlink_to(victim)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(UserError, match="is a link"):
        write_durably(tmp_path / "config.json", b"new")
    assert len(temporaries) == 1
    assert victim.read_bytes() == b"precious"


def test_fifos_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "metrics.csv"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/null")):
        with pytest.raises(UserError, match="is a link or a device"):
            open_own(path, os.O_APPEND)


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="checkpoints is a link"):
        own_directory(tmp_path / "checkpoints")
    own_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
