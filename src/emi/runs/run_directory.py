"""The files of one run: their paths, who may write them, and how they are written.

config.json             the resolved config
provenance.json         settings that differ from the preset; versions, commit and machine per start
metrics.csv             one row per iteration
tensorboard/            the same rows as TensorBoard events
checkpoints/            the last two checkpoints
embedding.safetensors   a sample of states and embeddings, once the run is complete
visits.safetensors      the visited states over training, if the config asks for them
.lock                   held by the process that writes
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_arrays
from safetensors.torch import save
from torch import Tensor

from emi import program
from emi.batch import Array
from emi.durable_file import open_own, require_in_place, write_durably
from emi.errors import UserError
from emi.runs import checkpoint
from emi.runs.provenance import describe_start
from emi.training import config as configs
from emi.training.config import TrainConfig, differences
from emi.training.presets import changed_settings
from emi.untrusted_file import read_json

_LOCK = ".lock"
_PROVENANCE_BYTES = 10_000_000  # some kilobytes for each start


class RunDirectory:
    """The paths of one run; `trusted` are the user's modules that it imports."""

    def __init__(self, path: Path, trusted: Sequence[str] = ()) -> None:
        self.path = path
        self.trusted = trusted
        self.config = path / "config.json"
        self.provenance = path / "provenance.json"
        self.metrics = path / "metrics.csv"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.embedding = path / "embedding.safetensors"
        self.visits = path / "visits.safetensors"

    @property
    def trust(self) -> list[str]:
        """The option that a command needs to import the user's modules."""
        return ["--trust", ",".join(self.trusted)] if self.trusted else []

    @property
    def resume_command(self) -> str:
        return program.command("resume", str(self.path), *self.trust)


def default_path(config: TrainConfig) -> Path:
    """Return `runs/<environment>-<method>-seed<k>`, with the preset if it is not the paper's."""
    preset = "" if config.preset == "paper" else f"-{config.preset}"
    name = f"{file_name(config.env)}-{file_name(config.method)}{preset}-seed{config.seed}"
    return Path("runs") / name


def file_name(name: str) -> str:
    """Return an environment or method as part of a path: `gym:Ant-v5` becomes `gym-Ant-v5`."""
    return name.replace(":", "-").replace("/", "-")


def read_config(file: Path, trusted: Collection[str] = ()) -> TrainConfig:
    """Read what `config_bytes` wrote; UserError if there is none or it is not a config.

    A module that the config names is imported only if it is in `trusted`.
    """
    try:
        values = read_json(file, configs.CONFIG_BYTES)
    except FileNotFoundError:
        raise UserError(f"{file.parent} holds no run: there is no {file.name} in it") from None
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    try:
        return configs.from_dict(values, trusted)
    except UserError as error:
        raise UserError(f"cannot read {file}: {error}") from None


def difference(file: Path, config: TrainConfig) -> str | None:
    """The first setting in which the config in `file` differs from `config`; None if none does.

    Imports no module that `config` does not name.
    """
    stored = read_config(file, config.modules)
    return next(iter(differences(config, stored)), None)


def require_same(directory: RunDirectory, config: TrainConfig) -> None:
    """Raise UserError unless `directory` holds a run of `config`."""
    different = difference(directory.config, config)
    if different:
        raise UserError(
            f"{directory.path} holds another run ({different} differs): choose another --out"
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
        record = read_json(directory.provenance, _PROVENANCE_BYTES)
        starts = [*record["starts"]]
    except (OSError, ValueError, KeyError, TypeError):
        # The first start, or an unreadable file: a lost record does not stop training.
        record, starts = {"changed": changed_settings(config)}, []
    starts.append(describe_start(command, iteration))
    write_durably(directory.provenance, _json_bytes({**record, "starts": starts}))


def write_visits(directory: RunDirectory, arrays: dict[str, Array]) -> None:
    """Write visits.safetensors if visited states are recorded."""
    if arrays:
        own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_durably(directory.visits, save_arrays(own))


def write_embedding(directory: RunDirectory, sample: dict[str, Tensor]) -> None:
    """Write embedding.safetensors if the method has an embedding."""
    if sample:
        own = {k: v.detach().cpu().contiguous().clone() for k, v in sample.items()}
        write_durably(directory.embedding, save(own))


@contextlib.contextmanager
def locked(directory: RunDirectory) -> Iterator[Callable[[], None]]:
    """Be the only process that writes in `directory`; the lock ends with the process.

    The function that is yielded raises OSError if the directory was deleted, moved or replaced.
    """
    path = directory.path / _LOCK
    with open_own(path, os.O_APPEND) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{directory.path} is being written by another process: wait for it or stop it"
            ) from None
        yield lambda: require_in_place(path, file.fileno())


def config_bytes(config: TrainConfig) -> bytes:
    """Return the content of config.json, which `emi train --config` reads as well."""
    return _json_bytes(configs.to_dict(config))


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
