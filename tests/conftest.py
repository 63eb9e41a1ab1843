"""Tests run on one thread, so that they measure the code and not the machine's scheduler."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import torch

from emi.runs import progress

sys.path.insert(0, str(Path(__file__).parent))  # for tests/oracle.py
torch.set_num_threads(1)
progress.QUIET_SECONDS = 3600.0  # no plain line of a command in progress, however slow the machine
# A shell's background job ignores SIGINT, and so do the processes it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
