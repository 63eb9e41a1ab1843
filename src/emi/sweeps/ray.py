"""Runs of a sweep as tasks on a Ray cluster.

A task starts the process of the run and waits for it. When its worker or node dies, Ray starts the
task again elsewhere, and the run resumes from its checkpoint on the shared storage.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emi.errors import UserError
from emi.program import install
from emi.sweeps.plan import Cell
from emi.sweeps.run_process import Ended, attend
from emi.training.config import usable_cores

_CONNECT_SECONDS = 10.0
# Set before `import ray`, unless they are set already.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # send no usage reports
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # leave CUDA_VISIBLE_DEVICES as it is
}


@contextlib.contextmanager
def ray_cluster(address: str | None, threads: int) -> Iterator[Callable[[Cell], "RayJob"]]:
    """Connect to the cluster at `address`, or start Ray on this machine, for runs of `threads`.

    It gives a function that submits a run.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError(
            f"--engine ray needs Ray, which is not installed: {install('ray')}"
        ) from None
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # Reachable from this machine only: Ray has no password.
        settings |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        settings |= {"num_cpus": max(usable_cores(), threads)}
    else:
        _require_listener(address)
    try:
        ray.init(address=address or "local", **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"cannot use Ray at {address or 'this machine'}: {reason}") from None
    try:
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        if max(nodes, default=0) < threads:
            raise UserError(f"no node of the Ray cluster has {threads} cores: use fewer --threads")
        task, cwd = ray.remote(attend), Path.cwd()

        def submit(cell: Cell) -> RayJob:
            log = cell.log.absolute()
            named = task.options(name=cell.name, **resources(cell))
            ref = named.remote(cell.arguments, cell.path, log, cell.config.threads, cwd)
            return RayJob(ray, ref, log, log.stat().st_size)

        yield submit
    finally:
        ray.shutdown()


def resources(cell: Cell) -> dict[str, int]:
    """Return what a run needs of a node; it is restarted however often a node dies."""
    gpus = 1 if cell.config.device == "cuda" else 0
    return {"num_cpus": cell.config.threads, "num_gpus": gpus, "max_retries": -1}


@dataclass(frozen=True)
class RayJob:
    """A run that was submitted; LocalJob has the same methods."""

    ray: Any
    ref: Any
    log: Path
    log_bytes: int
    """size of the log before: a run that has begun writes to its log"""

    def begun(self) -> bool:
        return self.log.stat().st_size > self.log_bytes

    def poll(self) -> Ended | None:
        ready, _ = self.ray.wait([self.ref], timeout=0)
        if not ready:
            return None
        try:
            ended: Ended = self.ray.get(self.ref)
        except self.ray.exceptions.TaskCancelledError:
            return Ended(128 + signal.SIGTERM)
        except self.ray.exceptions.RayError as error:
            return Ended(1, " ".join(str(error).split()))
        return ended

    def stop(self) -> None:
        """Raise KeyboardInterrupt in the task, which sends SIGTERM to the run."""
        self.ray.cancel(self.ref)


def _require_listener(address: str) -> None:
    """Raise UserError if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # `auto`, or an address that Ray will refuse
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"there is no Ray cluster at {address}: {error}") from None
