"""Checks and properties of Gymnasium spaces and vector environments."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.errors import UserError


def require_box(space: gymnasium.Space) -> gymnasium.spaces.Box:
    """Return the observation space if the networks can read it; UserError otherwise."""
    if not isinstance(space, gymnasium.spaces.Box):
        raise UserError(f"observations must be a Box (vectors, or uint8 images), got {space}")
    return space


def require_vectors(space: gymnasium.Space, reader: str) -> gymnasium.spaces.Box:
    """Return the observation space if it holds vectors; UserError names `reader` otherwise."""
    if not isinstance(space, gymnasium.spaces.Box) or is_image(space):
        raise UserError(f"{reader} needs vectors: a Box that is not an image, got {space}")
    return space


def require_actions(
    space: gymnasium.Space,
) -> gymnasium.spaces.Box | gymnasium.spaces.Discrete:
    """Return the action space if it is supported; UserError otherwise."""
    if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        raise UserError(f"actions must be a Box or Discrete space, got {space}")
    return space


def is_image(space: gymnasium.Space) -> bool:
    """An image is a uint8 `Box` with two axes, or with three of which one is the channels'."""
    return (
        isinstance(space, gymnasium.spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
    )


class UnitRange(NamedTuple):
    """How a `Box` maps to [−1, 1]: value = centre + half · unit.

    Entries without bounds are not scaled, nor are entries whose bounds differ by more than the
    largest float32. An entry with a single possible value has half = 0. Each array is [*shape];
    `limit` is 1 for entries with bounds and infinite for the others.
    """

    centre: npt.NDArray[np.float32]
    half: npt.NDArray[np.float32]
    limit: npt.NDArray[np.float32]

    @classmethod
    def of(cls, space: gymnasium.spaces.Box) -> UnitRange:
        with np.errstate(over="ignore"):
            width = space.high.astype(np.float64) - space.low.astype(np.float64)
        bounded = width < np.finfo(np.float32).max
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        centre, half, limit = (high + low) / 2, (high - low) / 2, np.where(bounded, 1.0, np.inf)
        return cls(*(x.astype(np.float32) for x in (centre, half, limit)))


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """The autoreset mode that `envs` declares. There is no default: a wrong one is not noticed."""
    mode = envs.metadata.get("autoreset_mode")
    if mode is None:
        raise UserError(
            "the vector environment does not declare its autoreset mode: set "
            'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode'
        )
    return AutoresetMode(mode)
