import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from emi.report.comparison import (
    Welch,
    detectable_difference,
    holm,
    power,
    probability_of_improvement,
    probability_of_improvement_interval,
    welch,
)

examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)
returns = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))
seeds = st.lists(returns, min_size=2, max_size=12).map(np.array)


def with_mean_and_std(mean: float, std: float, n: int) -> np.ndarray:
    """n values of exactly this mean and sample standard deviation."""
    values = np.arange(n) - (n - 1) / 2
    return mean + std * values / values.std(ddof=1)


def test_welch_by_hand() -> None:
    # Means 2 and 5, variances 1 and 20/3: squared errors 1/3 and 5/3, together 2.
    # degrees = 2² / ((1/3)²/2 + (5/3)²/3) = 216/53; p and the half width 3.898 from a t table.
    found = welch(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0, 8.0]))
    assert found.difference == -3.0
    assert found.t == pytest.approx(-3 / math.sqrt(2), rel=1e-14)
    assert found.degrees == pytest.approx(216 / 53, rel=1e-14)
    assert found.p == pytest.approx(0.09991286, abs=1e-8)
    assert found.p_greater == pytest.approx(1 - 0.09991286 / 2, abs=1e-8)
    assert found.interval == pytest.approx((-6.897975, 0.897975), abs=1e-6)


@examples
@given(seeds, seeds)
def test_welch_against_scipy(a: np.ndarray, b: np.ndarray) -> None:
    found = welch(a, b)
    assert 0 <= found.p <= 1
    assert found.interval.low <= found.difference <= found.interval.high
    # The interval leaves 0 out exactly where p is under 5 %.
    assert (found.p < 0.05) == (not found.interval.low <= 0 <= found.interval.high)
    if np.ptp(a) > 0 and np.ptp(b) > 0:
        reference = stats.ttest_ind(a, b, equal_var=False)
        assert found.t == pytest.approx(reference.statistic, rel=1e-9)
        assert found.degrees == pytest.approx(reference.df, rel=1e-9)
        assert found.p == pytest.approx(reference.pvalue, rel=1e-7)
        low, high = reference.confidence_interval()
        assert found.interval == pytest.approx((low, high), rel=1e-7, abs=1e-6)


@examples
@given(seeds, seeds)
def test_welch_the_other_way_round_changes_the_sign_only(a: np.ndarray, b: np.ndarray) -> None:
    one, other = welch(a, b), welch(b, a)
    assert (other.t, other.p) == (-one.t, one.p)
    assert other.interval == (-one.interval.high, -one.interval.low)
    assert other.p_greater + one.p_greater == pytest.approx(1.0)


def test_p_values_of_the_paper_are_one_sided() -> None:
    # Supplement, section 6: 15 seeds each, t 8.58 (p 2.99e-7) against ICM, whose returns hardly
    # vary, and t 1.81 (p 0.0410) against EX2, whose returns vary about as EMI's do.
    emi = with_mean_and_std(8.58, math.sqrt(15), 15)
    against_icm = welch(emi, np.zeros(15))
    assert against_icm.t == pytest.approx(8.58)
    assert against_icm.degrees == 14
    assert against_icm.p_greater == pytest.approx(2.99e-7, rel=0.01)
    emi = with_mean_and_std(1.81, math.sqrt(7.5), 15)
    against_ex2 = welch(emi, with_mean_and_std(0.0, math.sqrt(7.5), 15))
    assert against_ex2.t == pytest.approx(1.81)
    assert against_ex2.p_greater == pytest.approx(0.0410, abs=0.0006)
    assert against_ex2.p == pytest.approx(0.081, abs=0.001)  # two-sided it is not significant


# The rounded mean of three times 0.1 is not 0.1: equal constants must still be equal.
@pytest.mark.parametrize("value", [0.0, 0.1, -300.7])
def test_equal_constants_do_not_differ(value: float) -> None:
    a, b = np.full(3, value), np.full(7, value)
    assert welch(a, b) == Welch(0.0, (0.0, 0.0), t=0.0, degrees=8.0, p=1.0)
    assert welch(a, b).p_greater == 0.5
    assert probability_of_improvement(a, b) == 0.5
    assert probability_of_improvement_interval(a, b) == (0.5, 0.5)
    assert power(a, b, 0.0) == 0.0
    assert power(a, b, 1e-9) == 1.0
    assert detectable_difference(a, b) == 0.0


