"""The warning of a bonus that is a large part of the reward late in training."""

from __future__ import annotations

import warnings

import pytest

from emi.adapters.bonus_share import LARGE, LateShare, share_of


def warned_at(pairs: list[tuple[float, float]]) -> int | None:
    """The rollout, from 1, at which a training of these (Σ|η·bonus|, Σ|r|) warns."""
    watch = LateShare(total=100 * len(pairs))
    for number, (size_int, size_env) in enumerate(pairs, start=1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            watch.add(100 * number, size_int, size_env)
        if caught:
            return number
    return None


def test_shares_by_hand() -> None:
    assert share_of(1.0, 3.0) == 0.25
    assert share_of(0.0, 2.0) == share_of(0.0, 0.0) == 0.0
    assert share_of(2.0, 0.0) == 1.0


def test_a_bonus_that_stays_large_warns_at_three_quarters() -> None:
    assert warned_at([(1.0, 2.0)] * 20) == 15


def test_a_bonus_that_decays_over_the_first_half_never_warns() -> None:
    assert warned_at([(9.0, 1.0)] * 10 + [(0.0, 1.0)] * 10) is None


def test_only_the_second_half_counts() -> None:
    # A share of 0.2 since the half; with the first half it would be larger.
    assert warned_at([(100.0, 1.0)] * 10 + [(1.0, 4.0)] * 10) is None
    # One large batch after the half: 3 of 3 + 7 after 15 batches, 3 of 3 + 11 after 16.
    late = [(3.0, 3.0), *[(0.0, 1.0)] * 4, (0.0, 4.0), *[(0.0, 1.0)] * 4]
    assert warned_at([(0.0, 1.0)] * 10 + late) == 15
    assert warned_at([(0.0, 1.0)] * 9 + [(9.0, 1.0)] + [(0.0, 1.0)] * 10) is None


def test_exactly_the_limit_does_not_warn() -> None:
    assert LARGE == 0.25
    assert warned_at([(1.0, 3.0)] * 20) is None
    assert warned_at([(1.01, 3.0)] * 20) == 15


def test_a_bonus_that_grows_late_warns_late() -> None:
    assert warned_at([(0.0, 1.0)] * 19 + [(9.0, 1.0)]) == 20


def test_an_environment_that_paid_nothing_is_not_outweighed() -> None:
    assert warned_at([(1.0, 0.0)] * 20) is None
    assert warned_at([(1.0, 0.0)] * 19 + [(1.0, 0.1)]) == 20


def test_a_trial_of_a_few_batches_does_not_warn() -> None:
    assert warned_at([(9.0, 1.0)] * 8) is None
    assert warned_at([(9.0, 1.0)] * 10) == 10  # the fifth since the half


def test_the_warning_is_given_once_and_says_what_to_do() -> None:
    watch = LateShare(total=20)
    for steps in range(11, 15):
        watch.add(steps, 3.0, 1.0)
    with pytest.warns(UserWarning, match=r"^the bonus is 75% of the reward .*: let eta fall to 0,"):
        watch.add(15, 3.0, 1.0)
    watch.add(16, 3.0, 1.0)  # warnings are errors here
