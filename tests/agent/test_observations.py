"""What is kept is what was put, and frames that stacks share are kept once."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from emi.agent.observations import ArrayKeeper, StackKeeper, make_keeper
from emi.batch import Stacks

IMAGE = Box(0, 255, (4, 36, 37), np.uint8)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers)


def frame(number: int) -> np.ndarray:
    return np.full((36, 37), number, np.uint8)


def stack(*numbers: int) -> np.ndarray:
    return np.stack([frame(n) for n in numbers])


def test_a_continued_stack_stores_one_frame() -> None:
    keeper = make_keeper(IMAGE, rows=2)
    keeper.put(rows(0), stack(0, 0, 0, 1)[None], None)
    keeper.put(rows(1), stack(0, 0, 1, 2)[None], rows(0))
    keeper.put(rows(2), stack(0, 1, 2, 3)[None], rows(1))
    pool = keeper.pool()
    assert isinstance(pool, Stacks)
    assert len(pool) == 3
    assert len(pool.frames) == 4 + 1 + 1
    np.testing.assert_array_equal(pool[2], stack(0, 1, 2, 3))
    np.testing.assert_array_equal(pool[rows(1, 0)][0], stack(0, 0, 1, 2))


def test_a_stack_that_starts_anew_is_kept_whole() -> None:
    keeper = make_keeper(IMAGE, rows=3)
    keeper.put(rows(0), stack(1, 2, 3, 4)[None], None)
    keeper.put(rows(1), stack(9, 9, 9, 9)[None], rows(0))  # another episode
    odd = stack(2, 3, 4, 5)
    odd[0, 5, 4] += 1  # one pixel is not as it was
    keeper.put(rows(2), odd[None], rows(0))
    pool = keeper.pool()
    assert isinstance(pool, Stacks)
    assert len(pool.frames) == 12
    np.testing.assert_array_equal(pool[:], [stack(1, 2, 3, 4), stack(9, 9, 9, 9), odd])


@pytest.mark.parametrize("space", [IMAGE, Box(-1, 1, (3,)), Box(0, 255, (9, 9, 3), np.uint8)])
def test_what_comes_back_is_what_was_put(space: Box) -> None:
    """Three environments, episodes of random length, more rows than were announced."""
    rng = np.random.default_rng(0)
    keeper, expected, spare = make_keeper(space, rows=10), {}, 300
    obs = np.zeros((3, *space.shape), space.dtype)
    for t in range(100):
        row = np.arange(3 * t, 3 * t + 3)
        keeper.put(row, obs, row - 3 if t else None)
        expected |= dict(zip(row.tolist(), obs.copy(), strict=True))
        new = rng.integers(0, 3, (3, *space.shape[1:])).astype(space.dtype)
        obs = np.concatenate([obs[:, 1:], new[:, None]], axis=1)
        ended = np.flatnonzero(rng.random(3) < 0.1)
        if len(ended):
            last = np.arange(spare, spare + len(ended))
            spare += len(ended)
            keeper.put(last, obs[ended], row[ended])
            expected |= dict(zip(last.tolist(), obs[ended], strict=True))
            obs[ended] = rng.integers(0, 3, obs[ended].shape)
    pool = keeper.pool()
    assert len(pool) == spare
    for row, value in expected.items():
        np.testing.assert_array_equal(pool[row], value)


def test_what_was_put_may_change_afterwards() -> None:
    """Simulators reuse their arrays."""
    for space in (IMAGE, Box(-1, 1, (3,))):
        keeper, obs = make_keeper(space, 1), np.ones((1, *space.shape), space.dtype)
        keeper.put(rows(0), obs, None)
        obs += 1
        assert (keeper.pool()[0] == 1).all()


def test_only_stacks_are_taken_apart() -> None:
    assert isinstance(make_keeper(IMAGE, 1), StackKeeper)
    for shape in ((52, 52), (1, 52, 52), (52, 52, 4)):
        assert isinstance(make_keeper(Box(0, 255, shape, np.uint8), 1), ArrayKeeper)
    assert isinstance(make_keeper(Box(0, 1, (4, 6, 5)), 1), ArrayKeeper)
