"""Embedding samples for the page: points, values along episodes, peaks of the error, frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emi.report.embedding import choose_episode, path_rows, peaks, plane, read_sample
from emi.report.load import Run
from emi.report.page.encoding import encoded_frames, packed, quantised
from emi.report.page.limits import Limits
from emi.report.sample_file import Sample
from emi.report.tensors_file import Array


@dataclass(frozen=True)
class EncodedSample:
    """The sample of a run: values for JSON, and its frames in pieces that are decoded on demand."""

    values: dict[str, Any]
    frames: list[str]


def encode_samples(runs: Sequence[Run], limits: Limits) -> tuple[list[EncodedSample], list[str]]:
    """The samples that the page holds, and a remark on those left out.

    Low seeds come first, so that no method fills the page alone.
    """
    have = [k for k, run in enumerate(runs) if run.embedding is not None]
    chosen: dict[int, EncodedSample] = {}
    states = 0
    for k in sorted(have, key=lambda k: (runs[k].seed, k)):
        sample = read_sample(runs[k])
        if not chosen or states + len(sample["phi"]) <= limits.states:
            chosen[k] = encode_sample(sample, k)
            states += len(sample["phi"])
    missing = len(have) - len(chosen)
    remark = (
        f"{missing} of {len(have)} embeddings are left out, since a page holds {limits.states:,} "
        "states: make a separate page of those runs to see them."
    )
    return [chosen[k] for k in sorted(chosen)], [remark] if missing else []


def encode_sample(sample: Sample, number: int) -> EncodedSample:
    """The sample of run `number`; its rows are ordered by episode, then by time."""
    episodes = path_rows(sample)
    order = np.concatenate([episode.rows for episode in episodes])
    points, axes = plane(sample["phi"], sample["clock"])
    sizes = [len(episode.rows) for episode in episodes]
    starts = np.cumsum([0, *sizes])
    chosen = choose_episode(episodes)
    norm = np.linalg.norm(sample["error"][order], axis=1)
    to_come = returns_to_come(sample["reward"][order], sizes)
    values: dict[str, Any] = {
        "run": number,
        "count": len(order),
        "axes": axes,
        "dimensions": sample["phi"].shape[1],
        "x": quantised(points[order, 0]),
        "y": quantised(points[order, 1]),
        "step": packed(sample["clock"][order].astype(np.uint32)),
        "bonus": packed(sample["bonus"][order].astype(np.float32)),
        "return": packed(to_come.astype(np.float32)),
        "error": packed(norm.astype(np.float32)),
        "episodes": [
            {
                "start": int(start),
                "size": size,
                "whole": episode.whole,
                "env": int(sample["env"][episode.rows[0]]),
                "return": float(to_come[start]),
                "peaks": _peaks(norm[start : start + size]),
            }
            for start, size, episode in zip(starts, sizes, episodes, strict=False)
        ],
        "first": next(k for k, one in enumerate(episodes) if one is chosen),
    }
    if "frame" not in sample:
        return EncodedSample(values, [])
    described, pieces = encoded_frames(sample["frame"][order], sample["frame_next"][order])
    return EncodedSample(values | {"frames": described}, pieces)


def returns_to_come(reward: Array, sizes: Sequence[int]) -> Array:
    """[n] rewards of consecutive episodes, to the sum from each state to the end of its episode.

    >>> returns_to_come(np.array([1.0, 2.0, 4.0, 8.0]), [3, 1]).tolist()
    [7.0, 6.0, 4.0, 8.0]
    """
    parts = np.split(reward, np.cumsum(sizes)[:-1])
    return np.concatenate([part[::-1].cumsum()[::-1] for part in parts])


def _peaks(norm: Array) -> list[int]:
    """The steps of an episode with the highest ‖S‖, the highest first."""
    places = peaks(norm)
    return [int(place) for place in places[np.argsort(-norm[places], kind="stable")]]
