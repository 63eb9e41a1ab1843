"""Runs of a sweep as processes on this machine."""

import subprocess
from dataclasses import dataclass

from emi.sweeps import run_process
from emi.sweeps.plan import Cell
from emi.sweeps.run_process import Ended
from emi.training.config import usable_cores


class LocalEngine:
    """As many runs at a time as the cores can carry."""

    def slots(self, threads: int) -> int:
        return max(1, usable_cores() // threads)

    def start(self, cell: Cell) -> "LocalJob":
        return LocalJob(run_process.start(cell.words, cell.path, cell.log, cell.config.threads))


@dataclass(frozen=True)
class LocalJob:
    process: subprocess.Popen[bytes]

    def begun(self) -> bool:
        return True

    def poll(self) -> Ended | None:
        code = self.process.poll()
        return None if code is None else Ended(code)

    def stop(self) -> None:
        self.process.terminate()
