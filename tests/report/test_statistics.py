import math

import numpy as np
import pytest

from emi.report.statistics import (
    bootstrap_band,
    bootstrap_interval,
    interquartile_mean,
    on_common_steps,
    wilson_interval,
)


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
