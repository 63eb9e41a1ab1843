"""Files of plans for the tests, as `emi plan` writes them."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def arrays(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """A plan from (0, 0) to (3, 4) in two steps; None removes an array."""
    path = np.array([[0, 0], [1, 2], [3, 4]], np.float32)
    found = {
        "visited": np.array([[0, 0], [5, 5], [-5, 5], [5, -5]], np.float32),
        "plan": path[[0, 2]],
        "phi": path,
        "distance": np.array([5, 2.5, 0], np.float32),
        "title": np.frombuffer(b"graph, goal random, seed 0", np.uint8),
    }
    return {name: array for name, array in (found | changes).items() if array is not None}


def write_plan_file(directory: Path, **changes: np.ndarray | None) -> Path:
    file = directory / "plan.safetensors"
    save_file(arrays(**changes), file)
    return file
