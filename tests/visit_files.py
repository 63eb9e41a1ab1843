"""Files of visited states for the tests, as a run with --coverage writes them."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WALK = np.array([[[0, 0], [2, 0], [3, 1]], [[0, 1], [0, 0], [0, 0]]])  # [slot, x, y]
FREE = np.array([[True, True], [True, False], [True, True]])


def visits(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Six and then one step in a grid of 3 × 2 cells with a wall; None removes an array."""
    rng = np.random.default_rng(0)
    arrays = {
        "steps": np.array([6, 7]),
        "states": rng.normal(size=(20, 3)).astype(np.float32),
        "state_slot": np.repeat([0, 1], 10),
        "state_bonus": np.arange(20, dtype=np.float32),
        "visits": WALK,
        "bonus": 0.5 * WALK,
        "unit": np.array([[0.0, 0.0], [1.0, 1.0]]),
        "exponent": np.zeros(2, np.int64),
        "first": np.zeros(2, np.int64),
        "names": np.frombuffer(b"x\ny", np.uint8),
        "free": FREE,
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def write_visits(directory: Path, **changes: np.ndarray | None) -> Path:
    file = directory / "visits.safetensors"
    save_file(visits(**changes), file)
    return file
