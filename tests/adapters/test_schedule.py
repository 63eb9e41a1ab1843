"""Coefficients: numbers and schedules, and what is none."""

from __future__ import annotations

import math

import pytest

from emi.adapters import linear_schedule
from emi.adapters.schedule import eta_at


def test_a_number_is_itself_at_all_times() -> None:
    assert [eta_at(0.25, steps) for steps in (0, 10, 10**9)] == [0.25] * 3
    assert eta_at(0, 5) == 0.0
    assert isinstance(eta_at(1, 5), float)


def test_a_function_is_asked_with_the_steps_so_far() -> None:
    assert [eta_at(lambda steps: steps / 4, steps) for steps in (0, 1, 8)] == [0, 0.25, 2]


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf, -math.inf])
def test_a_wrong_eta_gets_a_sentence(wrong: float) -> None:
    for eta in (wrong, lambda steps: wrong):
        with pytest.raises(ValueError, match=r"finite and zero or more, got .* after 7 steps"):
            eta_at(eta, 7)
    for ends in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(ValueError, match="finite and zero or more"):
            linear_schedule(*ends, steps=10)


def test_linear_by_hand() -> None:
    falling = linear_schedule(1.0, 0.2, steps=8)
    assert [falling(k) for k in (0, 2, 4, 6)] == pytest.approx([1.0, 0.8, 0.6, 0.4])
    assert [falling(k) for k in (8, 9, 10**9)] == [0.2] * 3  # exactly, from there on
    rising = linear_schedule(0.0, 3.0, steps=3)
    assert [rising(k) for k in range(5)] == [0, 1, 2, 3, 3]
    assert eta_at(rising, 2) == 2


def test_linear_needs_a_way() -> None:
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        linear_schedule(1.0, 0.0, steps=0)
