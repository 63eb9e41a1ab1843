"""Runs of a sweep as processes on this machine."""

import subprocess
from dataclasses import dataclass

from emi.sweeps import run_process
from emi.sweeps.plan import Cell
from emi.sweeps.run_process import Ended


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


def start_local(cell: Cell) -> LocalJob:
    """Start a run as a process on this machine."""
    arguments = (cell.arguments, cell.path, cell.log, cell.config.threads)
    return LocalJob(run_process.start(*arguments))
