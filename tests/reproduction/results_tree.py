"""A small results/ for the tests: committed runs as `emi paper collect` leaves them."""

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from emi.training.config import resolve, to_dict
from emi.reproduction.experiment import Group


def write_group(
    root: Path, group: Group, finals: Sequence[float], *, scale: float = 1.0, iterations: int = 0
) -> None:
    """A run for each of the first seeds, whose returns rise to these values in a straight line.

    The runs are to have `scale` of the group's steps; `iterations` of them are there, all if 0.
    """
    for seed, final in zip(group.seeds, finals, strict=False):
        directory = group.directory(root, seed)
        directory.mkdir(parents=True)
        config = to_dict(
            resolve(group.env, group.method, seed=seed, threads=1, overrides=group.settings)
        )
        steps = round(group.steps * scale)
        config["steps"] = steps
        (directory / "config.json").write_text(json.dumps(config))
        start = {"command": "emi train", "commit": "c0ffee", "modified": False}
        start["machine"] = {"cpu": "some CPU", "cores": 2}
        (directory / "provenance.json").write_text(json.dumps({"starts": [start]}))
        text = _metrics(steps, config["steps_per_iteration"], final, seed)
        lines = text.splitlines(keepends=True)[: iterations + 1 if iterations else None]
        compressed = gzip.compress("".join(lines).encode(), mtime=0)
        (directory / "metrics.csv.gz").write_bytes(compressed)


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
    """The embedding of a run of vectors: one whole episode."""
    rng = np.random.default_rng(0)
    names = ("phi", "phi_next", "psi", "error")
    sample = {name: rng.normal(size=(steps, 2)).astype(np.float32) for name in names}
    sample |= {"bonus": rng.random(steps), "reward": np.zeros(steps)}
    sample |= {"clock": np.arange(steps), "env": np.zeros(steps, np.int64)}
    sample |= {"obs": rng.normal(size=(steps, 20)).astype(np.float32)}
    save_file(sample, path)
