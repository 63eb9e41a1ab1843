"""The files of one run: their paths, who may write them, and how they are written.

config.json             the resolved config
provenance.json         settings that differ from the preset; versions, commit and machine per start
metrics.csv             one row per iteration
tensorboard/            the same rows as TensorBoard events
checkpoints/            the last two checkpoints
embedding.safetensors   a sample of states and embeddings, once the run is complete
.lock                   held by the process that writes
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from emi import program
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.runs import checkpoint
from emi.runs.provenance import describe_start
from emi.training import config as configs
from emi.training.config import TrainConfig, differences
from emi.training.presets import changed_settings

_LOCK = ".lock"


class RunDirectory:
    """The paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.provenance = path / "provenance.json"
        self.metrics = path / "metrics.csv"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.embedding = path / "embedding.safetensors"

    @property
    def resume_command(self) -> str:
        return program.command("resume", str(self.path))


def default_path(config: TrainConfig) -> Path:
    """Return `runs/<environment>-<method>-seed<k>`."""
    name = f"{file_name(config.env)}-{file_name(config.method)}-seed{config.seed}"
    return Path("runs") / name


def file_name(name: str) -> str:
    """Return an environment or method as part of a path: `gym:Ant-v5` becomes `gym-Ant-v5`."""
    return name.replace(":", "-").replace("/", "-")


def read_config(file: Path) -> TrainConfig:
    """Read what `config_bytes` wrote; UserError if there is none or it is not a config."""
    try:
        return configs.from_dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        raise UserError(f"{file.parent} holds no run: there is no {file.name} in it") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {file}: {reason}") from None


def require_same(directory: RunDirectory, config: TrainConfig) -> None:
    """Raise UserError unless `directory` holds a run of `config`."""
    different = differences(config, read_config(directory.config))
    if different:
        raise UserError(
            f"{directory.path} holds another run ({different[0]} differs): choose another --out"
        )


def require_free(directory: RunDirectory, config: TrainConfig) -> None:
    """Raise UserError unless a new run of `config` can be written there; writes nothing."""
    path = directory.path
    if not path.exists():
        parent = next(p for p in path.absolute().parents if p.exists())
        if not parent.is_dir():
            raise UserError(f"cannot create {path}: {parent} is not a directory")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UserError(f"cannot create {path}: no permission to write in {parent}")
        return
    if not path.is_dir():
        raise UserError(f"{path} is a file: choose another --out")
    if directory.config.exists():
        require_same(directory, config)
        done = checkpoint.latest_iteration(directory.checkpoints) or 0
        if done >= config.iterations:
            raise UserError(f"{path} holds this run, complete: choose another --out")
        raise UserError(
            f"{path} holds this run, stopped at iteration {done} of {config.iterations}:"
            f" resume with: {directory.resume_command}"
        )
    # A run killed before it wrote config.json leaves a lock and unfinished files: they are ignored.
    names = [p.name for p in path.iterdir()]
    others = [n for n in names if n != _LOCK and not (n[0] == "." and n.endswith(".writing"))]
    if others:
        raise UserError(f"{path} holds other files ({min(others)}): choose another --out")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"no permission to write in {path}: choose another --out")


def write_config(directory: RunDirectory, config: TrainConfig) -> None:
    """Write config.json; from then on the directory holds a run."""
    write_durably(directory.config, config_bytes(config))


def add_start(
    directory: RunDirectory, config: TrainConfig, command: Sequence[str], iteration: int
) -> None:
    """Add this process to the `starts` in provenance.json.

    At the first start, the settings that differ from the preset are stored as `changed`. They are
    kept when the run is resumed, because a later version of emi may have another preset.
    """
    try:
        record = json.loads(directory.provenance.read_bytes())
        starts = [*record["starts"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The first start, or an unreadable file: a lost record does not stop training.
        record, starts = {"changed": changed_settings(config)}, []
    starts.append(describe_start(command, iteration))
    write_durably(directory.provenance, _json_bytes({**record, "starts": starts}))


def write_embedding(directory: RunDirectory, sample: dict[str, Tensor]) -> None:
    """Write embedding.safetensors if the method has an embedding."""
    if sample:
        own = {k: v.detach().cpu().contiguous().clone() for k, v in sample.items()}
        write_durably(directory.embedding, save(own))


@contextlib.contextmanager
def locked(directory: RunDirectory) -> Iterator[None]:
    """Be the only process that writes in `directory`; the lock ends with the process."""
    with (directory.path / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{directory.path} is being written by another process: wait for it or stop it"
            ) from None
        yield


def config_bytes(config: TrainConfig) -> bytes:
    """Return the content of config.json, which `emi train --config` reads as well."""
    return _json_bytes(configs.to_dict(config))


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
