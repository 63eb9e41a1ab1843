"""How many steps does a method need to meet its first reward?

A run that ended without a reward only tells that its first reward lies beyond its end: it is
censored. Leaving such runs out would favour the method that fails most often; the estimator of
Kaplan and Meier (1958) uses each run for as long as it lasted.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from emi.report.statistics import Array


class FirstReward(NamedTuple):
    """Steps until a run met its first reward, or its length if it met none."""

    steps: float
    seen: bool


def first_reward(run_steps: Array, returns: Array) -> FirstReward:
    """The first iteration with a return above 0; both [iterations], `returns` is `return_max`.

    A run reports once per iteration, so `steps` is exact to one iteration. An iteration in which no
    episode ended (NaN) has no reward.
    """
    if len(run_steps) == 0 or len(run_steps) != len(returns):
        raise ValueError(
            f"a run needs as many returns as step counts and at least one, "
            f"got {len(returns)} and {len(run_steps)}"
        )
    rewarded = np.flatnonzero(returns > 0)
    if len(rewarded) == 0:
        return FirstReward(float(run_steps[-1]), seen=False)
    return FirstReward(float(run_steps[rewarded[0]]), seen=True)


def share_with_reward(first: Sequence[FirstReward]) -> tuple[Array, Array]:
    """Kaplan-Meier estimate: steps [time] and the share of runs that have met a reward by then.

    The curve starts at step 0 and has a point wherever a run met its first reward or ended. It is
    constant between points (draw it with `where="post"`).
    """
    steps, without = _share_without(first)
    return np.array(steps), np.array([float(1 - share) for share in without])


def median_first_reward(first: Sequence[FirstReward]) -> float:
    """Steps by which half of the runs have met a reward; inf if fewer than half have."""
    steps, without = _share_without(first)
    half = (step for step, share in zip(steps, without, strict=True) if share <= Fraction(1, 2))
    return next(half, float("inf"))


def _share_without(first: Sequence[FirstReward]) -> tuple[list[float], list[Fraction]]:
    """Steps and the share of runs still without a reward; fractions make one half exact."""
    if not first:
        raise ValueError("a share of runs needs at least one run")
    steps = sorted({0.0, *(run.steps for run in first)})
    shares, share = [], Fraction(1)
    for step in steps:
        # A run that ended at this very step was still at risk at it.
        at_risk = sum(run.steps >= step for run in first)
        rewarded = sum(run.seen and run.steps == step for run in first)
        share *= 1 - Fraction(rewarded, at_risk)
        shares.append(share)
    return steps, shares
