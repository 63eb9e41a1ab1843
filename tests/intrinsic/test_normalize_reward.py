"""Bonuses divided by their own scale: against NumPy, against RND, and what the state holds."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from column import ACTIONS, VECTOR, Column, batch_to, random_batch
from torch import Tensor

import emi
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward, score_and_learn
from emi.intrinsic.normalize_observation import NormalizeObservation
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.rnd import RND, RNDConfig
from emi.intrinsic.weighted_sum import WeightedSum


def test_the_first_row_is_divided_by_half_of_itself() -> None:
    """The sums so far are 0 and R: their standard deviation is R / 2."""
    small, large = NormalizeReward(Column(0)), NormalizeReward(Column(1))
    batch = batch_to((1e-3, 1e6, 0))
    assert small.reward(batch).tolist() == large.reward(batch).tolist() == [2]
    both = WeightedSum({"small": (small, 1.0), "large": (large, 0.25)})
    assert both.reward(batch).tolist() == [2.5]


@pytest.mark.parametrize("learns_first", [False, True])
def test_scales_against_numpy(learns_first: bool) -> None:
    method = NormalizeReward(Column(1, learns_first=learns_first), discount=0.8)
    assert method.learns_first is learns_first
    reached, every = np.zeros(3), [0.0]
    for k, envs in enumerate((1, 3, 2, 3)):  # the number of environments changes
        batch = random_batch(25, seed=k, envs=envs)
        assert batch.env_index is not None
        # A method that learns first has learnt this batch as well.
        raw = np.asarray(batch.next_obs, np.float64)[:, 1] / (1 + k + learns_first)
        for e, r in zip(batch.env_index, raw, strict=True):
            reached[e] = 0.8 * reached[e] + r
            every.append(reached[e])
        scale = np.std(every)
        bonus, scalars = score_and_learn(method, batch)
        np.testing.assert_allclose(bonus.numpy(), raw / scale, rtol=1e-5)
        assert scalars["normalize/scale"] == pytest.approx(scale, rel=1e-5)
        assert scalars["column/learnt"] == k + 1


def test_the_scale_by_hand() -> None:
    log: list[str] = []
    method = NormalizeReward(Column(0, learns_first=True, log=log))
    scalars = method.learn(batch_to((1, 10, 0), (2, 20, 0)))
    assert log == ["learn 0", "score 0"]
    # R: 0 before the first row, then ½ and 0.99 · ½ + 1.
    assert scalars["normalize/scale"] == pytest.approx(np.std([0, 0.5, 1.495]))


class Error(IntrinsicReward):
    """RND's error before it is divided."""

    def __init__(self, rnd: RND) -> None:
        super().__init__()
        self.rnd = rnd

    def reward(self, batch: Transitions) -> Tensor:
        return self.rnd.error(batch.next_obs)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.rnd.learn(batch)


def test_the_scale_equals_that_of_rnd_bit_for_bit() -> None:
    rnd = RND(VECTOR, ACTIONS, RNDConfig(features=8, hidden=(8,), discount=0.9))
    ours = NormalizeReward(Error(copy.deepcopy(rnd)), discount=0.9)
    for k in range(4):
        batch = random_batch(20, seed=k, envs=3)
        theirs, scalars = score_and_learn(rnd, batch)
        bonus, ours_scalars = score_and_learn(ours, batch)
        assert torch.equal(bonus, theirs)
        assert ours_scalars["normalize/scale"] == scalars["rnd/bonus_scale"]


def test_scoring_stores_nothing() -> None:
    method, batch = NormalizeReward(Column(0)), random_batch(20, seed=0, envs=4)
    for _ in range(2):
        before = copy.deepcopy(method.state_dict())
        bonus = method.reward(batch)
        assert torch.equal(bonus, method.reward(batch))
        state = method.state_dict()
        for key in ("sums.count", "sums.mean", "sums.variance", "method.learnt"):
            assert torch.equal(state[key], before[key])
        assert torch.equal(state["_extra_state"]["last"], before["_extra_state"]["last"])
        method.learn(batch)


def test_a_loaded_state_is_a_copy() -> None:
    first, second = NormalizeReward(Column(0)), NormalizeReward(Column(0))
    first.learn(random_batch(20, seed=0, envs=2))
    state = first.state_dict()
    second.load_state_dict(state)
    kept, more = copy.deepcopy(state["_extra_state"]["last"]), random_batch(20, seed=1, envs=2)
    assert torch.equal(second.reward(more), first.reward(more))
    second.learn(more)
    assert torch.equal(state["_extra_state"]["last"], kept)
    assert not torch.equal(second.state_dict()["_extra_state"]["last"], kept)


def test_a_deep_copy_is_independent() -> None:
    method = NormalizeReward(Column(0))
    method.learn(random_batch(20, seed=0))
    other, batch = copy.deepcopy(method), random_batch(20, seed=1)
    expected = method.reward(batch)
    other.learn(batch)
    assert torch.equal(method.reward(batch), expected)
    assert not torch.equal(other.reward(batch), expected)


def test_without_env_index_all_rows_are_one_stream() -> None:
    method, batch = NormalizeReward(Column(0)), random_batch(30, seed=0)
    without = dataclasses.replace(batch, env_index=None)
    assert torch.equal(method.reward(batch), method.reward(without))
    assert not torch.equal(method.reward(batch), method.reward(random_batch(30, seed=0, envs=3)))


@pytest.mark.parametrize("learns_first", [False, True])
def test_a_batch_counts_once_inside_normalize_observation(learns_first: bool) -> None:
    """All states are 0, so that normalising them changes nothing."""
    plain = NormalizeReward(Column(0, learns_first=learns_first))
    inner = NormalizeReward(Column(0, learns_first=learns_first))
    around = NormalizeObservation(inner, VECTOR)
    for k in range(3):
        batch = batch_to((1 + k, 0, 0), (3, 0, 0))
        expected, scalars = score_and_learn(plain, batch)
        bonus, ours = score_and_learn(around, batch)
        assert torch.equal(bonus, expected)
        assert ours == scalars
        assert inner.sums.count.item() == 1 + 2 * (k + 1)  # R_0 = 0 and two rows per batch


def test_wrong_discounts_raise_a_user_error() -> None:
    for wrong in (0.0, 1.1, float("nan")):
        with pytest.raises(UserError, match=r"discount must be in \(0, 1\]"):
            NormalizeReward(Column(0), discount=wrong)
    assert emi.NormalizeReward is NormalizeReward


def test_rows_in_no_order_are_divided_by_the_scale_so_far() -> None:
    """Drawn from a replay buffer, they do not continue the running sum of an environment."""
    method = NormalizeReward(Column(0), discount=0.5)
    method.learn(batch_to((1.0, 0, 0), (2.0, 0, 0)))
    scale = np.std([0.0, 1.0, 2.5])  # R of no row, of the first and of the second
    rows = batch_to((4.0, 0, 0), (8.0, 0, 0), (6.0, 0, 0))
    drawn = dataclasses.replace(rows, env_index=np.full(3, -1))
    for batch in (drawn, drawn[1:2]):  # whatever else is in the batch
        halved = np.asarray(batch.next_obs)[:, 0] / 2  # by the column, which was trained once
        np.testing.assert_allclose(method.reward(batch), halved / scale, rtol=1e-6)
    # Without a scale, as before the first training, the rows themselves give one.
    fresh = NormalizeReward(Column(0), discount=0.5)
    assert torch.equal(fresh.reward(drawn), fresh.reward(rows))
