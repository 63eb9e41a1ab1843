"""Run directories for the tests, as `emi train` writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def write_run(
    directory: Path,
    returns: Sequence[float],
    *,
    env: str = "SparseHalfCheetah",
    method: str = "emi",
    seed: int = 0,
    eta: float = 0.001,
    iterations: int | None = None,
    starts: Sequence[tuple[str | None, bool | None]] = (("c0ffee", False),),
    changed: Sequence[str] | None = (),
) -> Path:
    """A run of 5,000 steps and 30 seconds per iteration; `iterations` asked for in the config.

    `changed` are the settings that differ from the preset; None as in runs of an older version.
    """
    directory.mkdir(parents=True)
    config = {
        "env": env,
        "method": method,
        "seed": seed,
        "eta": eta,
        "steps": 5_000 * (iterations or len(returns)),
        "steps_per_iteration": 5_000,
    }
    (directory / "config.json").write_text(json.dumps(config))
    entries = [
        {
            "command": "emi resume" if number else f"emi train SparseHalfCheetah --seed {seed}",
            "commit": commit,
            "modified": modified,
            "machine": {"cpu": "Some CPU, fast", "cores": 2, "platform": "Linux"},
        }
        for number, (commit, modified) in enumerate(starts)
    ]
    record = {} if changed is None else {"changed": list(changed)}
    (directory / "provenance.json").write_text(json.dumps(record | {"starts": entries}))
    rows = [
        f"{k},{5000 * k},{30.0 * k},{value!r},{2 * value!r},{0.5}"
        for k, value in enumerate(map(float, returns), 1)
    ]
    header = "iteration,steps,seconds,return_mean,return_max,emi/loss_info"
    (directory / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    return directory


def write_sample(
    directory: Path,
    lengths: Sequence[Sequence[int]],
    *,
    images: bool = False,
    error: Mapping[int, tuple[float, float]] | None = None,
) -> dict[str, np.ndarray]:
    """An embedding sample with episodes of these lengths, by environment; also returns it.

    The environments' totals are equal, and the last episode of each is cut. Row k of `frame` is all
    k, and of `frame_next` all 255 − k. With `error`, S is zero in all rows but these.
    """
    clocks = [np.concatenate([np.arange(n) for n in episodes]) for episodes in lengths]
    clock = np.stack(clocks, axis=1)  # [time, env]
    env = np.broadcast_to(np.arange(len(lengths)), clock.shape)
    rng, n = np.random.default_rng(0), clock.size
    names = ("phi", "phi_next", "psi", "error")
    sample = {name: rng.normal(size=(n, 2)).astype(np.float32) for name in names}
    sample |= {"bonus": rng.random(n), "reward": rng.integers(0, 3, n).astype(float)}
    ended = [np.isin(np.arange(sum(each)), np.cumsum(each)[:-1] - 1) for each in lengths]
    sample |= {"clock": clock.ravel(), "env": env.ravel(), "ended": np.stack(ended, 1).ravel()}
    if error is not None:
        sample["error"][:] = 0
        for row, S in error.items():
            sample["error"][row] = S
    if images:
        levels = np.broadcast_to(np.arange(n)[:, None, None, None], (n, 1, 8, 8)) % 256
        sample |= {"frame": levels.astype(np.uint8), "frame_next": (255 - levels).astype(np.uint8)}
    else:
        sample["obs"] = rng.normal(size=(n, 20)).astype(np.float32)
    save_file(
        {k: np.ascontiguousarray(v) for k, v in sample.items()},
        directory / "embedding.safetensors",
    )
    return sample
