"""Run directories for the tests, written as `emi train` leaves them."""

import json
from collections.abc import Sequence
from pathlib import Path


def write_run(
    directory: Path,
    returns: Sequence[float],
    *,
    method: str = "emi",
    seed: int = 0,
    eta: float = 0.001,
    iterations: int | None = None,
    starts: Sequence[tuple[str | None, bool | None]] = (("c0ffee", False),),
) -> Path:
    """A run of 5,000 steps and 30 seconds per iteration; `iterations` asked for in the config."""
    directory.mkdir(parents=True)
    config = {
        "env": "SparseHalfCheetah",
        "method": method,
        "seed": seed,
        "eta": eta,
        "steps": 5_000 * (iterations or len(returns)),
        "steps_per_iteration": 5_000,
    }
    (directory / "config.json").write_text(json.dumps(config))
    entries = [
        {
            "command": f"emi train SparseHalfCheetah --seed {seed}"
            if number == 0
            else "emi resume",
            "commit": commit,
            "modified": modified,
            "machine": {"cpu": "Some CPU, fast", "cores": 2, "platform": "Linux"},
        }
        for number, (commit, modified) in enumerate(starts)
    ]
    (directory / "provenance.json").write_text(json.dumps({"starts": entries}))
    rows = [
        f"{k},{5000 * k},{30.0 * k},{value!r},{2 * value!r},{0.5}"
        for k, value in enumerate(map(float, returns), 1)
    ]
    header = "iteration,steps,seconds,return_mean,return_max,emi/loss_info"
    (directory / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    return directory
