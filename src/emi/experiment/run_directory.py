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
from emi.experiment import checkpoint, config
from emi.experiment.config import TrainConfig
from emi.experiment.provenance import describe_start

_LOCK = ".lock"


class RunDirectoryError(ValueError):
    """The directory cannot be used as asked; the message is one sentence for the user."""


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
    def collected(self) -> bool:
        """Is it a finished run as results/ keeps it: metrics, but nothing to go on from?"""
        return self.path.joinpath("metrics.csv.gz").exists()

    @property
    def resume_command(self) -> str:
        return f"emi resume {shlex.quote(str(self.path))}"


def default_path(config: TrainConfig) -> Path:
    """`runs/<environment>-<method>-seed<k>`."""
    return Path("runs") / f"{file_name(config.env)}-{config.method}-seed{config.seed}"


def file_name(environment: str) -> str:
    """The name of an environment as part of a path: `gym:Ant-v5` becomes `gym-Ant-v5`."""
    return environment.replace(":", "-").replace("/", "-")


def read_config(directory: RunDirectory) -> TrainConfig:
    """The config of the run in `directory`."""
    try:
        return config.from_dict(json.loads(directory.config.read_bytes()))
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{directory.path} holds no run: there is no config.json in it"
        ) from None
    except OSError as error:
        raise RunDirectoryError(f"cannot read {directory.config}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RunDirectoryError(f"{directory.config} is not a config of emi: {error}") from None


def differences(asked: TrainConfig, found: TrainConfig) -> list[str]:
    """Dotted names of the fields in which two configs differ."""
    a, b = _flat(config.to_dict(asked)), _flat(config.to_dict(found))
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def require_free(directory: RunDirectory, asked: TrainConfig) -> None:
    """RunDirectoryError unless a new run of `asked` can be put there; writes nothing."""
    path = directory.path
    if not path.exists():
        parent = next(p for p in path.absolute().parents if p.exists())
        if not parent.is_dir():
            raise RunDirectoryError(f"cannot create {path}: {parent} is not a directory")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise RunDirectoryError(f"cannot create {path}: no permission to write in {parent}")
        return
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is a file: choose another --out")
    if directory.config.exists():
        found = read_config(directory)
        different = differences(asked, found)
        if different:
            raise RunDirectoryError(
                f"{path} holds another run ({different[0]} differs): choose another --out"
            )
        require_own(directory)
        done = checkpoint.latest_iteration(directory.checkpoints) or 0
        if done >= found.iterations:
            raise RunDirectoryError(f"{path} holds this run, complete: choose another --out")
        raise RunDirectoryError(
            f"{path} holds this run, stopped at iteration {done} of {found.iterations}:"
            f" go on with: {directory.resume_command}"
        )
    # A run that died before it wrote config.json leaves a lock and unfinished files: no obstacle.
    others = [p.name for p in path.iterdir() if p.name != _LOCK and not _is_unfinished(p)]
    if others:
        raise RunDirectoryError(f"{path} holds other files ({min(others)}): choose another --out")
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunDirectoryError(f"no permission to write in {path}: choose another --out")


def require_own(directory: RunDirectory) -> None:
    """RunDirectoryError where a finished run is kept: nothing may be added to its files."""
    if directory.collected:
        raise RunDirectoryError(
            f"{directory.path} keeps the results of a finished run, without its checkpoints: "
            "to train it again give emi train another --out"
        )


def write_config(directory: RunDirectory, new: TrainConfig) -> None:
    """Write config.json; from then on the directory holds a run."""
    write_durably(directory.config, _json_bytes(config.to_dict(new)))


def add_start(directory: RunDirectory, words: Sequence[str], iteration: int) -> None:
    """Add this process to the `starts` of provenance.json."""
    try:
        starts = json.loads(directory.provenance.read_bytes())["starts"]
        starts = starts if isinstance(starts, list) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        starts = []  # none yet, or unreadable: a lost record is no reason not to train
    entry = describe_start(words, iteration)
    write_durably(directory.provenance, _json_bytes({"starts": [*starts, entry]}))


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
            raise RunDirectoryError(
                f"{directory.path} is being written by another process: wait for it or stop it"
            ) from None
        yield


def _is_unfinished(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".writing")


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts to dotted names, in the types that JSON keeps."""
    if not isinstance(value, dict):
        return {prefix: json.loads(json.dumps(value))}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
