"""The pool against a deque: a bounded memory that forgets the oldest first."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import Tensor

from emi.intrinsic.pool import Pool


def rows(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1)


def held(pool: Pool) -> list[int]:
    return [int(v) for v in pool.rows.flatten()]


def test_a_ring_by_hand() -> None:
    pool = Pool(4)
    pool.add(rows(1, 2, 3))
    assert held(pool) == [1, 2, 3]
    pool.add(rows(4, 5))  # 5 takes the slot of 1, the oldest
    assert held(pool) == [5, 2, 3, 4]
    pool.add(rows(6))
    assert held(pool) == [5, 6, 3, 4]


@pytest.mark.parametrize("sizes", [[1] * 20, [3, 5, 1, 7, 2, 7], [7, 7], [2, 30, 1, 8], [8, 6]])
def test_it_holds_the_last_rows_whatever_the_sizes_of_the_batches(sizes: list[int]) -> None:
    pool, last, value = Pool(7), deque[int](maxlen=7), 0
    for size in sizes:
        values = range(value, value + size)
        value += size
        pool.add(rows(*values))
        last.extend(values)
        assert sorted(held(pool)) == sorted(last)
        assert len(pool) == len(last) <= 7


def test_more_rows_than_fit_leave_the_last() -> None:
    pool = Pool(3)
    pool.add(rows(*range(10)))
    assert sorted(held(pool)) == [7, 8, 9]
    pool.add(rows(10))
    assert sorted(held(pool)) == [8, 9, 10]


def test_growth_keeps_what_is_held_and_stops_at_the_capacity() -> None:
    pool = Pool(100)
    for value in range(250):
        pool.add(rows(value))
        assert pool._rows is not None
        # No more memory than twice what is held, and never more than the capacity.
        assert len(pool) <= len(pool._rows) <= min(2 * len(pool), 100)
        assert sorted(held(pool)) == list(range(max(0, value - 99), value + 1))


def test_rows_keep_their_shape_and_type_and_are_copied() -> None:
    pool = Pool(8)
    frames = torch.arange(24, dtype=torch.uint8).view(2, 3, 2, 2)
    pool.add(frames)
    assert pool.rows.dtype == torch.uint8
    assert torch.equal(pool.rows, frames)
    before = frames.clone()
    frames.zero_()  # what the caller does to its batch afterwards is not the pool's business
    assert torch.equal(pool.rows, before)


def test_draws_are_uniform_over_what_is_held() -> None:
    pool = Pool(1000)  # much larger than its content: empty slots must never be drawn
    for value in range(1, 6):
        pool.add(rows(value))
    drawn = pool.draw(20_000, torch.Generator().manual_seed(0)).flatten()
    counts = torch.bincount(drawn.long(), minlength=6)
    assert counts[0] == 0
    # Five standard deviations of a binomial with n = 20,000 and p = 1/5.
    assert (counts[1:] - 4000).abs().max() < 5 * (20_000 * 0.2 * 0.8) ** 0.5


def test_draws_come_with_replacement_from_the_given_generator() -> None:
    pool = Pool(4)
    pool.add(rows(1, 2))
    torch.manual_seed(0)
    first = pool.draw(50, torch.Generator().manual_seed(3))
    torch.manual_seed(1)  # the global generator has no part in it
    assert torch.equal(first, pool.draw(50, torch.Generator().manual_seed(3)))
    assert first.shape == (50, 1)


def test_an_empty_pool_says_so() -> None:
    pool = Pool(4)
    assert len(pool) == 0
    with pytest.raises(ValueError, match="the pool is empty"):
        pool.draw(1, torch.Generator())


@pytest.mark.parametrize("count", [0, 3, 5, 9])
def test_the_state_round_trips_with_the_place_in_the_ring(count: int) -> None:
    first, second = Pool(5), Pool(5)
    for value in range(count):
        first.add(rows(value))
    second.load_state_dict(first.state_dict())
    assert len(second) == len(first) == min(count, 5)
    for pool in (first, second):
        pool.add(rows(100, 101))
    # The same slots were overwritten: the same draws give the same rows.
    assert held(first) == held(second)


def test_a_loaded_pool_shares_no_memory() -> None:
    first, second = Pool(5), Pool(5)
    first.add(rows(1, 2, 3, 4, 5))
    state = first.state_dict()
    second.load_state_dict(state)
    second.add(rows(9))
    assert held(first) == [1, 2, 3, 4, 5]
    first.add(rows(7))
    assert held(second) == [9, 2, 3, 4, 5]


def test_loading_an_empty_pool_empties() -> None:
    full = Pool(5)
    full.add(rows(1, 2))
    full.load_state_dict(Pool(5).state_dict())
    assert len(full) == 0


def test_the_newest_rows() -> None:
    pool = Pool(4)
    assert pool.newest(3) is None
    for low, high, expected in ((0, 3, [1, 2]), (3, 4, [2, 3]), (4, 6, [4, 5]), (6, 9, [7, 8])):
        pool.add(torch.arange(low, high))
        assert pool.newest(2).tolist() == expected
    assert pool.newest(9).tolist() == [5, 6, 7, 8]
    assert pool.newest(0) is None
    assert pool.newest(-1) is None
