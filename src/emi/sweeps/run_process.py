"""The process of one run in a sweep, the same under every engine.

Between the engine and `emi` stands this file, run as a program, which sees to three things. The
run ends, after a checkpoint, when the process that started it dies: a sweep or a Ray worker killed
with SIGKILL leaves nothing behind that nobody watches. It waits its turn: where such a run is still
ending, the next one begins after it. And it goes on where the run stands, whoever brought it there.

Standard library only: Ray's workers import it, and it must be quick.
"""

import contextlib
import ctypes
import fcntl
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PROGRAM = (sys.executable, "-m", "emi")
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a run's process ended: its exit code, -n for signal n, and a sentence if there is one."""

    code: int
    problem: str = ""


def start(
    words: Sequence[str], path: Path, log: Path, threads: int, *, place: Path | None = None
) -> subprocess.Popen[bytes]:
    """Begin `emi WORD…`, or go on with the run in `path`; output is added to `log`.

    `place` is the folder that relative paths are meant from.
    """
    command = (sys.executable, "-I", "-S", __file__, str(os.getpid()), str(path))
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command, *PROGRAM, "--", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=place,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)),
            # Out of reach of the terminal's Ctrl-C: with our SIGTERM it would be the second signal,
            # the one that stops without a checkpoint.
            start_new_session=True,
        )


def attend(words: Sequence[str], path: Path, log: Path, threads: int, place: Path) -> Ended:
    """`start` and stay until the end; a KeyboardInterrupt asks the run to stop."""
    if not log.is_file():
        problem = (
            f"{log} is not on {platform.node()}: --out must be on storage that all nodes share"
        )
        return Ended(1, problem)
    process = start(words, path, log, threads, place=place if place.is_dir() else None)
    while True:
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
            return Ended(process.returncode)
        except KeyboardInterrupt:
            process.terminate()


def main(arguments: Sequence[str]) -> int:
    """PARENT DIR PROGRAM… -- WORD…, with the log of the run as standard output."""
    parent, directory, *rest = arguments
    split = rest.index("--")
    program, words = rest[:split], rest[split + 1 :]
    _end_with(int(parent))
    with contextlib.suppress(OSError):  # a file system without locks: `emi` will say so
        _wait_for_turn(Path(directory))
    print(f"$ emi {shlex.join(words)}", flush=True)
    return _watch_over([*program, *words])


def _watch_over(command: list[str]) -> int:
    """Run `command` and end as it ends; it gets one SIGTERM, however many come here.

    A parent with threads announces its death once per thread, and the second SIGTERM would stop
    `emi` without a checkpoint. And Ray's workers take their children with them by SIGKILL, but not
    the children of these.
    """
    here = os.getpid()
    child = os.fork()
    if child == 0:
        _end_with(here)
        os.execv(command[0], command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(here, -code)
    return code


def _end_with(parent: int) -> None:
    """Get SIGTERM when `parent` dies; this outlives exec. Only Linux has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it was quicker
            sys.exit(128 + signal.SIGTERM)


def _wait_for_turn(directory: Path) -> None:
    # The log stays locked to the end of `emi`, which inherits it, so that of two that wait only one
    # goes on. The lock of the directory is that of an `emi` which no sweep has started.
    _lock(sys.stdout)
    with contextlib.suppress(FileNotFoundError), Path(directory, ".lock").open("rb") as file:
        _lock(file)


def _lock(file: IO[str] | IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for the process that writes here", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
