"""Sums of methods: the numbers by hand, the order of every part, the scales against NumPy."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import emi
from emi.batch import Transitions
from emi.runs.checkpoint import load_latest, save
from emi.intrinsic import (
    EMI,
    RND,
    WeightedSum,
    EMIConfig,
    RNDConfig,
    SimHash,
    score_and_learn,
    reward_and_rest,
)

VECTOR, ACTIONS = Box(-np.inf, np.inf, (3,)), Discrete(4)


class Column(nn.Module):
    """Pays one entry of s', divided by 1 + the batches it has learnt; writes down its calls."""

    learnt: Tensor

    def __init__(
        self, entry: int, *, learns_first: bool = False, log: list[str] | None = None
    ) -> None:
        super().__init__()
        self.entry, self.learns_first = entry, learns_first
        self.log = [] if log is None else log
        self.register_buffer("learnt", torch.zeros(()))

    def reward(self, batch: Transitions) -> Tensor:
        self.log.append(f"score {self.entry}")
        return torch.as_tensor(batch.next_obs)[:, self.entry] / (1 + self.learnt)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.log.append(f"learn {self.entry}")
        self.learnt += 1
        return {"column/learnt": self.learnt.item(), f"column/{self.entry}": 7.0}


def paying(*rows: tuple[float, ...]) -> Transitions:
    """Transitions to these s', of one stream."""
    obs = np.zeros((len(rows), 3), np.float32)
    return Transitions(obs, np.zeros(len(rows), np.int64), np.array(rows, np.float32))


def random_batch(n: int, seed: int, envs: int = 1) -> Transitions:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    next_obs = rng.uniform(0.5, 2, (n, 3)).astype(np.float32) * [1, 100, 0.01]
    return Transitions(
        obs, rng.integers(0, 4, n), next_obs.astype(np.float32), rng.integers(0, envs, n)
    )


BATCH = paying((1, 10, 0), (2, 20, 0))


def test_the_sum_by_hand() -> None:
    both = WeightedSum({"one": (Column(0), 0.5), "ten": (Column(1), 0.25)})
    assert both.reward(BATCH).tolist() == [3, 6]
    assert both.reward(BATCH).tolist() == [3, 6]
    bonus, scalars = score_and_learn(both, BATCH)
    assert bonus.tolist() == [3, 6]
    assert scalars["combined/one_mean"] == 0.75
    assert scalars["combined/ten_mean"] == 3.75
    assert both.reward(BATCH).tolist() == [1.5, 3]  # both have learnt, once


def test_a_coefficient_of_zero_takes_a_part_out_of_the_sum() -> None:
    both = WeightedSum({"one": (Column(0), 0.0), "ten": (Column(1), 1.0)})
    assert both.reward(BATCH).tolist() == [10, 20]
    assert score_and_learn(both, BATCH)[1]["column/0"] == 7  # it learns all the same


def test_every_part_keeps_its_order() -> None:
    log: list[str] = []
    first, after = Column(0, learns_first=True, log=log), Column(1, log=log)
    both = WeightedSum({"after": (after, 1.0), "first": (first, 1.0)})
    bonus, rest = reward_and_rest(both, BATCH)
    assert log == ["score 1", "learn 0", "score 0"]
    assert bonus.tolist() == [10.5, 21]  # that of `first` is halved by what it has learnt
    rest()
    assert log == ["score 1", "learn 0", "score 0", "learn 1"]
    assert (first.learnt.item(), after.learnt.item()) == (1, 1)
    assert score_and_learn(both, BATCH)[0].tolist() == pytest.approx([1 / 3 + 5, 2 / 3 + 10])


def test_learn_alone_teaches_every_part_once() -> None:
    log: list[str] = []
    parts = Column(0, learns_first=True, log=log), Column(1, log=log)
    scalars = WeightedSum({"a": (parts[0], 1.0), "b": (parts[1], 1.0)}, scale=True).learn(BATCH)
    assert log == ["learn 0", "score 0", "score 1", "learn 1"]
    # R of a: ½, 0.99 · ½ + 1, and 0 before them; that of b: 20 times as much.
    assert scalars["combined/a_scale"] == pytest.approx(np.std([0, 0.5, 1.495]))
    assert scalars["combined/b_scale"] == pytest.approx(np.std([0, 10, 29.9]))


@pytest.mark.parametrize(
    ("orders", "expected"), [((True, True), True), ((True, False), False), ((False, False), False)]
)
def test_it_learns_first_if_all_parts_do(orders: tuple[bool, bool], expected: bool) -> None:
    parts = {f"p{i}": (Column(i, learns_first=o), 1.0) for i, o in enumerate(orders)}
    assert WeightedSum(parts).learns_first is expected


