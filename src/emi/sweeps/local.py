"""Runs of a sweep as processes on this machine."""

import subprocess
from dataclasses import dataclass

from emi.sweeps import run_process
from emi.sweeps.plan import Cell
from emi.sweeps.run_process import Ended
from emi.training.config import usable_cores


class LocalEngine:
    """Starts as many runs at a time as there are cores."""

    def slots(self, threads: int) -> int:
        """Return how many runs of `threads` to start at a time."""
        return max(1, usable_cores() // threads)

    def start(self, cell: Cell) -> "LocalJob":
        arguments = (cell.arguments, cell.path, cell.log, cell.config.threads)
        return LocalJob(run_process.start(*arguments))


@dataclass(frozen=True)
class LocalJob:
    """A run that was started; RayJob has the same methods."""

    process: subprocess.Popen[bytes]

    def begun(self) -> bool:
        """Return whether the run is running already."""
        return True

    def poll(self) -> Ended | None:
        """Return how the run ended; None while it is running."""
        code = self.process.poll()
        return None if code is None else Ended(code)

    def stop(self) -> None:
        """Ask the run to write a checkpoint and end."""
        self.process.terminate()
