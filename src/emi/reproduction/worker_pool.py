"""Worker processes that train one run each, and end when this process is stopped."""

import contextlib
import multiprocessing
import multiprocessing.pool
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def worker_pool(jobs: int) -> Iterator[multiprocessing.pool.Pool]:
    """So many processes; they are ended at the end of the block, also by Ctrl-C or SIGTERM."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # by default, SIGTERM would leave the workers behind

    before = signal.signal(signal.SIGTERM, stop)
    # Ctrl-C reaches every process of the terminal; this process ends the others.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    try:
        with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, ignore) as pool:
            yield pool
    finally:
        signal.signal(signal.SIGTERM, before)
