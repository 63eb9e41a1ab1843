"""Statistical tests of two methods on one task, and the power of these tests.

Welch's t-test is what Colas et al. (2018) recommend for two methods with few seeds and unequal
variances. Holm's correction accounts for several comparisons. The power says how large a difference
must be to be detected with so few seeds. On sparse tasks all seeds of a method often have the same
return (0), so every function is also defined for groups without variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, ndtr, stdtr, stdtrit

from emi.report.statistics import (
    BOOTSTRAP_REPLICATES,
    TAILS_95,
    Array,
    Interval,
    require_finite,
)

ALPHA = 0.05
NODES, WEIGHTS = np.polynomial.legendre.leggauss(256)  # Gauss-Legendre quadrature on [-1, 1]


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of mean(a) − mean(b) for groups whose variances may differ."""

    difference: float
    interval: Interval  # 95 % interval of the difference
    t: float
    degrees: float  # degrees of freedom (Welch-Satterthwaite)
    p: float  # two-sided

    @property
    def p_greater(self) -> float:
        """One-sided p-value of mean(a) > mean(b)."""
        return self.p / 2 if self.t > 0 else 1 - self.p / 2


def welch(a: Array, b: Array) -> Welch:
    """Welch's test on the final returns of two methods, [seeds of a] and [seeds of b].

    If neither group has any variance the means count as known: equal means give t 0 and p 1,
    different ones t ±∞ and p 0, both with an interval of width 0 and the degrees of a pooled test.
    """
    error, degrees = _standard_error(a, b)
    difference = _mean(a) - _mean(b)
    if error == 0:
        t = 0.0 if difference == 0 else math.copysign(math.inf, difference)
        p = 1.0 if difference == 0 else 0.0
        return Welch(difference, Interval(difference, difference), t, degrees, p)
    t = difference / error
    half = error * float(stdtrit(degrees, 1 - ALPHA / 2))
    return Welch(
        difference=difference,
        interval=Interval(difference - half, difference + half),
        t=t,
        degrees=degrees,
        p=2 * float(stdtr(degrees, -abs(t))),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of one family of comparisons, adjusted after Holm (1979), in the order given.

    Claims with adjusted p < 5 % contain a false one with a probability of at most 5 %.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p-values lie between 0 and 1, got {list(p_values)}")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        # A larger p must not end up with a smaller adjusted value.
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def probability_of_improvement(a: Array, b: Array) -> float:
    """Probability that a run of a ends above a run of b; ties count half (Mann-Whitney U / nm).

    >>> probability_of_improvement(np.array([1.0, 3.0]), np.array([0.0, 1.0]))
    0.875
    """
    return float(_wins(a, b).mean())


def probability_of_improvement_interval(
    a: Array, b: Array, seed: int = 0, *, replicates: int = BOOTSTRAP_REPLICATES
) -> Interval:
    """Percentile bootstrap of `probability_of_improvement`; runs are resampled in each group.

    If every run of a is above every run of b the interval is [1, 1]: resampling cannot show what
    more seeds might.
    """
    _require_two_seeds(a, b)
    wins, rng = _wins(a, b), np.random.default_rng(seed)
    draws_a, draws_b = (
        rng.multinomial(n, np.full(n, 1 / n), size=replicates) for n in wins.shape
    )  # how often each run is drawn: [replicates, n]
    share = ((draws_a @ wins) * draws_b).sum(axis=1) / wins.size
    low, high = np.percentile(share, TAILS_95)
    return Interval(float(low), float(high))


def power(a: Array, b: Array, difference: float) -> float:
    """Probability that Welch's test at 5 % detects a true `difference`, for samples like a and b.

    Uses the noncentral t distribution with Welch's degrees of freedom, and the sample variances as
    the true ones. Without variance every difference is detected (1) except 0 (0).
    """
    error, degrees = _standard_error(a, b)
    if error == 0:
        return float(difference != 0)
    return _power(difference / error, degrees)


def detectable_difference(a: Array, b: Array, power: float = 0.8) -> float:
    """The true difference that Welch's test at 5 % detects with probability `power`.

    A smaller difference may exist; these seeds would often miss it. 0 without variance.
    """
    if not ALPHA < power < 1:
        raise ValueError(f"power lies between {ALPHA} and 1, got {power}")
    error, degrees = _standard_error(a, b)
    low, high = 0.0, 1.0
    while _power(high, degrees) < power:
        low, high = high, 2 * high
    for _ in range(50):  # bisection, down to float precision
        middle = (low + high) / 2
        low, high = (middle, high) if _power(middle, degrees) < power else (low, middle)
    return error * high


def _power(noncentrality: float, degrees: float) -> float:
    """Probability that a noncentral t lies outside the central 95 % interval.

    Given the ratio w of the sample to the true standard deviation, t is a normal variable divided
    by w. So the probability is integrated over w, whose square is χ² / degrees. (`scipy.stats.nct`
    returns NaN for many noncentralities above 40, which nearly constant returns reach.)
    """
    critical = stdtrit(degrees, 1 - ALPHA / 2)
    lowest, highest = np.sqrt(chdtri(degrees, [1 - 1e-15, 1e-15]) / degrees)
    # As a function of x = w^(1/4) the density is also smooth at 0: few nodes suffice.
    x = lowest**0.25 + (highest**0.25 - lowest**0.25) * (NODES + 1) / 2
    w = x**4
    log_density = (4 * degrees - 1) * np.log(x) - degrees * w**2 / 2  # up to a constant
    density = WEIGHTS * np.exp(log_density - log_density.max())
    missed = ndtr(critical * w - noncentrality) - ndtr(-critical * w - noncentrality)
    return 1 - float(density @ missed / density.sum())


def _standard_error(a: Array, b: Array) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom."""
    _require_two_seeds(a, b)
    of_a, of_b = _variance(a) / len(a), _variance(b) / len(b)
    total = of_a + of_b
    if total == 0:
        return 0.0, float(len(a) + len(b) - 2)
    # Welch-Satterthwaite equation, divided by the total so that nothing underflows.
    degrees = 1 / ((of_a / total) ** 2 / (len(a) - 1) + (of_b / total) ** 2 / (len(b) - 1))
    return math.sqrt(total), degrees


def _mean(values: Array) -> float:
    """Exact for constant values: the rounded mean of three times 0.1 is not 0.1."""
    return float(values[0] if np.ptp(values) == 0 else values.mean())


def _variance(values: Array) -> float:
    return 0.0 if np.ptp(values) == 0 else float(values.var(ddof=1))


def _wins(a: Array, b: Array) -> Array:
    """1 where a run of a is above a run of b, 1/2 where they tie: [seeds of a, seeds of b]."""
    if len(a) == 0 or len(b) == 0:
        raise ValueError("a comparison needs at least one seed of each method")
    require_finite(a)
    require_finite(b)
    return (np.sign(a[:, None] - b) + 1) / 2


def _require_two_seeds(a: Array, b: Array) -> None:
    if len(a) < 2 or len(b) < 2:
        raise ValueError(
            f"a comparison needs at least two seeds of each method, got {len(a)} and {len(b)}: "
            "run more seeds"
        )
    require_finite(a)
    require_finite(b)
