"""Values of eta: numbers, schedules, and wrong ones."""

from __future__ import annotations

import math

import pytest

from emi.adapters import Decay, linear_schedule
from emi.adapters.schedule import eta_at
from emi.errors import UserError


def test_a_number_is_constant() -> None:
    assert [eta_at(0.25, steps) for steps in (0, 10, 10**9)] == [0.25] * 3
    assert eta_at(0, 5) == 0.0
    assert isinstance(eta_at(1, 5), float)


def test_a_function_is_called_with_the_steps_so_far() -> None:
    assert [eta_at(lambda steps: steps / 4, steps) for steps in (0, 1, 8)] == [0, 0.25, 2]


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf, -math.inf])
def test_a_wrong_eta_raises_a_user_error(wrong: float) -> None:
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


def test_linear_needs_steps() -> None:
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        linear_schedule(1.0, 0.0, steps=0)


def test_a_decay_by_hand() -> None:
    eta = Decay(4.0, steps=8)
    assert [eta(k) for k in (0, 2, 4, 8, 9, 10**9)] == [4.0, 3.0, 2.0, 0.0, 0.0, 0.0]
    assert [eta_at(eta, 2, total) for total in (None, 2, 10**6)] == [3.0] * 3  # it has its steps
    assert Decay() == Decay(1.0, None)


def test_a_decay_over_the_first_half_of_a_training() -> None:
    assert [eta_at(Decay(), k, total=100) for k in (0, 25, 50, 100)] == [1.0, 0.5, 0.0, 0.0]
    assert Decay(3.0).within(101) == Decay(3.0, steps=51)
    assert eta_at(Decay(), 1, total=1) == 0.0


def test_a_decay_needs_a_length() -> None:
    message = r"length of the training is not known here: use Decay\(5, steps=…\)"
    with pytest.raises(UserError, match=message):
        eta_at(Decay(5.0), 0)
    with pytest.raises(UserError, match="steps must be 1 or more, got 0"):
        Decay(steps=0)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="finite and zero or more"):
            Decay(wrong)
