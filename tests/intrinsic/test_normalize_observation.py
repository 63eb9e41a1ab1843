"""Normalised observations: the numbers by hand, the order, and the independence of units."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

import emi
from emi.batch import Transitions
from emi.runs.checkpoint import load_latest, save

SPACE, ACTIONS = Box(-np.inf, np.inf, (2,)), Discrete(3)


class Recording(emi.IntrinsicReward):
    """The first entry of s' as the method reads it; keeps the states that it was trained on."""

    def __init__(self, learns_first: bool = False) -> None:
        super().__init__()
        self.learns_first = learns_first
        self.states: list[Tensor] = []

    def reward(self, batch: Transitions) -> Tensor:
        return torch.as_tensor(batch.next_obs)[:, 0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.states.append(torch.as_tensor(batch.obs))
        return {"recording/batches": float(len(self.states))}


def batch(*states: tuple[float, float], to: tuple[float, float] = (0.0, 0.0)) -> Transitions:
    obs = np.array(states, np.float32)
    return Transitions(obs, np.zeros(len(obs), np.int64), np.broadcast_to(to, obs.shape).copy())


def test_numbers_by_hand() -> None:
    inner = Recording()
    method = emi.NormalizeObservation(inner, SPACE)
    first = batch(
        (0, 5), (4, 5), to=(6, 5)
    )  # mean 2, standard deviation 2; the second entry is constant
    assert method.reward(first).tolist() == [2, 2]
    assert method.reading.observed.count == 0  # scoring stores nothing
    assert method.learn(first) == {"recording/batches": 1.0}
    assert inner.states[0].tolist() == [[-1, 0], [1, 0]]
    second = batch((8, 5), (8, 5), to=(5, 5))  # all four: mean 5, variance (25 + 1 + 9 + 9) / 4
    assert method.reward(second).tolist() == pytest.approx([1.5, 1.5])  # by the first batch alone
    method.learn(second)
    assert method.reward(second).tolist() == [0, 0]
    assert inner.states[1][0].tolist() == pytest.approx([3 / 11**0.5, 0])
    assert inner.states[1].dtype == torch.float32


@pytest.mark.parametrize("learns_first", [False, True])
def test_the_order_is_that_of_the_method(learns_first: bool) -> None:
    method = emi.NormalizeObservation(Recording(learns_first), SPACE)
    method.learn(batch((0, 0), (2, 2)))
    bonus, _ = emi.score_and_learn(method, batch((4, 4), (6, 6), to=(3, 3)))
    before, after = (3 - 1) / 1, (3 - 3) / 5**0.5
    assert bonus.tolist() == pytest.approx([after if learns_first else before] * 2)


def test_the_bonus_does_not_depend_on_units(tmp_path: Path) -> None:
    """EMI's bonus is the same whether speed is in metres or in kilometres per second."""
    rng = np.random.default_rng(0)
    obs, following = rng.normal(size=(2, 64, 2)).astype(np.float32)
    action = rng.integers(0, 3, 64)
    bonuses = []
    for unit in (1.0, 2.0**-10):
        method = emi.NormalizeObservation(emi.EMI(SPACE, ACTIONS, normalize=False), SPACE)
        scale = np.array([1.0, unit], np.float32)
        data = Transitions(obs * scale, action, following * scale)
        method.learn(data)
        bonuses.append(method.reward(data))
    torch.testing.assert_close(bonuses[0], bonuses[1])

    save(tmp_path, 1, {"method": dict(method.state_dict())})
    copy = emi.NormalizeObservation(emi.EMI(SPACE, ACTIONS, seed=5, normalize=False), SPACE)
    loaded = load_latest(tmp_path)
    assert loaded is not None
    copy.load_state_dict(loaded.state["method"])
    assert torch.equal(copy.reward(data), bonuses[1])


def test_only_vectors_can_be_normalised() -> None:
    with pytest.raises(emi.UserError, match="needs vectors"):
        emi.NormalizeObservation(Recording(), Box(0, 255, (4, 52, 52), np.uint8))
