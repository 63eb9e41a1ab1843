"""Writing: old or new, never half; links and devices in the place of our own files."""

import os
import signal
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emi import durable_file
from emi.durable_file import (
    create_durably,
    open_own,
    own_directory,
    require_in_place,
    write_and_sync,
    write_durably,
)
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


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    """`--out /dev/null`, which root could replace by a file."""
    fifo = tmp_path / "page.html"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/null")):
        with pytest.raises(UserError, match="is a link or a device"):
            write_durably(path, b"new")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_failure_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_durably(path, b"new")
    assert caught.value.filename == str(path)  # not the temporary name
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"page.html": b"old"}


def test_errors_name_the_file_of_the_user(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path, IsADirectoryError),
        (tmp_path / "missing" / "page.html", FileNotFoundError),
    ):
        with pytest.raises(problem) as caught:
            write_durably(path, b"new")
        assert str(caught.value).endswith(f": '{path}'")


def test_a_name_of_255_bytes(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127 + "x")
    assert len(os.fsencode(path.name)) == 255
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"


def test_threads_do_not_share_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write completely before either renames."""
    path, both, replace = tmp_path / "page.html", threading.Barrier(2, timeout=30), os.replace

    def together(source: Path, target: Path) -> None:
        both.wait()
        replace(source, target)

    monkeypatch.setattr(os, "replace", together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda data: write_durably(path, data), (b"a" * 1000, b"b" * 2000)))
    assert path.read_bytes() in (b"a" * 1000, b"b" * 2000)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_killed_processes_leave_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    child, other = (killed_while_writing(p) for p in (path, tmp_path / "table.md"))
    assert {int(p.name.split(".")[2]) for p in tmp_path.iterdir()} == {child, other}
    write_durably(path, b"new")
    # That of another file is removed when that file is written.
    assert [int(p.name.split(".")[2]) for p in tmp_path.glob(".*")] == [other]
    assert path.read_bytes() == b"new"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_a_living_process_writes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    child = killed_while_writing(path)
    monkeypatch.setattr(durable_file, "_is_alive", lambda process: process == child)
    write_durably(path, b"new")
    assert [int(p.name.split(".")[2]) for p in tmp_path.glob(".*")] == [child]


def killed_while_writing(path: Path) -> int:
    """The id of a process that was killed before it could rename its file."""
    child = os.fork()
    if child == 0:
        os.replace = lambda source, target: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        write_durably(path, b"half")
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return child


@pytest.mark.parametrize("hard_links", [True, False])
def test_an_existing_file_is_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    if not hard_links:

        def refuse(source: Path, target: Path) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "seed0.json"
    assert create_durably(path, b"first")
    assert not create_durably(path, b"second")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"seed0.json": b"first"}


def test_in_place(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.csv"
    path.parent.mkdir()
    with open_own(path, os.O_APPEND) as file:
        require_in_place(path, file.fileno())
        write_durably(path, b"another")
        with pytest.raises(OSError, match=r"metrics\.csv was deleted, moved or replaced"):
            require_in_place(path, file.fileno())
        path.unlink()
        with pytest.raises(OSError, match=r"metrics\.csv was deleted, moved or replaced"):
            require_in_place(path, file.fileno())
        path.parent.rmdir()
        with pytest.raises(OSError, match="run was deleted, moved or replaced"):
            require_in_place(path, file.fileno())
