import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from emi.report.statistics import (
    bootstrap_band,
    bootstrap_interval,
    interquartile_mean,
    on_common_steps,
    performance_profile,
    performance_profile_band,
    stratified_bootstrap,
    wilson_interval,
)

# The same examples every time: a test of ours fails for everybody or for nobody.
examples = settings(max_examples=40, deadline=None, derandomize=True, database=None)
returns = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 5.0, 12.0], 6.0),  # floor(3/4) = 0 left out on each side
        ([100.0, 1.0, 3.0, 2.0], 2.5),  # 1 on each side
        ([300.0, 0.0, 250.0, 2.0, 298.0], 550.0 / 3),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0], 3.5),  # 2 on each side
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(values)) == pytest.approx(expected, rel=1e-15)


@examples
@given(st.lists(returns, min_size=1, max_size=30))
def test_interquartile_mean_is_the_mean_trimmed_by_a_quarter(values: list[float]) -> None:
    expected = stats.trim_mean(values, 0.25)
    assert interquartile_mean(np.array(values)) == pytest.approx(expected, rel=1e-12, abs=1e-6)


def test_bootstrap_of_two_values_by_hand() -> None:
    # The mean of two draws is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4: both tails exceed 2.5 %.
    assert bootstrap_interval(np.array([0.0, 1.0])) == (0.0, 1.0)


def test_bootstrap_of_one_solved_seed_in_five_by_hand() -> None:
    # k of 5 draws hit the solved seed, k ~ Binomial(5, 1/5): P(k = 0) = 0.33 and
    # P(k ≥ 4) = 0.7 %, P(k ≥ 3) = 5.8 %, so the interval is 0 to 3/5.
    low, high = bootstrap_interval(np.array([0.0, 0.0, 300.0, 0.0, 0.0]))
    assert low == 0.0
    assert high == pytest.approx(180.0)


def test_bootstrap_agrees_with_the_normal_interval_for_many_values() -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, 1_000)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std() / math.sqrt(1_000)
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_bootstrap_is_seeded() -> None:
    values = np.random.default_rng(0).normal(size=20)
    assert bootstrap_interval(values, seed=4) == bootstrap_interval(values, seed=4)
    assert bootstrap_interval(values, seed=4) != bootstrap_interval(values, seed=5)


def test_band_is_the_interval_at_every_point() -> None:
    curves = np.random.default_rng(0).normal(size=(5, 3))
    band = bootstrap_band(curves)
    for t in range(3):
        assert (band.low[t], band.high[t]) == pytest.approx(bootstrap_interval(curves[:, t]))


def mean(values: np.ndarray) -> float:
    return float(values.mean())


def test_stratified_bootstrap_of_two_tasks_by_hand() -> None:
    # The mean of {0, 2} and {10, 10} is (10 + 10 + the two draws from {0, 2}) / 4, and these are
    # 0, 2 or 4 in all, with probability 1/4, 1/2, 1/4. Drawn across tasks it could be 0 or 10.
    tasks = [np.array([0.0, 2.0]), np.array([10.0, 10.0])]
    assert stratified_bootstrap(tasks, mean) == (5.0, 6.0)


def test_stratified_bootstrap_gives_all_runs_to_the_statistic() -> None:
    tasks = [np.array([1.0, 1.0]), np.array([5.0, 5.0, 5.0])]
    assert stratified_bootstrap(tasks, len, replicates=10) == (5, 5)
    assert stratified_bootstrap(tasks, np.min, replicates=10) == (1, 1)
    assert stratified_bootstrap(tasks, interquartile_mean, replicates=10) == (11 / 3, 11 / 3)


def test_stratified_bootstrap_of_one_task_is_the_plain_one() -> None:
    values = np.random.default_rng(3).normal(5.0, 1.0, 40)
    expected = bootstrap_interval(values)
    assert stratified_bootstrap([values], mean, seed=1) == pytest.approx(expected, abs=0.02)
    reference = stats.bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    assert stratified_bootstrap([values], mean) == pytest.approx(tuple(reference), abs=0.02)


def test_stratified_bootstrap_is_seeded() -> None:
    tasks = [np.random.default_rng(k).normal(size=5) for k in range(3)]
    by_seed = [stratified_bootstrap(tasks, mean, replicates=200, seed=seed) for seed in (4, 4, 5)]
    assert by_seed[0] == by_seed[1] != by_seed[2]


@examples
@given(st.lists(st.lists(returns, min_size=1, max_size=6), min_size=1, max_size=4))
def test_stratified_bootstrap_contains_the_mean(tasks: list[list[float]]) -> None:
    strata = [np.array(values) for values in tasks]
    low, high = stratified_bootstrap(strata, mean, replicates=300)
    everything = np.concatenate(strata)
    slack = 1e-9 * np.abs(everything).max()
    assert low - slack <= everything.mean() <= high + slack
    assert everything.min() - slack <= low
    assert high <= everything.max() + slack


