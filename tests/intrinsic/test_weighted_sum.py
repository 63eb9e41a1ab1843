"""Sums of methods: the numbers by hand, and the order of scoring and learning of every part."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from column import ACTIONS, VECTOR, Column, batch_to, random_batch

import emi
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward, score_and_learn
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.normalize_observation import NormalizeObservation
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.rnd import RND, RNDConfig
from emi.intrinsic.simhash import SimHash
from emi.intrinsic.weighted_sum import WeightedSum
from emi.runs.checkpoint import load_latest, save

BATCH = batch_to((1, 10, 0), (2, 20, 0))


def test_the_sum_by_hand() -> None:
    both = WeightedSum({"one": (Column(0), 0.5), "ten": (Column(1), 0.25)})
    assert both.reward(BATCH).tolist() == [3, 6]
    assert both.reward(BATCH).tolist() == [3, 6]
    bonus, scalars = score_and_learn(both, BATCH)
    assert bonus.tolist() == [3, 6]
    assert scalars["sum/one_mean"] == 0.75
    assert scalars["sum/ten_mean"] == 3.75
    assert both.reward(BATCH).tolist() == [1.5, 3]  # each part has learnt once


def test_a_part_with_a_zero_eta_learns_but_adds_nothing() -> None:
    both = WeightedSum({"one": (Column(0), 0.0), "ten": (Column(1), 1.0)})
    assert both.reward(BATCH).tolist() == [10, 20]
    assert score_and_learn(both, BATCH)[1]["column/0"] == 7


def test_every_part_keeps_its_order() -> None:
    log: list[str] = []
    first, after = Column(0, learns_first=True, log=log), Column(1, log=log)
    both = WeightedSum({"after": (after, 1.0), "first": (first, 1.0)})
    bonus, finish = both.score(BATCH)
    assert log == ["score 1", "learn 0", "score 0"]
    assert bonus.tolist() == [10.5, 21]  # the bonus of `first` is halved: it has learnt the batch
    finish()
    assert log == ["score 1", "learn 0", "score 0", "learn 1"]
    assert (first.learnt.item(), after.learnt.item()) == (1, 1)
    assert score_and_learn(both, BATCH)[0].tolist() == pytest.approx([1 / 3 + 5, 2 / 3 + 10])


def test_learn_trains_every_part_once() -> None:
    log: list[str] = []
    parts = Column(0, learns_first=True, log=log), Column(1, log=log)
    WeightedSum({"a": (parts[0], 1.0), "b": (parts[1], 1.0)}).learn(BATCH)
    assert log == ["learn 0", "score 0", "score 1", "learn 1"]


def mixed_order() -> WeightedSum:
    return WeightedSum({"first": (Column(0, learns_first=True), 1.0), "after": (Column(1), 1.0)})


@pytest.mark.parametrize("order", [False, True])
def test_learns_first_is_the_common_order_of_the_parts(order: bool) -> None:
    parts = {f"p{i}": (Column(i, learns_first=order), 1.0) for i in range(2)}
    assert WeightedSum(parts).learns_first is order


def test_parts_of_different_orders_have_no_common_order() -> None:
    with pytest.raises(UserError, match=r"some parts .* others after: call score") as caught:
        _ = mixed_order().learns_first
    assert "\n" not in str(caught.value)
    # score, and with it every trainer, needs no common order.
    assert score_and_learn(mixed_order(), BATCH)[0].tolist() == [10.5, 21]
    normalized = NormalizeReward(mixed_order())
    assert torch.isfinite(score_and_learn(normalized, BATCH)[0]).all()
    # NormalizeObservation scores with other moments than it learns with: it needs one order.
    with pytest.raises(UserError, match="apply NormalizeObservation to each part instead"):
        NormalizeObservation(mixed_order(), VECTOR)


def test_a_sum_of_one_order_in_normalize_observation() -> None:
    parts = {"a": (Column(0), 0.5), "b": (Column(1), 0.25)}
    method = NormalizeObservation(WeightedSum(parts), VECTOR)
    # All states are 0: nothing is scaled, and the bonus is that of the sum.
    assert score_and_learn(method, BATCH)[0].tolist() == [3, 6]
    assert method.reward(BATCH).tolist() == [1.5, 3]


def test_sums_of_sums() -> None:
    log: list[str] = []
    first, after = Column(0, learns_first=True, log=log), Column(1, log=log)
    inner = WeightedSum({"first": (first, 2.0), "after": (after, 1.0)})
    outer = WeightedSum({"inner": (inner, 0.5), "last": (Column(2, log=log), 1.0)})
    bonus, finish = outer.score(batch_to((1, 10, 100)))
    assert bonus.tolist() == [0.5 * (2 * 0.5 + 10) + 100]
    finish()
    assert log == ["learn 0", "score 0", "score 1", "score 2", "learn 1", "learn 2"]


def test_scalars_with_the_same_name_are_prefixed_by_the_part() -> None:
    inner = WeightedSum({"b": (Column(2), 1.0)})
    both = WeightedSum({"a": (Column(0), 0.5), "b": (Column(1), 1.0), "c": (inner, 1.0)})
    scalars = score_and_learn(both, batch_to((1, 10, 100)))[1]
    assert scalars == {
        "a/column/learnt": 1,
        "b/column/learnt": 1,
        "c/column/learnt": 1,
        "column/0": 7,
        "column/1": 7,
        "column/2": 7,
        "c/sum/b_mean": 100,
        "sum/a_mean": 0.5,
        "sum/b_mean": 10,
        "sum/c_mean": 100,
    }
    assert list(score_and_learn(both, batch_to((1, 10, 100)))[1]) == list(scalars)


def mixture(seed: int, wrap: Callable[[IntrinsicReward], IntrinsicReward]) -> WeightedSum:
    """Methods of both orders, and two of the same class."""
    diversity = EMIConfig(minibatch=16, reward="diversity")
    parts = {
        "emi": (wrap(EMI(VECTOR, ACTIONS, EMIConfig(minibatch=16), seed)), 0.1),
        "diverse": (wrap(EMI(VECTOR, ACTIONS, diversity, seed + 1)), 0.2),
        "rnd": (wrap(RND(VECTOR, ACTIONS, RNDConfig(features=8, hidden=(8,)), seed)), 0.3),
        "counts": (wrap(SimHash(VECTOR, ACTIONS, seed=seed)), 0.4),
    }
    return WeightedSum(parts)


def plain(method: IntrinsicReward) -> IntrinsicReward:
    return method


@pytest.mark.parametrize("wrap", [plain, NormalizeReward])
def test_the_whole_state_round_trips(
    wrap: Callable[[IntrinsicReward], IntrinsicReward], tmp_path: Path
) -> None:
    """Through checkpoint files, and bit for bit the same afterwards."""
    first, second = mixture(0, wrap), mixture(9, wrap)
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
    first, second = mixture(0, NormalizeReward), mixture(1, NormalizeReward)
    first.learn(random_batch(20, seed=0, envs=2))
    state = first.state_dict()
    second.load_state_dict(state)
    key = "parts.rnd._extra_state"
    kept = copy.deepcopy(state[key])
    second.learn(random_batch(20, seed=1, envs=2))
    assert torch.equal(first.state_dict()[key]["last"], kept["last"])
    assert torch.equal(state[key]["last"], kept["last"])


def test_a_state_with_normalisation_does_not_fit_a_sum_without() -> None:
    with pytest.raises(RuntimeError, match=r"parts\.emi\.sums\.count"):
        mixture(0, plain).load_state_dict(mixture(0, NormalizeReward).state_dict())


def test_the_parts_are_submodules() -> None:
    both = mixture(0, plain)
    assert {"emi", "diverse", "rnd", "counts"} == set(both.parts)
    assert both.etas == {"emi": 0.1, "diverse": 0.2, "rnd": 0.3, "counts": 0.4}
    assert both.to(torch.device("cpu")) is both
    assert both.device == torch.device("cpu")
    assert emi.WeightedSum is WeightedSum


def test_wrong_arguments_raise_a_user_error() -> None:
    with pytest.raises(UserError, match="needs at least one method"):
        WeightedSum({})
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="eta of a must be finite and zero or more"):
            WeightedSum({"a": (Column(0), wrong)})
