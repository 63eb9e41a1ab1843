"""Statistics for a handful of seeds: mean, interquartile mean, and intervals around them.

Returns of sparse tasks are bimodal (found or not), so the solve rate stands beside the mean.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

BOOTSTRAP_REPLICATES = 10_000
Z_95 = 1.959963984540054  # the standard normal leaves 2.5 % above this


class Interval(NamedTuple):
    """The two ends of a 95 % interval."""

    low: float
    high: float


class Band(NamedTuple):
    """One 95 % interval per point of a curve, each [time]."""

    low: Array
    high: Array


def interquartile_mean(values: Array) -> float:
    """Mean of the middle half of `values` [n]: the floor(n/4) lowest and highest are left out.

    >>> interquartile_mean(np.array([0.0, 200.0, 220.0, 240.0, 1000.0]))
    220.0
    """
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())


def bootstrap_band(curves: Array, seed: int = 0) -> Band:
    """Percentile bootstrap of the mean over the first axis of `curves` [runs, time].

    Whole runs are drawn, not points: the points of one run depend on one another.
    """
    runs = len(curves)
    draws = np.random.default_rng(seed).multinomial(
        runs, np.full(runs, 1 / runs), size=BOOTSTRAP_REPLICATES
    )
    means = (draws / runs) @ curves  # [replicates, time]
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return Band(low, high)


def bootstrap_interval(values: Array, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean of `values` [n]."""
    low, high = bootstrap_band(values[:, None], seed)
    return Interval(float(low[0]), float(high[0]))


def wilson_interval(successes: int, trials: int) -> Interval:
    """Wilson's score interval of a rate; unlike mean ± error it is sound at 0 and at 1."""
    rate, z2 = successes / trials, Z_95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    half = Z_95 / (1 + z2 / trials) * spread
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def on_common_steps(steps: list[Array], values: list[Array]) -> tuple[Array, Array]:
    """Curves of several runs on one grid of steps: steps [time], values [runs, time].

    The grid holds every step count that some run reported and all runs reached; between its own
    points a run is interpolated linearly. Points that are NaN (no episode ended) are left out.
    """
    known = [(s[~np.isnan(v)], v[~np.isnan(v)]) for s, v in zip(steps, values, strict=True)]
    if any(s.size == 0 for s, _ in known):
        raise ValueError("a run has no finished episode, so there is no curve to draw")
    first, last = max(s[0] for s, _ in known), min(s[-1] for s, _ in known)
    grid = np.unique(np.concatenate([s for s, _ in known]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.stack([np.interp(grid, s, v) for s, v in known])