def test_different_constants_differ() -> None:
    a, b = np.full(5, 300.0), np.zeros(3)
    assert welch(a, b) == Welch(300.0, (300.0, 300.0), t=math.inf, degrees=6.0, p=0.0)
    assert welch(b, a) == Welch(-300.0, (-300.0, -300.0), t=-math.inf, degrees=6.0, p=0.0)
    assert welch(a, b).p_greater == 0.0
    assert welch(b, a).p_greater == 1.0
    assert probability_of_improvement(a, b) == 1.0
    assert probability_of_improvement_interval(a, b) == (1.0, 1.0)
    assert probability_of_improvement_interval(b, a) == (0.0, 0.0)


def test_one_constant_group_leaves_the_degrees_of_the_other() -> None:
    # EMI's five returns compared with a method that never saw a reward; a one-sample test of them.
    a = np.array([0.0, 0.0, 120.0, 250.0, 300.0])
    found, reference = welch(a, np.zeros(9)), stats.ttest_1samp(a, 0.0)
    assert found.degrees == 4.0
    assert found.t == pytest.approx(reference.statistic)
    assert found.p == pytest.approx(reference.pvalue)


@pytest.mark.parametrize(
    "compare",
    [
        welch,
        probability_of_improvement_interval,
        lambda a, b: power(a, b, 1.0),
        detectable_difference,
    ],
)
def test_one_seed_is_refused_and_so_is_nan(compare) -> None:
    with pytest.raises(ValueError, match="at least two seeds of each method, got 1 and 2"):
        compare(np.array([1.0]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="at least two seeds of each method, got 2 and 1"):
        compare(np.array([1.0, 2.0]), np.array([1.0]))
    with pytest.raises(ValueError, match="not a finite number"):
        compare(np.array([1.0, 2.0]), np.array([1.0, math.nan]))


def test_welch_claims_a_difference_falsely_one_time_in_twenty() -> None:
    # Equal means; the spread of the smaller group is three times the other's, which makes a test
    # with a pooled variance claim a difference in more than one case of ten.
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(0, 3, 5), rng.normal(0, 1, 10)) for _ in range(3_000)]
    found = [welch(a, b) for a, b in pairs]
    claimed = np.mean([test.p < 0.05 for test in found])
    covered = np.mean([test.interval.low <= 0 for test in found])
    pooled = np.mean(
        stats.ttest_ind(*(np.array(side).T for side in zip(*pairs, strict=True)))[1] < 0.05
    )
    assert 0.04 <= claimed <= 0.07  # a little over 5 %: five seeds are few
    assert 0.965 <= covered <= 0.985  # one side of 95 %
    assert pooled > 0.1


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # × 3, then 2 × 0.03, × 2, × 4
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.5, 0.6, 0.7], [1.0, 1.0, 1.0]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
    ],
)
def test_holm_by_hand(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted, rel=1e-15)


@examples
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_raises_p_keeps_the_order_and_stays_under_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert len(adjusted) == len(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(p_values) * p)
    ranked = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


@pytest.mark.parametrize("wrong", [-0.01, 1.01, math.nan])
def test_holm_refuses_what_is_no_probability(wrong: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, wrong])


def test_probability_of_improvement_by_hand() -> None:
    # Of the six pairs a wins (1,0), (2,0), (2,1) and ties (1,1); b = 5 beats both.
    a, b = np.array([1.0, 2.0]), np.array([0.0, 1.0, 5.0])
    assert probability_of_improvement(a, b) == pytest.approx(3.5 / 6, rel=1e-15)
    with pytest.raises(ValueError, match="at least one seed"):
        probability_of_improvement(a, np.array([]))
    with pytest.raises(ValueError, match="not a finite number"):
        probability_of_improvement(a, np.array([math.nan]))


@examples
@given(seeds, seeds)
def test_probability_of_improvement_is_mann_whitneys_u(a: np.ndarray, b: np.ndarray) -> None:
    found = probability_of_improvement(a, b)
    u = stats.mannwhitneyu(a, b, method="asymptotic").statistic if np.ptp([*a, *b]) else None
    assert found == pytest.approx(0.5 if u is None else u / (len(a) * len(b)), rel=1e-12)
    assert found + probability_of_improvement(b, a) == pytest.approx(1.0, rel=1e-14)
    low, high = probability_of_improvement_interval(a, b, replicates=500)
    assert 0 <= low <= found <= high <= 1