def test_stratified_bootstrap_covers_the_truth_19_times_in_20() -> None:
    # Two tasks of 15 seeds whose true means are 1 and 0, so 1/2 together.
    rng, covered = np.random.default_rng(0), 0
    for seed in range(200):
        tasks = [rng.exponential(1.0, 15), rng.normal(0.0, 2.0, 15)]
        low, high = stratified_bootstrap(tasks, mean, replicates=300, seed=seed)
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 200 <= 0.97


@pytest.mark.parametrize("tasks", [[], [np.array([1.0, 2.0]), np.array([])]])
def test_stratified_bootstrap_refuses_a_task_without_runs(tasks: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="at least one run of every task"):
        stratified_bootstrap(tasks, mean)


def test_a_run_without_a_return_is_refused() -> None:
    values = np.array([1.0, math.nan])
    with pytest.raises(ValueError, match="not a finite number"):
        stratified_bootstrap([values], mean)
    with pytest.raises(ValueError, match="not a finite number"):
        performance_profile(values, np.array([0.0]))


def test_performance_profile_by_hand() -> None:
    # A run at the threshold is not above it.
    values, thresholds = np.array([0.0, 0.0, 10.0, 300.0]), np.array([-1.0, 0.0, 10.0, 299.0, 300])
    assert performance_profile(values, thresholds).tolist() == [1.0, 0.5, 0.25, 0.25, 0.0]
    with pytest.raises(ValueError, match="at least one run"):
        performance_profile(np.array([]), thresholds)


def test_band_of_a_profile_by_hand() -> None:
    # One run of five is above 0: k ~ Binomial(5, 1/5) of five draws are, 0 to 3 in 95 % of draws.
    values, thresholds = np.array([0.0, 0.0, 300.0, 0.0, 0.0]), np.array([-1.0, 0.0, 300.0])
    low, high = performance_profile_band(values, thresholds)
    assert low.tolist() == pytest.approx([1.0, 0.0, 0.0])
    assert high.tolist() == pytest.approx([1.0, 0.6, 0.0])
    other = performance_profile_band(np.arange(9.0), np.arange(9.0), seed=1)
    again = performance_profile_band(np.arange(9.0), np.arange(9.0), seed=1)
    assert other.low.tolist() == again.low.tolist()


@examples
@given(st.lists(returns, min_size=1, max_size=12), st.lists(returns, min_size=2, max_size=12))
def test_profile_never_rises_and_stays_in_its_band(
    values: list[float], thresholds: list[float]
) -> None:
    grid = np.sort(thresholds)
    share = performance_profile(np.array(values), grid)
    low, high = performance_profile_band(np.array(values), grid)
    assert (np.diff(share) <= 0).all()
    assert share[0] <= 1
    assert share[-1] >= 0
    assert (low <= share + 1e-12).all()
    assert (share <= high + 1e-12).all()


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 5, 0.0, 0.4345),
        (5, 5, 0.5655, 1.0),
        (4, 5, 0.3755, 0.9638),
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), table I
        (15, 148, 0.0624, 0.1605),  # the same
    ],
)
def test_wilson_interval_against_published_values(
    successes: int, trials: int, low: float, high: float
) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@examples
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_against_scipy(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    reference = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert 0 <= low <= successes / trials <= high <= 1


@pytest.mark.parametrize("trials", range(1, 200))
def test_wilson_interval_at_the_ends_is_exact(trials: int) -> None:
    assert wilson_interval(0, trials).low == 0.0
    assert wilson_interval(trials, trials).high == 1.0


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (6, 5), (-1, 5)])
def test_wilson_interval_refuses_what_is_no_rate(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {trials}"):
        wilson_interval(successes, trials)


def test_equal_steps_stay_as_they_are() -> None:
    steps = np.array([5.0, 10.0, 15.0])
    grid, values = on_common_steps([steps, steps], [np.array([0.0, 1, 2]), np.array([4.0, 5, 6])])
    assert grid.tolist() == [5, 10, 15]
    assert values.tolist() == [[0, 1, 2], [4, 5, 6]]


def test_unequal_runs_end_with_the_shortest_and_are_interpolated() -> None:
    grid, values = on_common_steps(
        [np.array([10.0, 20.0]), np.array([5.0, 15.0, 25.0])],
        [np.array([0.0, 10.0]), np.array([0.0, 10.0, 20.0])],
    )
    assert grid.tolist() == [10, 15, 20]
    assert values.tolist() == [[0, 5, 10], [5, 10, 15]]


def test_points_without_a_finished_episode_are_left_out() -> None:
    steps, nan = np.array([5.0, 10.0, 15.0]), math.nan
    grid, values = on_common_steps([steps], [np.array([nan, 1.0, 3.0])])
    assert grid.tolist() == [10, 15]
    assert values.tolist() == [[1, 3]]
    with pytest.raises(ValueError, match="no finished episode"):
        on_common_steps([steps], [np.array([nan, nan, nan])])
