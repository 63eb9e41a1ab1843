"""State outside `state_dict`: stored, or named in a warning, and never changed by a diagnosis."""

from __future__ import annotations

import copy
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv
from torch import Tensor, nn

import emi
from emi.adapters import IntrinsicRewardCallback, IntrinsicRewardVectorWrapper
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.outside_state import OutsideState, check_optimizers, optimizer_states


class Loose(IntrinsicReward):
    """A method as a user may write it: an optimizer, counts and a generator are attributes."""

    def __init__(self, optimizer: Any = torch.optim.Adam) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)
        self.optimizer = optimizer(self.net.parameters(), lr=0.1)
        self.visits: dict[tuple[int, ...], int] = {}
        self.rng = np.random.default_rng(0)
        self.weights = list(self.net.parameters())  # in the state dict already
        self.scale, self.function = 2.0, (lambda x: x)

    def key(self, row: Any) -> tuple[int, ...]:
        return tuple(np.asarray(row).astype(int).tolist())

    def reward(self, batch: Transitions) -> Tensor:
        counts = [1 + self.visits.get(self.key(row), 0) for row in np.asarray(batch.next_obs)]
        return self.scale / torch.tensor(counts).sqrt()

    def learn(self, batch: Transitions) -> dict[str, float]:
        for row in np.asarray(batch.next_obs):
            self.visits[self.key(row)] = self.visits.get(self.key(row), 0) + 1
        loss = self.net(torch.as_tensor(np.asarray(batch.obs))).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item(), "noise": self.rng.normal()}


class Adams(Loose):
    """Only the optimizer is outside."""

    def learn(self, batch: Transitions) -> dict[str, float]:
        before = copy.deepcopy((self.visits, self.rng))
        scalars = super().learn(batch)
        self.visits, self.rng = before
        return scalars


def batch(n: int = 60) -> Transitions:
    rng = np.random.default_rng(1)
    obs, after = rng.normal(size=(2, n, 2)).astype(np.float32) * 3
    return Transitions(obs, np.zeros(n, np.int64), after)


def test_a_diagnosis_changes_nothing() -> None:
    method = Loose()
    method.learn(batch())
    before = copy.deepcopy((method.visits, method.optimizer.state_dict()["state"], method.net))
    draws = copy.deepcopy(method.rng).normal(size=3)
    emi.diagnose(method, batch(), passes=2)
    assert method.visits == before[0]
    moments = method.optimizer.state_dict()["state"]
    assert torch.equal(moments[0]["exp_avg"], before[1][0]["exp_avg"])
    assert torch.equal(method.net.weight, before[2].weight)
    assert method.rng.normal(size=3).tolist() == draws.tolist()


def test_a_method_that_cannot_be_copied_cannot_be_diagnosed() -> None:
    method = Loose()
    method.stream = (n for n in range(3))  # type: ignore[assignment]
    with pytest.raises(UserError, match="trains a copy of the method, and Loose cannot be copied"):
        emi.diagnose(method, batch())


CHANGES: dict[str, Any] = {
    "number": (1, 2),
    "text": ("a", "b"),
    "array": (np.zeros(2), np.ones(2)),
    "objects": (np.array([None, 1]), np.array([None, 2])),
    "tensor": (torch.zeros(2), torch.ones(2)),
    "half": (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
    "list": ([1, [2]], [1, [3]]),
    "queue": (deque([1]), deque([1, 2])),
    "set": ({1, 2}, {1, 3}),
    "dict": ({(0, 1): 2}, {(0, 1): 3}),
    "nested": ({"a": {"b": 1}}, {"a": {"b": 2}}),
    "generator": (torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)),
    "numpy's": (np.random.default_rng(0), np.random.default_rng(1)),
    "old numpy's": (np.random.RandomState(0), np.random.RandomState(1)),
    "python's": (random.Random(0), random.Random(1)),
    "hidden module": ([nn.Linear(1, 1)], [nn.Linear(1, 1)]),
}


