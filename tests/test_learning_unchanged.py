"""Learning is bit for bit what it was: digests of short runs, recorded in learning_digests.json.

A change of a digest is a change of learning: it needs a [results] entry in CHANGELOG.md. To record
new digests: `python tests/test_learning_unchanged.py DIR`, which trains into DIR.

Bits depend on the processor and on library versions. The file holds one entry per processor, by its
vector instructions, with a digest of the results of basic operations. On a processor with an entry,
runs must equal it. On any other they may equal one of the entries; otherwise the tests are skipped.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from emi.intrinsic.table import METHODS
from emi.runs.run import run
from emi.training.presets import resolve

RECORD = Path(__file__).with_name("learning_digests.json")
# The digests of Freeway are older than `fisher_fraction` and bfloat16.
SMALL = {
    "steps": 1_000,
    "steps_per_iteration": 500,
    "num_envs": 2,
    "trpo.fisher_fraction": 1.0,
    "policy.arithmetic": "float32",
    "value.arithmetic": "float32",
    "intrinsic.arithmetic": "float32",
}
# Methods that came after the first processor was recorded have no digest.
RECORDED = json.loads(RECORD.read_text())[0]["runs"].keys()
# Environment, method and settings of each run; three iterations where a method needs no more.
RUNS = {
    name: ("SparseHalfCheetah", m, {"steps": 15_000})
    for m in METHODS
    if (name := f"SparseHalfCheetah {m}") in RECORDED
} | {
    "SparseHalfCheetah emi, two threads": (
        "SparseHalfCheetah",
        "emi",
        {"steps": 15_000, "threads": 2},
    ),
    "SwimmerGather emi": (
        "SwimmerGather",
        "emi",
        {"steps": 10_000, "steps_per_iteration": 5_000, "num_envs": 10},
    ),
    "Freeway emi": ("Freeway", "emi", SMALL),
    "Freeway emi, two threads": ("Freeway", "emi", SMALL | {"threads": 2}),
    "gym:MountainCarContinuous-v0 emi": (
        "gym:MountainCarContinuous-v0",
        "emi",
        {"steps": 15_000, "normalize_observations": False},
    ),
}
VERSIONS = ("torch", "numpy", "gymnasium", "mujoco", "ale-py")


def arithmetic() -> str:
    """Digest of what basic operations give on this machine, in sizes that training uses."""
    rng = np.random.default_rng(0)
    found = hashlib.sha256("".join(map(version, VERSIONS)).encode())
    for rows in (10, 512):
        x = rng.standard_normal((rows, 64), dtype=np.float32)
        w = rng.standard_normal((64, 32), dtype=np.float32)
        if rows == 10:  # NumPy evaluates the policy, for a few environments at a time
            found.update(np.tanh(x @ w).tobytes())
        y = torch.from_numpy(x) @ torch.from_numpy(w)
        for out in (y, y.tanh(), y.exp(), y.sigmoid(), y.double().square().sum(0), y.logsumexp(1)):
            found.update(out.numpy().tobytes())
    images = torch.from_numpy(rng.standard_normal((4, 4, 52, 52), dtype=np.float32))
    filters = torch.from_numpy(rng.standard_normal((16, 4, 8, 8), dtype=np.float32))
    found.update(torch.nn.functional.conv2d(images, filters, stride=4).numpy().tobytes())
    return found.hexdigest()


def vector_instructions() -> str:
    """The instruction sets that decide which kernels are chosen; "" if they are not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return " ".join(sorted(flag for flag in flags if flag.startswith(("avx", "fma", "amx"))))


def digest(directory: Path) -> str:
    """Of metrics.csv without times, and of every tensor and value of the last checkpoint."""
    found = hashlib.sha256()
    header, *rows = csv.reader((directory / "metrics.csv").read_text().splitlines())
    kept = [i for i, name in enumerate(header) if name not in ("seconds", "steps_per_second")]
    for row in (header, *rows):
        found.update(",".join(row[i] for i in kept).encode() + b"\n")
    checkpoint = max((directory / "checkpoints").iterdir())
    tensors = load_file(checkpoint / "tensors.safetensors")
    for name in sorted(tensors):
        value = tensors[name]
        found.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    found.update((checkpoint / "state.json").read_bytes())
    return found.hexdigest()


def train(name: str, out: Path) -> str:
    env, method, settings = RUNS[name]
    run(resolve(env, method, {"threads": 1, "seed": 3, **settings}), out)
    return digest(out)


@pytest.mark.parametrize("name", RUNS)
def test_learning_is_unchanged(name: str, tmp_path: Path) -> None:
    entries = json.loads(RECORD.read_text())
    assert all(entry["runs"].keys() == RUNS.keys() for entry in entries)
    same = [entry for entry in entries if entry["arithmetic"] == arithmetic()]
    own = [entry for entry in same if entry["processor"] == vector_instructions()]
    threads = torch.get_num_threads()
    try:
        found = train(name, tmp_path / "run") if same else None
    finally:
        torch.set_num_threads(threads)
    if found not in [entry["runs"][name] for entry in own or same]:
        if own:
            pytest.fail("learning has changed")
        pytest.skip("digests were recorded with other processors or other versions")


if __name__ == "__main__":
    runs = {name: train(name, Path(sys.argv[1]) / str(k)) for k, name in enumerate(RUNS)}
    mine = {"processor": vector_instructions(), "arithmetic": arithmetic(), "runs": runs}
    others = [e for e in json.loads(RECORD.read_text()) if e["processor"] != mine["processor"]]
    RECORD.write_text(json.dumps([*others, mine], indent=2) + "\n")
