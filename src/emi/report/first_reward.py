"""How soon does a run see its first reward? Runs that never did stay in the count.

A run that ended without a reward says that its first reward lies later than its end (it is
censored). Leaving it out would flatter the method that fails most; Kaplan and Meier's estimate
(1958) uses it for as long as it lasted.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from emi.report.statistics import Array


class FirstReward(NamedTuple):
    """Steps until a run was first rewarded; where it never was, the steps it reached."""

    steps: float
    seen: bool


class RewardCurve(NamedTuple):
    """Share of runs that have seen a reward by each of `steps`, both [time]; a step function."""

    steps: Array
    share: Array


def first_reward(run_steps: Array, returns: Array) -> FirstReward:
    """The first iteration whose return is above 0; both [iterations], `returns` best `return_max`.

    A run reports once per iteration, so `steps` is exact to one iteration. An iteration in which no
    episode ended (NaN) has seen no reward.
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


def share_with_reward(first: Sequence[FirstReward]) -> RewardCurve:
    """Kaplan and Meier's estimate of the share of runs that have seen a reward.

    The curve starts at step 0 and has a point wherever a run saw its first reward or ended; between
    points it stays level (`where="post"` when drawn).
    """
    steps, without = _share_without(first)
    return RewardCurve(np.array(steps), np.array([float(1 - share) for share in without]))


def median_first_reward(first: Sequence[FirstReward]) -> float:
    """Steps by which half of the runs have seen a reward; inf where fewer than half have."""
    steps, without = _share_without(first)
    half = (step for step, share in zip(steps, without, strict=True) if share <= Fraction(1, 2))
    return next(half, float("inf"))


def _share_without(first: Sequence[FirstReward]) -> tuple[list[float], list[Fraction]]:
    """Steps and the share still without a reward; as fractions, so that a half is a half."""
    if not first:
        raise ValueError("a share of runs needs at least one run")
    steps = sorted({0.0, *(run.steps for run in first)})
    shares, share = [], Fraction(1)
    for step in steps:
        # A run that ended at this very step was still there to be rewarded at it.
        at_risk = sum(run.steps >= step for run in first)
        rewarded = sum(run.seen and run.steps == step for run in first)
        share *= 1 - Fraction(rewarded, at_risk)
        shares.append(share)
    return steps, shares