class Holder(IntrinsicReward):
    def reward(self, batch: Transitions) -> Tensor:
        return torch.zeros(len(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("kind", CHANGES)
def test_each_kind_of_change_is_seen(kind: str) -> None:
    before, after = CHANGES[kind]
    method = Holder()
    method.value = copy.deepcopy(before)
    method.me = method  # refers to itself
    outer = emi.WeightedSum({"a": (method, 1.0)})
    outside = OutsideState(outer)
    method.value = copy.deepcopy(before)
    assert outside.changed() == []
    method.value = after
    assert outside.changed() == ["parts.a.value"]


def test_what_is_in_the_state_dict_is_not_reported() -> None:
    method = Adams()
    outside = OutsideState(method)
    method.learn(batch())
    assert outside.changed() == []  # the weights, also as a list, and the optimizer
    assert list(optimizer_states(method)) == ["optimizer"]

    class Covered(Holder):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def get_extra_state(self) -> int:
            return self.count

        def set_extra_state(self, state: int) -> None:
            self.count = state

    covered = Covered()
    outside = OutsideState(covered)
    covered.count = 3
    assert outside.changed() == []
    for make in (emi.EMI, emi.RND, emi.EX2, emi.SimHash, emi.VIME, emi.ICM):
        ours = make(Box(-9, 9, (2,)), Discrete(2))
        outside = OutsideState(ours)
        ours.learn(batch())
        assert outside.changed() == []


def test_saving_warns_and_keeps_optimizers(tmp_path: Path) -> None:
    path, method = tmp_path / "bonus.safetensors", Loose()
    callback = IntrinsicRewardCallback(method, 1.0)
    callback.save(path)  # nothing has changed
    method.learn(batch())
    message = r"^Loose changed rng, visits, which is not saved: register tensors as buffers, and "
    with pytest.warns(UserWarning, match=message):
        callback.save(path)

    method = Adams()
    callback = IntrinsicRewardCallback(method, 1.0)
    for _ in range(3):
        method.learn(batch())
    callback.save(path)
    other = Adams()
    restored = IntrinsicRewardCallback(other, 1.0)
    restored.load(path)
    assert other.learn(batch())["loss"] == method.learn(batch())["loss"]
    assert torch.equal(other.net.weight, method.net.weight)  # by Adam's moments as well

    plain = IntrinsicRewardCallback(Adams(torch.optim.SGD), 1.0)
    with pytest.raises(UserError, match=r"Adams\.optimizers\.optimizer"):
        plain.load(path)


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.Adam,
        torch.optim.RMSprop,
        torch.optim.NAdam,
        lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
    ],
)
def test_a_restored_wrapper_continues_with_its_optimizer(make: Any) -> None:
    def wrapped() -> tuple[IntrinsicRewardVectorWrapper, Adams]:
        torch.manual_seed(0)
        method = Adams(make)
        envs = OracleVectorEnv(2, AutoresetMode.SAME_STEP)
        return IntrinsicRewardVectorWrapper(envs, method, 1.0, learn_every=2), method

    first, method = wrapped()
    first.reset(seed=0)
    for _ in range(6):
        first.step(np.zeros(2, np.int64))
    state = first.state_dict()
    second, other = wrapped()
    second.load_state_dict(state)
    for _ in range(2):
        assert method.learn(batch()) == other.learn(batch())
    assert torch.equal(method.net.weight, other.net.weight)
    assert not torch.equal(state["method"]["net.weight"], method.net.weight)

    envs = OracleVectorEnv(2, AutoresetMode.SAME_STEP)
    loose = IntrinsicRewardVectorWrapper(envs, Loose(), 1.0, learn_every=1)
    loose.reset(seed=0)
    loose.step(np.zeros(2, np.int64))
    with pytest.warns(UserWarning, match="Loose changed rng, visits"):
        loose.state_dict()


def test_an_optimizer_state_of_a_stranger() -> None:
    """A moment of another shape would make a fused kernel write outside its memory."""
    method = Adams()
    method.learn(batch())
    good = copy.deepcopy(optimizer_states(method))
    check_optimizers(method, good, "file")
    entry = good["optimizer"]["state"][0]
    wrong: list[tuple[list[Any], Any]] = [
        (["state", 0, "exp_avg"], torch.zeros(1)),
        (["state", 0, "exp_avg"], entry["exp_avg"].double()),
        (["state", 0, "step"], torch.zeros(2)),
        (["state", 0, "step"], "x"),
        (["state", 0], 3),
        (["state", 9], entry),
        (["param_groups", 0, "lr"], "x"),
        (["param_groups", 0, "params"], [1, 0]),
        (["param_groups"], []),
    ]
    for path, value in wrong:
        state = copy.deepcopy(good)
        place: Any = state["optimizer"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(UserError, match=r"file\.optimizer"):
            check_optimizers(method, state, "file")
    for states in ({}, {"optimizer": 3}, {**good, "other": good}, 3):
        with pytest.raises(UserError, match="file"):
            check_optimizers(method, states, "file")
