"""A small results/ for the tests: runs as `emi paper collect` packs them."""

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from emi.report.packed import RUNS, embedding_file, metrics_file, pack, read_records
from emi.report.record import Record
from emi.reproduction.experiment import Arm
from emi.training.config import to_dict
from emi.training.presets import resolve


def write_arm(
    root: Path, arm: Arm, finals: Sequence[float], *, scale: float = 1.0, iterations: int = 0
) -> None:
    """A packed run for each of the first seeds; its returns rise linearly to these values.

    The config asks for `scale` of the arm's steps; `iterations` of them are done, all if 0.
    """
    experiment = root / arm.folder
    records = read_records(experiment)
    for seed, final in zip(arm.seeds, finals, strict=False):
        path = arm.path(root, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {"seed": seed, "threads": 1, "steps": round(arm.steps * scale)}
        config = to_dict(resolve(arm.env, arm.method, options, arm.settings, arm.preset))
        start = {"command": "emi train", "commit": "c0ffee", "modified": False}
        start["machine"] = {"cpu": "some CPU", "cores": 2}
        changed = [word.partition("=")[0] for word in arm.settings]
        text = _metrics(config["steps"], config["steps_per_iteration"], final, seed)
        lines = text.splitlines(keepends=True)[: iterations + 1 if iterations else None]
        metrics_file(path).write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
        key = path.relative_to(experiment).as_posix()
        records[key] = Record(
            json.loads(json.dumps(config)), {"changed": changed, "starts": [start]}
        )
    (experiment / RUNS).write_bytes(pack(records))


def change_record(root: Path, arm: Arm, seed: int, **config: object) -> None:
    """Change the config of a packed run."""
    experiment = root / arm.folder
    records = read_records(experiment)
    record = records[arm.path(root, seed).relative_to(experiment).as_posix()]
    record.config.update(config)
    (experiment / RUNS).write_bytes(pack(records))


def unpack_arm(root: Path, arm: Arm, seed: int) -> Path:
    """Turn a packed run into a run directory."""
    path, experiment = arm.path(root, seed), root / arm.folder
    records = read_records(experiment)
    record = records.pop(path.relative_to(experiment).as_posix())
    path.mkdir()
    (path / "config.json").write_text(json.dumps(record.config))
    (path / "provenance.json").write_text(json.dumps(record.provenance))
    (path / "metrics.csv").write_bytes(gzip.decompress(metrics_file(path).read_bytes()))
    metrics_file(path).unlink()
    (experiment / RUNS).write_bytes(pack(records))
    return path


def _metrics(steps: int, steps_per_iteration: int, final: float, seed: int) -> str:
    names = "iteration,steps,seconds,return_mean,return_max,emi/loss_info,emi/loss_linear,"
    names += "emi/loss_error,emi/state_norm,emi/error_norm\n"
    rows = []
    iterations = math.ceil(steps / steps_per_iteration)
    for k in range(1, iterations + 1):
        value = final * (k - 1) / (iterations - 1)
        losses = [(1 + seed / 10) / k**power for power in (1.0, 1.5, 2.0)]
        row = [k, k * steps_per_iteration, 30 * k, value, 2 * value, *losses, 0.5, 0.1 / k]
        rows.append(",".join(map(repr, row)) + "\n")
    return names + "".join(rows)


def write_sample(path: Path, steps: int = 50) -> None:
    """The embedding of the packed run at `path`, with vector observations: one whole episode."""
    rng = np.random.default_rng(0)
    names = ("phi", "phi_next", "psi", "error")
    sample = {name: rng.normal(size=(steps, 2)).astype(np.float32) for name in names}
    sample |= {"bonus": rng.random(steps), "reward": np.zeros(steps)}
    sample |= {"clock": np.arange(steps), "env": np.zeros(steps, np.int64)}
    sample["ended"] = np.arange(steps) == steps - 1
    sample |= {"obs": rng.normal(size=(steps, 20)).astype(np.float32)}
    embedding_file(path).write_bytes(gzip.compress(save(sample), mtime=0))
