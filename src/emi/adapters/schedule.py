"""η, the coefficient of the bonus: a number, or a function of the environment steps so far."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from emi.errors import UserError

Eta = float | Callable[[int], float]


def eta_at(eta: Eta, steps: int, total: int | None = None) -> float:
    """η after `steps` environment steps; UserError if it is negative or not finite.

    `total` is the length of the training in environment steps, where it is known.
    """
    if isinstance(eta, Decay) and total is not None:
        eta = eta.within(total)
    value = float(eta(steps) if callable(eta) else eta)
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"eta must be finite and zero or more, got {value} after {steps} steps")
    return value


@dataclass(frozen=True)
class Decay:
    """The recommended η: it falls linearly from `start` to 0 over `steps` environment steps.

    The bonus leads the policy to rewards. Afterwards the policy is trained on these rewards alone:
    a bonus that does not vanish can keep the policy away from them. Without `steps`, an adapter
    that knows the length of the training decays over its first half. Other adapters raise an error
    that asks for `steps`.

    >>> eta = Decay(2.0, steps=100)
    >>> eta(0), eta(50), eta(100), eta(1_000)
    (2.0, 1.0, 0.0, 0.0)
    """

    start: float = 1.0
    """η at the first step"""
    steps: int | None = None
    """environment steps until η is 0; None for half of the training"""

    def __post_init__(self) -> None:
        eta_at(self.start, 0)
        _require_steps(self.steps)

    def __call__(self, taken: int) -> float:
        if self.steps is None:
            raise UserError(
                "the length of the training is not known here: use "
                f"Decay({self.start:g}, steps=…), for example with half of its environment steps"
            )
        return self.start * max(0.0, 1 - taken / self.steps)

    def within(self, total: int) -> Decay:
        """This decay in a training of `total` steps: over the first half, unless `steps` is set."""
        if self.steps is not None:
            return self
        return dataclasses.replace(self, steps=max(1, math.ceil(total / 2)))


def linear_schedule(start: float, end: float, steps: int) -> Callable[[int], float]:
    """Linear from `start` to `end` over `steps` environment steps, and `end` afterwards.

    >>> schedule = linear_schedule(1.0, 0.5, steps=100)
    >>> schedule(0), schedule(50), schedule(1_000)
    (1.0, 0.75, 0.5)
    """
    _require_steps(steps)
    for value, at in ((start, 0), (end, steps)):
        eta_at(value, at)

    def schedule(taken: int) -> float:
        return end if taken >= steps else start + (end - start) * taken / steps

    return schedule


def _require_steps(steps: int | None) -> None:
    if steps is not None and steps < 1:
        raise UserError(f"steps must be 1 or more, got {steps}")
