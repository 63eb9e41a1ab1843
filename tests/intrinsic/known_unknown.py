"""Transitions of a point in the plane: one part of the plane is visited, the other is not."""

from __future__ import annotations

from typing import Literal

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from emi.batch import Transitions
from emi.images import FrameStack

SIDE = 36  # the smallest image that all methods accept
VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = FrameStack(Box(0, 255, (2, SIDE, SIDE), np.uint8), 2)
CONTINUOUS = Box(-1, 1, (2,))
DISCRETE = Discrete(4)
GROUPED = MultiDiscrete([3, 3], start=[-1, -1])
BINARY = MultiBinary((2, 2))
SPACES = {
    "vector-continuous": (VECTOR, CONTINUOUS),
    "vector-discrete": (VECTOR, DISCRETE),
    "vector-grouped": (VECTOR, GROUPED),
    "vector-binary": (VECTOR, BINARY),
    "image-continuous": (IMAGE, CONTINUOUS),
    "image-discrete": (IMAGE, DISCRETE),
}
Kind = Literal["known", "unknown", "leaving"]
_MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])


def transitions(
    obs_space: Space, action_space: Space, n: int, seed: int, kind: Kind = "known"
) -> Transitions:
    """Transitions of a point that actions push: the known part is on the right.

    In the unknown part, on the left, actions have the opposite effect and the point is driven
    outwards. `leaving` transitions go from the known part to the unknown one.
    """
    rng = np.random.default_rng(seed)
    match action_space:
        case Discrete():
            action = rng.integers(0, 4, n)
            push = 0.3 * _MOVES[action]
        case MultiDiscrete():
            action = rng.integers(-1, 2, (n, 2))
            push = 0.3 * action
        case MultiBinary():
            action = rng.integers(0, 2, (n, 2, 2), np.int8)
            push = 0.3 * (action[:, :, 0] - action[:, :, 1])
        case _:
            action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
            push = 0.3 * action
    known, unknown = rng.normal(0, 0.15, (2, n, 2)) + np.array([[[0.5, 0.2]], [[-0.6, -0.5]]])
    place, after = {
        "known": (known, known + push),
        "unknown": (unknown, 1.6 * unknown - push),
        "leaving": (known, unknown),
    }[kind]
    return Transitions(_observe(place, obs_space, rng), action, _observe(after, obs_space, rng))


def _observe(place: np.ndarray, space: Space, rng: np.random.Generator) -> np.ndarray:
    if space == VECTOR:
        noise = rng.normal(0, 0.02, (len(place), 2))
        return np.concatenate([place, noise], 1).astype(np.float32)
    centre = (SIDE / 2 + 10 * np.clip(place, -1.3, 1.3)).astype(int)  # of a square
    row, column = (np.abs(np.arange(SIDE) - centre[:, [axis]]) <= 4 for axis in (0, 1))
    frame = (200 * (row[:, :, None] & column[:, None, :]) + 20).astype(np.uint8)
    return np.repeat(frame[:, None], 2, axis=1)


def auc(bonus: np.ndarray, unknown: np.ndarray) -> float:
    """Share of (unknown, known) pairs whose unknown one has the larger bonus; ties count half."""
    high, low = bonus[unknown][:, None], bonus[~unknown][None]
    return float(np.mean((high > low) + 0.5 * (high == low)))
