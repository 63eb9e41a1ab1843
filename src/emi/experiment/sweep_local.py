"""Runs of a sweep as processes on this machine."""

import subprocess
from dataclasses import dataclass

from emi.experiment import run_process
from emi.experiment.provenance import usable_cores
from emi.experiment.run_process import Ended
from emi.experiment.sweep_plan import Cell


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
