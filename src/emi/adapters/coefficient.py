"""What the bonus is multiplied by: a number, or a function of the environment steps so far."""

from __future__ import annotations

import math
from collections.abc import Callable

Coefficient = float | Callable[[int], float]


def value_of(coefficient: Coefficient, steps: int) -> float:
    """The coefficient after `steps` environment steps; ValueError if it is no coefficient."""
    value = float(coefficient(steps) if callable(coefficient) else coefficient)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(
            f"the coefficient must be finite and zero or more, got {value} after {steps} steps"
        )
    return value


def linear(start: float, end: float, steps: int) -> Callable[[int], float]:
    """From `start` to `end` in a straight line over `steps` environment steps, and `end` after.

    >>> schedule = linear(1.0, 0.5, steps=100)
    >>> schedule(0), schedule(50), schedule(1_000)
    (1.0, 0.75, 0.5)
    """
    if steps < 1:
        raise ValueError(f"steps must be 1 or more, got {steps}")
    for value, at in ((start, 0), (end, steps)):
        value_of(value, at)

    def schedule(taken: int) -> float:
        return end if taken >= steps else start + (end - start) * taken / steps

    return schedule
