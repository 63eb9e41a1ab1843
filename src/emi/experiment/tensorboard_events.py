"""The rows of metrics.csv as TensorBoard events, if TensorBoard is installed."""

import contextlib
import math
from pathlib import Path

from emi.experiment.metrics_file import Row


def is_installed() -> bool:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        return False
    return True


class TensorBoardEvents:
    """Scalars over environment steps; what an earlier process wrote after `steps` is hidden."""

    def __init__(self, directory: Path, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=steps + 1)

    def append(self, row: Row) -> None:
        for name, value in row.items():
            if name not in ("iteration", "steps") and math.isfinite(value):
                tag = name if "/" in name else f"run/{name}"
                self._writer.add_scalar(tag, value, int(row["steps"]))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        # On a full disk the writer fails once more here, and the run has said so already.
        with contextlib.suppress(OSError):
            self._writer.close()
