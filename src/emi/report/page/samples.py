"""The embedding samples of a page: points, values along episodes, peaks of the error, frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emi.report.embedding import (
    PEAK_COLOURS,
    PEAKS_APART,
    SAMPLE,
    Array,
    Sample,
    choose_episode,
    path_rows,
    peaks,
    plane,
    read_sample,
)
from emi.report.load import stored
from emi.report.page.data import Found
from emi.report.page.encoding import (
    FRAMES_PER_PIECE,
    distinct_frames,
    frame_pieces,
    packed,
    quantised,
)

MOST_STATES = 40_000  # of all samples of a page together: about 20 MB with frames


@dataclass(frozen=True)
class EncodedSample:
    """One run's sample: values for JSON, and its frames in pieces that are decoded when needed."""

    values: dict[str, Any]
    frames: list[str]


def choose_samples(found: Sequence[Found]) -> tuple[list[int], list[str]]:
    """Which runs' samples the page holds, by their number, and a remark about those left out.

    Low seeds come first, so that every method has its turn before one fills the page.
    """
    have = [k for k, one in enumerate(found) if stored(one.directory / SAMPLE)]
    chosen: list[int] = []
    states = 0
    for k in sorted(have, key=lambda k: (found[k].run.seed, k)):
        size = len(read_sample(found[k].directory)[1]["phi"])
        if not chosen or states + size <= MOST_STATES:
            chosen.append(k)
            states += size
    if len(chosen) == len(have):
        return sorted(chosen), []
    return sorted(chosen), [
        f"{len(have) - len(chosen)} of {len(have)} embeddings are left out, since a page holds "
        f"{MOST_STATES:,} states: make a page of those runs alone to see them."
    ]


def encode_sample(one: Found, number: int) -> EncodedSample:
    """The sample of run `number`, its rows in the order of episodes, each in the order of time."""
    _, sample = read_sample(one.directory)
    episodes = path_rows(sample)
    order = np.concatenate([episode.rows for episode in episodes])
    points, axes = plane(sample["phi"], sample["clock"])
    sizes = [len(episode.rows) for episode in episodes]
    starts = np.cumsum([0, *sizes])
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
        "first": next(k for k, one in enumerate(episodes) if one is choose_episode(episodes)),
    }
    if "frame" not in sample:
        return EncodedSample(values, [])
    return _with_frames(values, sample, order)


def returns_to_come(reward: Array, sizes: Sequence[int]) -> Array:
    """[n] rewards of episodes in a row, to the sum from each state to its episode's end.

    >>> returns_to_come(np.array([1.0, 2.0, 4.0, 8.0]), [3, 1]).tolist()
    [7.0, 6.0, 4.0, 8.0]
    """
    parts = np.split(reward, np.cumsum(sizes)[:-1])
    return np.concatenate([part[::-1].cumsum()[::-1] for part in parts])


def _peaks(norm: Array) -> list[int]:
    """The steps of an episode with the highest ‖S‖, the highest first."""
    places = peaks(norm, len(PEAK_COLOURS), apart=max(2, len(norm) // PEAKS_APART))
    return [int(place) for place in places[np.argsort(-norm[places], kind="stable")]]


def _with_frames(values: dict[str, Any], sample: Sample, order: Array) -> EncodedSample:
    pool, here, after = distinct_frames(sample["frame"][order], sample["frame_next"][order])
    values["frames"] = {
        "count": len(pool),
        "channels": pool.shape[1],
        "height": pool.shape[2],
        "width": pool.shape[3],
        "perPiece": FRAMES_PER_PIECE,
        "here": packed(here),
        "next": packed(after),
    }
    return EncodedSample(values, frame_pieces(pool))