def test_sums_of_sums() -> None:
    log: list[str] = []
    first, after = Column(0, learns_first=True, log=log), Column(1, log=log)
    inner = WeightedSum({"first": (first, 2.0), "after": (after, 1.0)})
    outer = WeightedSum({"inner": (inner, 0.5), "last": (Column(2, log=log), 1.0)})
    bonus, rest = reward_and_rest(outer, paying((1, 10, 100)))
    assert bonus.tolist() == [0.5 * (2 * 0.5 + 10) + 100]
    rest()
    assert log == ["learn 0", "score 0", "score 1", "score 2", "learn 1", "learn 2"]


def test_scalars_of_the_parts_are_told_apart_where_they_must_be() -> None:
    inner = WeightedSum({"b": (Column(2), 1.0)})
    both = WeightedSum({"a": (Column(0), 0.5), "b": (Column(1), 1.0), "c": (inner, 1.0)})
    scalars = score_and_learn(both, paying((1, 10, 100)))[1]
    assert scalars == {
        "a/column/learnt": 1,
        "b/column/learnt": 1,
        "c/column/learnt": 1,
        "column/0": 7,
        "column/1": 7,
        "column/2": 7,
        "c/combined/b_mean": 100,
        "combined/a_mean": 0.5,
        "combined/b_mean": 10,
        "combined/c_mean": 100,
    }
    assert list(score_and_learn(both, paying((1, 10, 100)))[1]) == list(scalars)


def test_a_first_row_is_worth_two_in_whatever_units() -> None:
    """The sums so far are 0 and R: their deviation is R / 2."""
    both = WeightedSum({"small": (Column(0), 1.0), "large": (Column(1), 0.25)}, scale=True)
    assert both.reward(paying((1e-3, 1e6, 0))).tolist() == [2.5]


def test_scales_against_numpy() -> None:
    parts = {"first": (Column(0, learns_first=True), 0.5), "after": (Column(1), 2.0)}
    both = WeightedSum(parts, scale=True, discount=0.8)
    reached, every = np.zeros((2, 3)), ([0.0], [0.0])
    for k, envs in enumerate((1, 3, 2, 3)):  # environments come and go
        batch = random_batch(25, seed=k, envs=envs)
        assert batch.env is not None
        rows = np.asarray(batch.next_obs, np.float64)
        # What each pays as it has learnt: this batch too, or all before it.
        raw = rows[:, 0] / (2 + k), rows[:, 1] / (1 + k)
        for p in range(2):
            for e, r in zip(batch.env, raw[p], strict=True):
                reached[p, e] = 0.8 * reached[p, e] + r
                every[p].append(reached[p, e])
        scales = [np.std(every[p]) for p in range(2)]
        bonus, scalars = score_and_learn(both, batch)
        np.testing.assert_allclose(
            bonus.numpy(), 0.5 * raw[0] / scales[0] + 2 * raw[1] / scales[1], rtol=1e-5
        )
        assert scalars["combined/first_scale"] == pytest.approx(scales[0], rel=1e-5)
        assert scalars["combined/after_scale"] == pytest.approx(scales[1], rel=1e-5)
        mean = (0.5 * raw[0] / scales[0]).mean()
        assert scalars["combined/first_mean"] == pytest.approx(mean, rel=1e-5)


class Error(nn.Module):
    """RND's error before it is scaled."""

    learns_first = False

    def __init__(self, rnd: RND) -> None:
        super().__init__()
        self.rnd = rnd

    def reward(self, batch: Transitions) -> Tensor:
        return self.rnd.error(batch.next_obs)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.rnd.learn(batch)


def test_the_scale_is_that_of_rnd_bit_by_bit() -> None:
    config = RNDConfig(features=8, hidden=(8,), discount=0.9)
    rnd = RND(VECTOR, ACTIONS, config)
    ours = WeightedSum({"error": (Error(copy.deepcopy(rnd)), 1.0)}, scale=True, discount=0.9)
    for k in range(4):
        batch = random_batch(20, seed=k, envs=3)
        theirs, scalars = score_and_learn(rnd, batch)
        bonus, ours_scalars = score_and_learn(ours, batch)
        assert torch.equal(bonus, theirs)
        assert ours_scalars["combined/error_scale"] == scalars["rnd/bonus_scale"]