def test_interval_of_the_probability_of_improvement_by_hand() -> None:
    # a draws 0 twice, once or never with probability 1/4, 1/2, 1/4, and b is always 1:
    # the share of wins is 0, 1/2 or 1.
    a, b = np.array([0.0, 2.0]), np.array([1.0, 1.0])
    assert probability_of_improvement_interval(a, b) == (0.0, 1.0)
    # k of the five draws of a are above b, k ~ Binomial(5, 1/5): 0 to 3 of 5 in 95 %.
    a = np.array([0.0, 0.0, 300.0, 0.0, 0.0])
    assert probability_of_improvement_interval(a, np.ones(4)) == (0.0, 0.6)


def test_interval_of_the_probability_of_improvement_is_seeded() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(size=30)
    first, again, other = (
        probability_of_improvement_interval(a, b, seed, replicates=500) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_interval_of_the_probability_of_improvement_covers_the_truth() -> None:
    # P(X > Y) of normals with means 0.5 and 0 and unit variances is Φ(0.5 / √2).
    truth, rng, covered = stats.norm.cdf(0.5 / math.sqrt(2)), np.random.default_rng(0), 0
    for seed in range(100):
        a, b = rng.normal(0.5, 1, 20), rng.normal(0, 1, 20)
        low, high = probability_of_improvement_interval(a, b, seed, replicates=500)
        covered += low <= truth <= high
    assert 0.90 <= covered / 100 <= 0.99


def test_power_of_the_textbook_example() -> None:
    # Cohen (1988): two groups of 64 see an effect of half a standard deviation in 80 % of cases.
    group = with_mean_and_std(0.0, 1.0, 64)
    assert power(group, group, 0.5) == pytest.approx(0.8015, abs=5e-5)
    assert power(group, group, -0.5) == pytest.approx(power(group, group, 0.5), rel=1e-12)
    assert power(group + 7, group, 0.5) == pytest.approx(
        0.8015, abs=5e-5
    )  # spreads count, not means
    assert detectable_difference(group, group) == pytest.approx(0.4991, abs=5e-5)
    # False claims only. The t quantile of SciPy before 1.17 has a relative error of 5e-11.
    assert power(group, group, 0.0) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (3, 2), (5, 5), (5, 15), (40, 40)])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 4.0])
def test_power_against_the_noncentral_t_of_scipy(n_a: int, n_b: int, ratio: float) -> None:
    a, b = with_mean_and_std(0, 2.0, n_a), with_mean_and_std(0, 2.0 * ratio, n_b)
    degrees = welch(a, b).degrees
    error = 2.0 * math.sqrt(1 / n_a + ratio**2 / n_b)
    critical = stats.t.isf(0.025, degrees)
    for distance in (0.0, 0.3, 1.0, 2.8, 5.0):
        expected = stats.nct.sf(critical, degrees, distance)
        expected += stats.nct.cdf(-critical, degrees, distance)
        assert power(a, b, distance * error) == pytest.approx(expected, abs=1e-7)


def test_power_is_what_welchs_test_really_sees() -> None:
    a, b = with_mean_and_std(0, 100.0, 5), with_mean_and_std(0, 30.0, 10)
    rng = np.random.default_rng(0)
    for difference in (80.0, 150.0):
        seen = [
            welch(rng.normal(difference, 100.0, 5), rng.normal(0, 30.0, 10)).p < 0.05
            for _ in range(2_000)
        ]
        assert power(a, b, difference) == pytest.approx(np.mean(seen), abs=0.03)


def test_power_of_a_huge_difference_is_one() -> None:
    a, b = with_mean_and_std(0, 1.0, 5), with_mean_and_std(0, 1.0, 5)
    for difference in np.geomspace(10, 1e9, 200):
        assert power(a, b, difference) == pytest.approx(1.0, abs=1e-8)


@examples
@given(seeds, seeds, st.floats(0.051, 0.9999))
def test_detectable_difference_has_the_power_asked_for(
    a: np.ndarray, b: np.ndarray, chance: float
) -> None:
    difference = detectable_difference(a, b, chance)
    if np.ptp(a) == np.ptp(b) == 0:
        assert difference == 0.0
    else:
        assert power(a, b, difference) == pytest.approx(chance, abs=1e-9)
        assert power(a, b, 1.1 * difference) > chance


@pytest.mark.parametrize("chance", [0.05, 1.0, math.nan])
def test_detectable_difference_refuses_a_power_that_none_has(chance: float) -> None:
    with pytest.raises(ValueError, match="power lies between"):
        detectable_difference(np.array([0.0, 1.0]), np.array([0.0, 1.0]), chance)


def test_the_surest_detection_ends_too() -> None:
    group = np.array([0.0, 1.0])
    assert math.isfinite(detectable_difference(group, group, math.nextafter(1.0, 0.0)))
