"""Arrays as compact text, which the script of the page decodes (`assets/data.js`)."""

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEVELS = 65_534  # of a quantised number; the code above stands for "no value"
WIDE = 1_000  # quotient of two values on one curve
FRAMES_PER_PIECE = 64  # decoded together: enough to compress well, few enough to decode at once


def packed(values: Array) -> str:
    """Base64 of the array's little-endian bytes."""
    little = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(little.tobytes()).decode()


def deflated(content: bytes) -> str:
    """Base64 of the deflated bytes."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def quantised(values: Array) -> dict[str, Any]:
    """[n] as described by `coded`, with its codes as text."""
    description, codes = coded(values)
    return {**description, "codes": packed(codes)}


def coded(values: Array) -> tuple[dict[str, Any], Array]:
    """[n] as 16-bit codes between its minimum and maximum; NaN and infinity become "no value".

    The codes are evenly spaced, so the error is at most 1/131,068 of the range. Positive values
    that span more than `WIDE` are evenly spaced in their logarithm, so that small ones stay exact
    on a logarithmic axis: the relative error is at most log(maximum / minimum) / 131,068.
    """
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    wide = low > 0 and high > WIDE * low
    known, start, end = values[finite], low, high
    if wide:
        known, start, end = np.log(known), np.log(low), np.log(high)
    codes = np.full(len(values), LEVELS + 1, np.uint16)
    codes[finite] = np.rint((known - start) * (LEVELS / (end - start) if end > start else 0.0))
    description: dict[str, Any] = {"low": float(low), "high": float(high)}
    return description | ({"log": True} if wide else {}), codes


def evenly(steps: Array) -> dict[str, Any]:
    """[n] step counts: first value, distance and number if they are evenly spaced."""
    if len(steps) > 1 and np.allclose(np.diff(steps), steps[1] - steps[0], rtol=1e-9):
        return {"first": float(steps[0]), "by": float(steps[1] - steps[0]), "count": len(steps)}
    return {"values": packed(steps.astype(np.float64))}


def encoded_frames(frame: Array, frame_next: Array) -> tuple[dict[str, Any], list[str]]:
    """Frames of s and s', both [n, C, H, W]: how they are stored, and the pieces that hold them."""
    pool, here, after = distinct_frames(frame, frame_next)
    sizes = dict(zip(("channels", "height", "width"), pool.shape[1:], strict=True))
    indices = {"here": packed(here), "next": packed(after)}
    return {**sizes, "perPiece": FRAMES_PER_PIECE, **indices}, frame_pieces(pool)


def frame_pieces(frames: Array) -> list[str]:
    """[n, C, H, W] uint8 to pieces of frames, each [≤ 64, H, W, C] deflated, in base64.

    Consecutive frames are similar; the window of deflate holds about a dozen small frames.
    """
    pixels = np.ascontiguousarray(frames.transpose(0, 2, 3, 1))
    return [
        deflated(pixels[start : start + FRAMES_PER_PIECE].tobytes())
        for start in range(0, len(pixels), FRAMES_PER_PIECE)
    ]


def distinct_frames(frame: Array, frame_next: Array) -> tuple[Array, Array, Array]:
    """Frames of s and s', both [n, C, H, W], as a pool [m, C, H, W] and two indices into it, [n].

    Within an episode s' is the s of the next row, so the pool is about half as large.
    """
    places: dict[bytes, int] = {}
    pool: list[Array] = []
    found = np.empty((2, len(frame)), np.uint32)
    for row in range(len(frame)):
        for which, source in enumerate((frame, frame_next)):
            picture = source[row]
            place = places.setdefault(picture.tobytes(), len(pool))
            if place == len(pool):
                pool.append(picture)
            found[which, row] = place
    return np.stack(pool), found[0], found[1]