def test_scoring_stores_nothing() -> None:
    both = WeightedSum({"a": (Column(0), 1.0), "b": (Column(1), 1.0)}, scale=True)
    batch = random_batch(20, seed=0, envs=4)
    for _ in range(2):
        before = copy.deepcopy(both.state_dict())
        bonus = both.reward(batch)
        assert torch.equal(bonus, both.reward(batch))
        state = both.state_dict()
        for key in ("sums.a.count", "sums.a.mean", "sums.b.variance", "parts.a.learnt"):
            assert torch.equal(state[key], before[key])
        assert torch.equal(state["_extra_state"]["last"]["a"], before["_extra_state"]["last"]["a"])
        both.learn(batch)


def mixture(seed: int, **settings: Any) -> WeightedSum:
    """Methods of both orders, and two of a kind."""
    parts = {
        "emi": (EMI(VECTOR, ACTIONS, EMIConfig(minibatch=16), seed), 0.1),
        "diverse": (
            EMI(VECTOR, ACTIONS, EMIConfig(minibatch=16, reward="diversity"), seed + 1),
            0.2,
        ),
        "rnd": (RND(VECTOR, ACTIONS, RNDConfig(features=8, hidden=(8,)), seed), 0.3),
        "counts": (SimHash(VECTOR, ACTIONS, seed=seed), 0.4),
    }
    return WeightedSum(parts, **settings)


@pytest.mark.parametrize("scale", [False, True])
def test_the_whole_state_round_trips(scale: bool, tmp_path: Any) -> None:
    """Through a checkpoint's files, and on from there bit by bit."""
    first, second = mixture(0, scale=scale), mixture(9, scale=scale)
    for k in range(2):
        score_and_learn(first, random_batch(40, seed=k, envs=3))
    save(tmp_path, 1, {"method": dict(first.state_dict())})
    second.load_state_dict(load_latest(tmp_path).state["method"])
    for k in range(2):
        batch = random_batch(40, seed=10 + k, envs=5)
        ours, theirs = score_and_learn(first, batch), score_and_learn(second, batch)
        assert torch.equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
        assert torch.isfinite(ours[0]).all()


def test_a_loaded_state_is_a_copy() -> None:
    first, second = mixture(0, scale=True), mixture(1, scale=True)
    first.learn(random_batch(20, seed=0, envs=2))
    state = first.state_dict()
    second.load_state_dict(state)
    kept = copy.deepcopy(state["_extra_state"])
    second.learn(random_batch(20, seed=1, envs=2))
    assert torch.equal(first.state_dict()["_extra_state"]["last"]["rnd"], kept["last"]["rnd"])
    assert torch.equal(state["_extra_state"]["last"]["rnd"], kept["last"]["rnd"])


def test_a_state_with_scales_is_not_one_without() -> None:
    with pytest.raises(RuntimeError, match=r"sums\.emi\.count"):
        mixture(0).load_state_dict(mixture(0, scale=True).state_dict())


def test_a_copy_goes_its_own_way() -> None:
    both = WeightedSum({"a": (Column(0), 1.0)}, scale=True)
    both.learn(random_batch(20, seed=0))
    other, batch = copy.deepcopy(both), random_batch(20, seed=1)
    expected = both.reward(batch)
    other.learn(batch)
    assert torch.equal(both.reward(batch), expected)
    assert not torch.equal(other.reward(batch), expected)


def test_the_parts_are_modules_of_the_whole() -> None:
    both = mixture(0, scale=True)
    assert {"emi", "diverse", "rnd", "counts"} == set(both.parts)
    assert both.sums["emi"].count.item() == 1  # R_0 = 0
    assert both.to(torch.device("cpu")) is both
    assert emi.WeightedSum is WeightedSum


def test_one_environment_or_none_named_is_one_stream() -> None:
    both, batch = WeightedSum({"a": (Column(0), 1.0)}, scale=True), random_batch(30, seed=0)
    assert torch.equal(both.reward(batch), both.reward(dataclasses.replace(batch, env=None)))
    assert not torch.equal(both.reward(batch), both.reward(random_batch(30, seed=0, envs=3)))


def test_what_cannot_be_combined_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="needs at least one method"):
        WeightedSum({})
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="coefficient of a must be finite and zero or more"):
            WeightedSum({"a": (Column(0), wrong)})
    for wrong in (0.0, 1.1):
        with pytest.raises(ValueError, match=r"discount must be in \(0, 1\]"):
            WeightedSum({"a": (Column(0), 1.0)}, scale=True, discount=wrong)
