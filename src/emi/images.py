"""Which observations are images, and how they are laid out: channels, frames, intensities."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from emi.errors import UserError

# The shortest side that the convolutions of every method can read. Smaller images, such as
# MiniGrid's 7×7×3, are vectors.
SMALLEST_IMAGE = 36


class Layout(NamedTuple):
    """The axes of an image: [H, W], [C, H, W], [H, W, C], or frames of one of the last two."""

    channel_axis: int | None  # −3 or −1; None if there is no such axis
    stacked: bool  # whether the first of four axes is that of the frames
    channels: int  # of all frames together
    height: int
    width: int
    highest: float  # intensities are from 0 to this number
    dtype: Any

    def kept(self, frames: int) -> int | None:
        """How many entries of the first axis hold the newest of `frames` frames.

        None if the first axis is needed as a whole.
        """
        if frames == 1 or not (self.stacked or self.channel_axis == -3):
            return None
        return 1 if self.stacked else self.channels // frames


def _layout(space: gymnasium.Space) -> Layout | None:
    if not isinstance(space, Box) or not 2 <= len(space.shape) <= 4:
        return None
    highest = 255.0
    if space.dtype != np.uint8:
        # Floats are intensities only if the space says so: from 0 to 1, or from 0 to 255.
        highest = float(space.high.flat[0])
        same = (space.low == 0).all() and (space.high == highest).all()
        if space.dtype.kind != "f" or not same or highest not in (1.0, 255.0):
            return None
    axis: int | None = None
    channels, frame = 1, space.shape
    if len(frame) > 2:
        *_, first, middle, last = frame
        axis = -3 if first <= last else -1
        channels, frame = (first, (middle, last)) if axis == -3 else (last, (first, middle))
    height, width = frame
    if min(height, width) < SMALLEST_IMAGE:
        return None
    stacked = len(space.shape) == 4
    total = channels * space.shape[0] if stacked else channels
    return Layout(axis, stacked, total, height, width, highest, space.dtype)


def is_image(space: gymnasium.Space) -> bool:
    """Whether observations are images: a `Box` of bytes, or of floats from 0 to 1 or 255.

    It has two axes, three of which the shorter of the first and the last is that of the channels,
    or four of which the first is that of frames. Height and width are at least SMALLEST_IMAGE.
    """
    return _layout(space) is not None


def images_of(space: gymnasium.Space) -> Layout:
    """The layout of a space of images; UserError if it is none."""
    layout = _layout(space)
    if layout is None:
        size = f"{SMALLEST_IMAGE}×{SMALLEST_IMAGE}"
        raise UserError(f"images of at least {size} are needed, got {space}")
    return layout


class FrameStack(Box):
    """A `Box` of images that are known to be stacks of `frames` frames, the newest last.

    Methods read the newest frame only: the older ones are observations that they have seen. Images
    of a plain `Box` are read whole, because their channels may be anything.
    """

    def __init__(self, box: Box, frames: int) -> None:
        super().__init__(box.low, box.high, box.shape, box.dtype.type)
        layout = images_of(box)
        count = box.shape[0] if layout.stacked else layout.channels
        if frames < 1 or count % frames or (layout.stacked and frames != count):
            raise UserError(f"images of {box.shape} cannot be stacks of {frames} frames")
        self.frames = frames


def stacked(space: gymnasium.Space, frames: int) -> FrameStack:
    """The space, declared to hold stacks of frames: `emi.EMI(emi.stacked(space, 4), actions)`."""
    if not isinstance(space, Box):
        raise UserError(f"stacks of frames are images in a Box, got {space}")
    return FrameStack(space, frames)
