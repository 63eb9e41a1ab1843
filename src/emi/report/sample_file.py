"""The embedding sample of a run as its file holds it, checked: the file can come from anyone."""

from pathlib import Path

import numpy as np

from emi.report.tensors_file import LARGEST, Array, read_tensors

SAMPLE_BYTES = 256_000_000
MOST_ROWS = 100_000
MOST_DIMENSIONS = 256  # of an embedding
MOST_NUMBERS = 10_000  # of an observation
MOST_PIXELS = 4_096  # per side of a frame

Sample = dict[str, Array]  # named as in the file, one row per transition

# The kinds of dtype and the number of axes of every tensor that is shown.
_SHOWN = {
    "phi": ("f", 2),
    "error": ("f", 2),
    "bonus": ("f", 1),
    "reward": ("f", 1),
    "clock": ("iu", 1),
    "env": ("iu", 1),
    "ended": ("b", 1),
}
_FRAMES = {"frame": ("u", 4), "frame_next": ("u", 4)}


def read_sample_file(file: Path) -> Sample:
    """The tensors of a sample that figures and the page show; UserError if they cannot."""
    return read_tensors(file, SAMPLE_BYTES, _sample, "train the run again")


def _sample(tensors: dict[str, Array]) -> Sample:
    images = not tensors.keys().isdisjoint(_FRAMES)
    wanted = _SHOWN | _FRAMES if images else _SHOWN
    sample = {name: tensors[name] for name in wanted if name in tensors}
    rows = sample["phi"].shape[:1] if "phi" in sample else ()
    for name, (kinds, axes) in wanted.items():
        _check(name, sample.get(name), kinds, axes, rows)
    if images:
        _check_frames(sample["frame"], sample["frame_next"])
    if tensors.get("obs", sample["phi"][0]).ndim == 2:  # vectors, which one figure shows
        _check("obs", tensors["obs"], "f", 2, rows, MOST_NUMBERS)
        sample["obs"] = tensors["obs"]
    return sample


def _check(
    name: str,
    array: Array | None,
    kinds: str,
    axes: int,
    rows: tuple[int, ...],
    columns: int = MOST_DIMENSIONS,
) -> None:
    if array is None:
        raise ValueError(f"{name} is missing")
    if array.dtype.kind not in kinds or array.ndim != axes:
        raise ValueError(f"{name} is {array.dtype} with {array.ndim} axes")
    if array.shape[:1] != rows or not 1 <= len(array) <= MOST_ROWS:
        raise ValueError(f"{name} has {len(array):,} rows")
    if axes == 2 and not 1 <= array.shape[1] <= columns:
        raise ValueError(f"{name} has {array.shape[1]:,} columns")
    if array.dtype.kind == "f" and not (np.abs(array) <= LARGEST).all():  # NaN is refused as well
        raise ValueError(f"{name} is not finite")
    if array.dtype.kind in "iu" and axes == 1 and (array.min() < 0 or array.max() >= 2**31):
        raise ValueError(f"{name} is negative or too large")


def _check_frames(frame: Array, frame_next: Array) -> None:
    _, channels, height, width = frame.shape
    if frame.shape != frame_next.shape or frame.dtype != np.uint8 or frame_next.dtype != np.uint8:
        raise ValueError("frame and frame_next must be bytes of the same shape")
    if channels not in (1, 3) or not 1 <= min(height, width) <= max(height, width) <= MOST_PIXELS:
        raise ValueError(f"a frame is {channels} x {height} x {width}")
