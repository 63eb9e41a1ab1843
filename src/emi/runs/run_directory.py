"""The files of one run: where they are, who may write them, and what they say about the run.

config.json             the resolved config
provenance.json         versions, commit, command and machine of each start
metrics.csv             one row per iteration
tensorboard/            the same rows as TensorBoard events
checkpoints/            the last two
embedding.safetensors   a sample of states and embeddings, when the run is complete
.lock                   held by the one process that writes
"""

import contextlib
import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from emi.durable_file import write_durably
from emi.runs import checkpoint
from emi.training import config as configs
from emi.errors import UserError
from emi.training.config import TrainConfig, differences
from emi.runs.provenance import describe_start
from emi.training.presets import changed_settings

_LOCK = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def provenance(self) -> Path:
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def embedding(self) -> Path:
        return self.path / "embedding.safetensors"

    @property
    def resume_command(self) -> str:
        return f"emi resume {shlex.quote(str(self.path))}"


def default_path(config: TrainConfig) -> Path:
    """`runs/<environment>-<method>-seed<k>`."""
    name = f"{file_name(config.env)}-{file_name(config.method)}-seed{config.seed}"
    return Path("runs") / name


def file_name(name: str) -> str:
    """The name of an environment or a method as part of a path: `gym:Ant-v5` to `gym-Ant-v5`."""
    return name.replace(":", "-").replace("/", "-")


def read_config(directory: RunDirectory) -> TrainConfig:
    """The config of the run in `directory`."""
    try:
        return configs.from_dict(json.loads(directory.config.read_bytes()))
    except FileNotFoundError:
        raise UserError(
            f"{directory.path} holds no run: there is no config.json in it"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {directory.config}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{directory.config} is not a config of emi: {error}") from None


def require_free(directory: RunDirectory, asked: TrainConfig) -> None:
    """UserError unless a new run of `asked` can be put there; writes nothing."""
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
        found = read_config(directory)
        different = differences(asked, found)
        if different:
            raise UserError(
                f"{path} holds another run ({different[0]} differs): choose another --out"
            )
        done = checkpoint.latest_iteration(directory.checkpoints) or 0
        if done >= found.iterations:
            raise UserError(f"{path} holds this run, complete: choose another --out")
        raise UserError(
            f"{path} holds this run, stopped at iteration {done} of {found.iterations}:"
            f" go on with: {directory.resume_command}"
        )
    # A run that died before it wrote config.json leaves a lock and unfinished files: no obstacle.
    others = [p.name for p in path.iterdir() if p.name != _LOCK and not _is_unfinished(p)]
    if others:
        raise UserError(f"{path} holds other files ({min(others)}): choose another --out")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"no permission to write in {path}: choose another --out")


def write_config(directory: RunDirectory, new: TrainConfig) -> None:
    """Write config.json; from then on the directory holds a run."""
    write_durably(directory.config, config_bytes(new))


def add_start(
    directory: RunDirectory, config: TrainConfig, words: Sequence[str], iteration: int
) -> None:
    """Add this process to the `starts` of provenance.json, and what was changed from the preset."""
    try:
        before = json.loads(directory.provenance.read_bytes())
        starts = before["starts"] if isinstance(before["starts"], list) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        before, starts = {}, []  # none yet, or unreadable: a lost record does not stop training
    # Kept from the first start: a later version may have another preset.
    changed = before.get("changed") if starts else changed_settings(config)
    record = {} if changed is None else {"changed": changed}
    starts = [*starts, describe_start(words, iteration)]
    write_durably(directory.provenance, _json_bytes({**record, "starts": starts}))


def write_embedding(directory: RunDirectory, sample: dict[str, Tensor]) -> None:
    """Write embedding.safetensors, if the method has an embedding."""
    from safetensors.torch import save

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


def _is_unfinished(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".writing")


def config_bytes(config: TrainConfig) -> bytes:
    """config.json of a run, or the file that `emi train --config` reads."""
    return _json_bytes(configs.to_dict(config))


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
