"""Statistics for a handful of seeds: mean, interquartile mean, and intervals around them.

Returns of sparse tasks are bimodal (reward found or not), so tables also show the solve rate.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

BOOTSTRAP_REPLICATES = 10_000
BAND_POINTS = 500  # of a curve that are resampled at once
TAILS_95 = (2.5, 97.5)  # percentiles that leave 95 % between them
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
    """Mean of the middle half of `values` [n], without the floor(n/4) lowest and highest.

    >>> interquartile_mean(np.array([0.0, 200.0, 220.0, 240.0, 1000.0]))
    220.0
    """
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())


def bootstrap_band(curves: Array, seed: int = 0, *, replicates: int = BOOTSTRAP_REPLICATES) -> Band:
    """Percentile bootstrap of the mean over the first axis of `curves` [runs, time].

    Whole runs are resampled, not points: the points of one run are correlated.
    """
    runs = len(curves)
    draws = np.random.default_rng(seed).multinomial(runs, np.full(runs, 1 / runs), size=replicates)
    shares = draws / runs
    # A few points at a time: [replicates, time] would take 300 MB for 4,000 points.
    parts = [
        np.percentile(shares @ curves[:, start : start + BAND_POINTS], TAILS_95, axis=0)
        for start in range(0, curves.shape[1], BAND_POINTS)
    ]
    low, high = np.concatenate(parts, axis=1) if parts else np.empty((2, 0))
    return Band(low, high)


def bootstrap_interval(values: Array, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean of `values` [n]."""
    low, high = bootstrap_band(values[:, None], seed)
    return Interval(float(low[0]), float(high[0]))


def stratified_bootstrap(
    strata: Sequence[Array],
    statistic: Callable[[Array], float],
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of a statistic of runs on several tasks, one stratum [n_task] each.

    Runs are resampled within their task, so every replicate has as many runs of each task as the
    data. `statistic` is given the runs of all tasks together, [sum of n_task]. Scores must be
    normalised beforehand, to be comparable across tasks. Equal runs give an interval of width 0.

    >>> stratified_bootstrap([np.array([1.0, 1.0]), np.array([3.0])], interquartile_mean)
    Interval(low=1.6666666666666667, high=1.6666666666666667)
    """
    if not strata or any(len(values) == 0 for values in strata):
        raise ValueError("a bootstrap needs at least one run of every task: leave empty tasks out")
    for values in strata:
        require_finite(values)
    rng = np.random.default_rng(seed)
    drawn = np.concatenate(
        [values[rng.integers(len(values), size=(replicates, len(values)))] for values in strata],
        axis=1,
    )  # [replicates, runs]
    low, high = np.percentile([statistic(runs) for runs in drawn], TAILS_95)
    return Interval(float(low), float(high))


def performance_profile(values: Array, thresholds: Array) -> Array:
    """Share of the runs `values` [n] that end above each of `thresholds` [k]: [k].

    >>> performance_profile(np.array([0.0, 1.0, 3.0, 4.0]), np.array([0.0, 2.0])).tolist()
    [0.75, 0.5]
    """
    share: Array = _above(values, thresholds).mean(axis=0)
    return share


def performance_profile_band(values: Array, thresholds: Array, seed: int = 0) -> Band:
    """95 % bootstrap band of the performance profile at each of `thresholds` [k]."""
    return bootstrap_band(_above(values, thresholds), seed)


def _above(values: Array, thresholds: Array) -> Array:
    """1 where a run is above a threshold, else 0: [runs, k]."""
    if len(values) == 0:
        raise ValueError("a performance profile needs at least one run")
    require_finite(values)
    return (values[:, None] > thresholds).astype(np.float64)


def require_finite(values: Array) -> None:
    """Raise ValueError for NaN and infinite returns: sorted silently, NaN would rank last."""
    if not np.isfinite(values).all():
        raise ValueError(
            "a run's return is not a finite number: leave out runs without a finished episode"
        )


def wilson_interval(successes: int, trials: int) -> Interval:
    """Wilson's score interval of a rate, which is also valid at rates of 0 and 1."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(
            f"a rate needs at least one trial and as many successes or fewer, "
            f"got {successes} of {trials}"
        )
    rate, z2 = successes / trials, Z_95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    half = Z_95 / (1 + z2 / trials) * spread
    # Rounding could exclude the rate itself from the interval.
    return Interval(max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half)))


def on_common_steps(steps: list[Array], values: list[Array]) -> tuple[Array, Array]:
    """Curves of several runs on one grid of steps: steps [time], values [runs, time].

    The grid holds every step count that some run reported and all runs reached. Runs are
    interpolated linearly between their own points; NaN points (no episode ended) are left out.
    """
    known = [(s[~np.isnan(v)], v[~np.isnan(v)]) for s, v in zip(steps, values, strict=True)]
    if any(s.size == 0 for s, _ in known):
        raise ValueError("a run has no finished episode, so there is no curve to draw")
    first, last = max(s[0] for s, _ in known), min(s[-1] for s, _ in known)
    grid = np.unique(np.concatenate([s for s, _ in known]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.stack([np.interp(grid, s, v) for s, v in known])


def thin(values: Array, width: int) -> Array:
    """[..., time] to [..., ⌈time / width⌉]: means of `width` neighbours, ignoring NaN.

    >>> thin(np.array([1.0, 3.0, np.nan, 4.0, 5.0]), 2).tolist()
    [2.0, 4.0, 5.0]
    """
    if width == 1:
        return values
    padding = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % width)]
    padded = np.pad(values, padding, constant_values=np.nan)
    parts = padded.reshape(*values.shape[:-1], -1, width)
    known = ~np.isnan(parts)
    total, count = np.where(known, parts, 0).sum(-1), known.sum(-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
