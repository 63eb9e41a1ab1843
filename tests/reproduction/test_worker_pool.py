"""Worker processes end with the process that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from emi.reproduction.worker_pool import worker_pool

CODE = """
import os, time
from emi.reproduction.worker_pool import worker_pool

if __name__ == "__main__":
    with worker_pool(2) as pool:
        print(pool.apply(os.getpid), flush=True)
        pool.map(time.sleep, [600, 600])
"""


def test_results_come_back_and_the_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with worker_pool(1) as pool:
        assert signal.getsignal(signal.SIGTERM) is not before
        assert pool.map(abs, [-1, 2]) == [1, 2]
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_leaves_no_worker_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CODE)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 60
    while _runs(worker):
        assert time.monotonic() < deadline, "the worker still runs"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
