"""η, the coefficient of the bonus: a number, or a function of the environment steps so far."""

from __future__ import annotations

import math
from collections.abc import Callable

from emi.errors import UserError

Eta = float | Callable[[int], float]


def eta_at(eta: Eta, steps: int) -> float:
    """η after `steps` environment steps; UserError if it is negative or not finite."""
    value = float(eta(steps) if callable(eta) else eta)
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"eta must be finite and zero or more, got {value} after {steps} steps")
    return value


def linear_schedule(start: float, end: float, steps: int) -> Callable[[int], float]:
    """Linear from `start` to `end` over `steps` environment steps, and `end` afterwards.

    >>> schedule = linear_schedule(1.0, 0.5, steps=100)
    >>> schedule(0), schedule(50), schedule(1_000)
    (1.0, 0.75, 0.5)
    """
    if steps < 1:
        raise UserError(f"steps must be 1 or more, got {steps}")
    for value, at in ((start, 0), (end, steps)):
        eta_at(value, at)

    def schedule(taken: int) -> float:
        return end if taken >= steps else start + (end - start) * taken / steps

    return schedule
