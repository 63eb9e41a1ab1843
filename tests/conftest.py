"""Tests run on one thread, so that they measure the code and not the machine's scheduler."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # for tests/oracle.py
torch.set_num_threads(1)
