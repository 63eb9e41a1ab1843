"""The rows of metrics.csv as TensorBoard events, if TensorBoard is installed."""

import contextlib
import importlib.util
import io
import math
import os
import time
from pathlib import Path

from emi.durable_file import open_own, own_directory
from emi.runs.metrics_file import Row


def is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoardEvents:
    """Scalars over environment steps; events of an earlier process after `steps` are hidden.

    Not PyTorch's SummaryWriter: its thread dies with a traceback on a full disk, and its files
    are named after the host.
    """

    def __init__(self, directory: Path, steps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        own_directory(directory)
        # TensorBoard reads the files of a directory in the order of their names.
        path = directory / f"events.out.tfevents.{time.time_ns():020d}"
        self._records = RecordWriter(io.BufferedWriter(open_own(path, os.O_EXCL)))
        start = SessionLog(status=SessionLog.START)
        for event in (
            Event(wall_time=time.time(), file_version="brain.Event:2"),
            Event(wall_time=time.time(), step=steps + 1, session_log=start),
        ):
            self._records.write(event.SerializeToString())

    def append(self, row: Row) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name if "/" in name else f"run/{name}", simple_value=value)
            for name, value in row.items()
            if name not in ("iteration", "steps") and math.isfinite(value)
        ]
        event = Event(wall_time=time.time(), step=int(row["steps"]), summary=Summary(value=values))
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        # After a failed write, closing fails again; the run has reported the first failure.
        with contextlib.suppress(OSError):
            self._records.close()
