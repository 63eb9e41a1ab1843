"""The process of one run in a sweep, the same under every engine.

This file is also a program that runs between the engine and `emi`. It ensures two things. When the
process that started the run dies, even by SIGKILL, the run writes a checkpoint and ends. And when
such a run is still ending, the next process for the same run waits for it.

Standard library only: Ray's workers import it, and it must start fast.
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
PROGRAM = (sys.executable, "-P", "-m", "emi")  # -P: as the script, without the current directory
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a run's process ended: exit code, -n for signal n, and a problem if one is known."""

    code: int
    problem: str = ""


def start(
    arguments: Sequence[str], path: Path, log: Path, threads: int, *, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `emi ARGUMENT…` for the run in `path`; the output is appended to `log`.

    Relative paths in `arguments` start at `cwd`.
    """
    command = (sys.executable, "-I", "-S", __file__, str(os.getpid()), str(path))
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command, *PROGRAM, "--", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=cwd,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)),
            # Ctrl-C in the terminal must not reach the run: with our SIGTERM it would be the second
            # signal, which stops a run without a checkpoint.
            start_new_session=True,
        )


def attend(arguments: Sequence[str], path: Path, log: Path, threads: int, cwd: Path) -> Ended:
    """`start` a run and wait for its end; a KeyboardInterrupt asks the run to stop."""
    if not log.is_file():
        problem = (
            f"{log} is not on {platform.node()}: --out must be on storage that all nodes share"
        )
        return Ended(1, problem)
    process = start(arguments, path, log, threads, cwd=cwd if cwd.is_dir() else None)
    while True:
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
            return Ended(process.returncode)
        except KeyboardInterrupt:
            process.terminate()


def main(argv: Sequence[str]) -> int:
    """Run PARENT DIR PROGRAM… -- ARGUMENT…, with the log of the run as standard output."""
    parent, directory, *rest = argv
    split = rest.index("--")
    program, arguments = rest[:split], rest[split + 1 :]
    _end_with(int(parent))
    with contextlib.suppress(OSError):  # a file system without locks: `emi` will report it
        _wait_for_turn(Path(directory))
    print(f"$ emi {shlex.join(arguments)}", flush=True)
    return _supervise([*program, *arguments])


def _supervise(command: list[str]) -> int:
    """Run `command` and end as it ends; pass on one SIGTERM, however many are received.

    A parent with threads causes one SIGTERM per thread when it dies, and the second one would stop
    `emi` without a checkpoint. Ray's workers kill their children with SIGKILL when they die, but
    not their grandchildren.
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
    """Receive SIGTERM when `parent` dies, also after exec; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it died before
            sys.exit(128 + signal.SIGTERM)


def _wait_for_turn(directory: Path) -> None:
    # `emi` inherits the locked log, so only one of several waiting processes continues at a time.
    # The directory may also be locked by an `emi` that no sweep has started.
    _lock(sys.stdout)
    with contextlib.suppress(FileNotFoundError), Path(directory, ".lock").open("rb") as file:
        _lock(file)


def _lock(file: IO[str] | IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for the process that writes this run", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
