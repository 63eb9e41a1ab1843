"""A plan as `emi plan` stores it, checked: the file can come from anyone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emi.report.sample_file import MOST_DIMENSIONS
from emi.report.tensors_file import LARGEST, Array, read_tensors

PLAN = "plan.safetensors"  # in the directory of the run
PLAN_BYTES = 64_000_000
MOST_ROWS = 100_000  # states, or steps of a path
MOST_TITLE = 400  # bytes

_SHOWN = {"visited": 2, "plan": 2, "phi": 2, "distance": 1}  # the axes of each array


@dataclass(frozen=True)
class Plan:
    """A plan in φ-space, the path that the agent took, and its distance from the goal."""

    title: str
    visited: Array  # [n, d], φ of some visited states
    plan: Array  # [points, d], from the start to the goal
    phi: Array  # [steps + 1, d], the path
    distance: Array  # [steps + 1], in steps of the linear model

    def plane(self) -> tuple[Array, Array, Array]:
        """Visited states, plan and path as points [n, 2]: the principal plane of what was visited.

        φ itself if it has two dimensions; a second coordinate of 0 if it has one.
        """
        d = self.visited.shape[1]
        centre, axes = np.zeros(d), np.eye(2, d)
        if d > 2:
            centre = self.visited.mean(0)
            axes = np.linalg.svd(self.visited - centre, full_matrices=False)[2][:2]

        def points(phi: Array) -> Array:
            return (phi - centre) @ axes.T

        return points(self.visited), points(self.plan), points(self.phi)


def read_plan_file(file: Path) -> Plan:
    """The plan in a file; UserError if it cannot be shown."""
    return read_tensors(file, PLAN_BYTES, _plan, "run emi plan again")


def _plan(tensors: dict[str, Array]) -> Plan:
    arrays = {name: _checked(name, tensors.get(name), axes) for name, axes in _SHOWN.items()}
    if len({arrays[name].shape[1] for name in ("visited", "plan", "phi")}) > 1:
        raise ValueError("visited, plan and phi have different dimensions")
    if len(arrays["phi"]) != len(arrays["distance"]):
        raise ValueError("phi and distance have different lengths")
    title = tensors["title"]
    if title.dtype != np.uint8 or title.ndim != 1:
        raise ValueError("title is no text")
    text = bytes(title[:MOST_TITLE]).decode()
    # A dollar would begin a formula in a figure.
    if not text.isprintable() or "$" in text:
        raise ValueError("title is not a line of text")
    return Plan(text, **arrays)


def _checked(name: str, array: Array | None, axes: int) -> Array:
    if array is None:
        raise ValueError(f"{name} is missing")
    if array.dtype.kind != "f" or array.ndim != axes or not 1 <= len(array) <= MOST_ROWS:
        raise ValueError(f"{name} is {array.dtype} {array.shape}")
    if axes == 2 and not 1 <= array.shape[1] <= MOST_DIMENSIONS:
        raise ValueError(f"{name} has {array.shape[1]:,} columns")
    if not (np.abs(array) <= LARGEST).all():  # NaN is refused as well
        raise ValueError(f"{name} is not finite")
    return array.astype(np.float64)
