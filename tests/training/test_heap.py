"""Freed memory is reused without new pages from the system."""

import platform
import subprocess
import sys

import pytest

# Prints the page faults of ten times four tensors of 20 MB in the main thread, and in another one.
PROGRAM = """
import resource, threading, torch
from emi.training.heap import keep_freed_memory
keep_freed_memory()

def faults():
    def allocate():
        for _ in range(10):
            [torch.empty(5_000_000).fill_(1) for _ in range(4)]
    allocate()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    allocate()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

torch.set_num_threads(1)
faults()
thread = threading.Thread(target=faults)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    # 20 MB are 5,000 pages.
    assert [int(line) < 500 for line in run.stdout.split()] == [True, True]
