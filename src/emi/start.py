"""The first moments of the command `emi`, before anything slow is imported.

`emi/__init__.py` imports this module first; it imports only what Python has loaded already. A
program that uses emi as a library is left as it is.
"""

import os
import signal
import sys
from types import FrameType

# Threads of PyTorch that wait for others sleep after a thousand turns. By default they spin for
# milliseconds, and on a busy machine take the core that the thread they wait for needs.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}

MAIN_MODULE = os.path.join(os.path.dirname(__file__), "__main__.py")


def zeroth_argument() -> str:
    return sys.argv[0] if sys.argv else ""  # a program that embeds Python may have no arguments


def is_console_script() -> bool:
    """Return whether this process is the installed script `emi`."""
    return os.path.basename(zeroth_argument()) == "emi" and os.path.isfile(zeroth_argument())


def is_program() -> bool:
    """Return whether this process is `emi` or `python -m emi`, also while the package is imported.

    While Python imports the package for `-m`, `sys.argv` is `["-m", *arguments]`.
    """
    if zeroth_argument() == "-m":
        return sys.orig_argv[-len(sys.argv)] == "emi"
    return zeroth_argument() == MAIN_MODULE or is_console_script()


def begin() -> None:
    """Prepare the process of the command.

    Ctrl-C ends it without a traceback. `python -m` searches the current directory before the
    installed packages: it is removed here, and `main` adds it at the end. A closed standard stream
    is opened on the null device, because the next file would get its number and messages would be
    written into it. OpenMP reads its settings when PyTorch is imported.
    """
    if not os.environ.keys() & WAITING.keys():  # else they are the user's
        os.environ.update(WAITING)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    if zeroth_argument() == "-m" and not sys.flags.safe_path and sys.path[0] == _here():
        del sys.path[0]
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def interruptible() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, now that it is caught."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _here() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the directory was deleted, and Python has not added it
        return None


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
