"""The contract from a user's side: what a subclass must have, and that it works everywhere."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor

import emi
from emi.adapters import IntrinsicRewardCallback, IntrinsicRewardVectorWrapper
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import (
    IntrinsicReward,
    Method,
    find_method,
    method_of,
    score_and_learn,
)
from emi.intrinsic.table import METHODS

SPACE, ACTIONS = Box(-1, 1, (2,)), Box(-1, 1, (1,))


@dataclass(frozen=True)
class LengthConfig:
    unit: float = 2.0


class Length(IntrinsicReward):
    """‖s' − s‖ / unit, less for every batch learnt; with settings, as in the documentation."""

    batches: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: LengthConfig = LengthConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config, self.seed = config, seed
        self.register_buffer("batches", torch.zeros(()))

    def reward(self, batch: Transitions) -> Tensor:
        way = torch.as_tensor(batch.next_obs) - torch.as_tensor(batch.obs)
        return way.float().norm(dim=1) / self.config.unit / (1 + self.batches)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.batches += 1
        return {"length/batches": self.batches.item()}


class Plain(Length):
    """The same without settings."""

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space, seed: int = 0
    ) -> None:
        super().__init__(observation_space, action_space, LengthConfig(), seed)


class LearnsFirst(Length):
    learns_first = True


OWN = pytest.mark.parametrize("own", [Length, Plain])


def walk(n: int = 40) -> Transitions:
    """Steps of length 1 to the right."""
    obs = np.stack([np.arange(n), np.zeros(n)], 1).astype(np.float32)
    ahead = obs + np.array([1, 0], np.float32)
    return Transitions(obs, np.zeros((n, 1), np.float32), ahead)


def test_the_contract_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        IntrinsicReward()  # type: ignore[abstract]

    class OnlyRewards(IntrinsicReward):
        def reward(self, batch: Transitions) -> Tensor:
            return torch.zeros(len(batch))

    with pytest.raises(TypeError, match="learn"):
        OnlyRewards()  # type: ignore[abstract]


def test_a_method_without_tensors_is_on_the_cpu() -> None:
    class Nothing(IntrinsicReward):
        def reward(self, batch: Transitions) -> Tensor:
            return torch.zeros(len(batch))

        def learn(self, batch: Transitions) -> dict[str, float]:
            return {}

    assert Nothing().device == torch.device("cpu")
    assert Length(SPACE, ACTIONS).to("meta").device == torch.device("meta")


def test_score_of_a_method_that_is_scored_before_it_learns() -> None:
    method = Length(SPACE, ACTIONS)
    bonus, finish = method.score(walk(3))
    assert bonus.tolist() == [0.5] * 3
    assert method.batches == 0  # the learning is still to be done
    assert finish() == {"length/batches": 1.0}
    assert method.batches == 1


def test_score_of_a_method_that_learns_first() -> None:
    method = LearnsFirst(SPACE, ACTIONS)
    bonus, finish = method.score(walk(3))
    assert bonus.tolist() == [0.25] * 3
    assert method.batches == 1
    assert finish() == {"length/batches": 1.0}
    assert method.batches == 1  # the batch was learnt once


@OWN
def test_in_sums_and_wrappers(own: type[Length]) -> None:
    method, other = own(SPACE, ACTIONS), own(SPACE, ACTIONS)
    both = emi.WeightedSum({"own": (method, 2.0), "normal": (emi.NormalizeReward(other), 0.5)})
    bonus, scalars = score_and_learn(both, walk(1))
    assert bonus.tolist() == [2 * 0.5 + 0.5 * 2]  # a first row divided by half of itself is 2
    assert scalars["own/length/batches"] == scalars["normal/length/batches"] == 1
    around = emi.NormalizeObservation(own(SPACE, ACTIONS), SPACE)
    std = np.arange(4).std()
    assert score_and_learn(around, walk(4))[0].tolist() == pytest.approx([0.5 / std] * 4)


@OWN
def test_in_a_diagnosis(own: type[Length]) -> None:
    method = own(SPACE, ACTIONS)
    found = emi.diagnose(method, walk(), reward=np.ones(40))
    assert found.answers["finite"].good
    assert found.answers["share"].value == pytest.approx(0.5 / 1.5)
    assert found.answers["varies"].good is False  # all steps have the same length
    assert method.batches == 0


@OWN
def test_in_the_gymnasium_wrapper(own: type[Length]) -> None:
    inner = OracleVectorEnv(2, AutoresetMode.SAME_STEP)
    method = own(inner.single_observation_space, inner.single_action_space)
    envs = IntrinsicRewardVectorWrapper(inner, method, 1.0, learn_every=4, pretrained=True)
    envs.reset(seed=0)
    bonuses = [envs.step(np.zeros(2, np.int64))[4]["bonus"].tolist() for _ in range(5)]
    assert bonuses == [[0.5, 0.5]] * 4 + [[0.25, 0.25]]
    assert envs.scalars == {"length/batches": 1.0}


class Line(gymnasium.Env):
    """The action moves a point; an episode has eight steps."""

    observation_space, action_space = SPACE, ACTIONS

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.t = np.zeros(2, np.float32), 0
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        self.place[0] += 0.1 * float(action[0])
        self.t += 1
        return self.place.copy(), 0.0, False, self.t == 8, {}


@OWN
def test_in_the_stable_baselines3_callback(own: type[Length], tmp_path: Path) -> None:
    """The batch holds Rows: torch.as_tensor reads them without a warning."""
    model = PPO("MlpPolicy", DummyVecEnv([Line] * 2), n_steps=32, batch_size=32, device="cpu")
    callback = IntrinsicRewardCallback(own(SPACE, ACTIONS), 1.0)
    model.learn(128, callback=callback, log_interval=10**6)
    assert model.logger.name_to_value["length/batches"] == 2
    callback.save(tmp_path / "bonus.safetensors")
    other = IntrinsicRewardCallback(own(SPACE, ACTIONS), 1.0)
    other.load(tmp_path / "bonus.safetensors")
    assert other.method.state_dict()["batches"] == 2


def factory(
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    config: LengthConfig | None = None,
    seed: int = 0,
) -> Length:
    return Length(observation_space, action_space, config or LengthConfig(unit=1.0), seed)


def test_building_a_method() -> None:
    assert method_of(Length) == Method(Length, LengthConfig())
    assert method_of(Plain) == Method(Plain, None)
    assert method_of(factory) == Method(factory, None)
    assert method_of(functools.partial(Length)).config == LengthConfig()
    built = method_of(Length)._replace(config=LengthConfig(unit=4.0)).build(SPACE, ACTIONS, 7)
    assert isinstance(built, Length)
    assert (built.config.unit, built.seed) == (4.0, 7)
    for make in (Plain, factory):
        built = method_of(make).build(SPACE, ACTIONS, 8)
        assert isinstance(built, Length)
        assert built.seed == 8


def test_every_entry_of_the_table_is_found() -> None:
    for name, entry in METHODS.items():
        found = find_method(name)
        assert (found.factory is None) == (entry.home is None)
        for key, value in entry.settings.items():
            assert getattr(found.config, key) == value
    assert find_method("trpo").build(SPACE, ACTIONS, 0) is None
    assert find_method("emi").factory is emi.EMI


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module `my_methods` that can be imported, and a broken one."""
    (tmp_path / "my_methods.py").write_text(
        "import emi\n\n\nclass Mine(emi.IntrinsicReward):\n"
        "    def __init__(self, observation_space, action_space, seed=0):\n"
        "        super().__init__()\n\n"
        "    def reward(self, batch):\n        return batch.action\n\n"
        "    def learn(self, batch):\n        return {}\n"
    )
    (tmp_path / "my_broken_methods.py").write_text("from emi import nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_methods", "my_broken_methods"):
        sys.modules.pop(name, None)


def test_a_method_is_found_by_its_module(own_module: None) -> None:
    built = find_method("my_methods:Mine").build(SPACE, ACTIONS, 0)
    assert isinstance(built, IntrinsicReward)
    assert type(built).__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Mine", "cannot import no_such_module:Mine: .*No module named"),
        ("my_methods:Yours", "cannot import my_methods:Yours: .*no attribute 'Yours'"),
        ("my_methods", "cannot import my_methods: "),
        (":Mine", "cannot import :Mine: "),
        ("my_broken_methods:Mine", "cannot import my_broken_methods:Mine: .*'nothing'"),
        ("my_methods:emi", "a method must be a class or a function, got <module 'emi'"),
        ("builtins:int", "int must be a subclass of emi.IntrinsicReward"),
    ],
)
def test_methods_that_cannot_be_found(own_module: None, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        find_method(name)
    assert "\n" not in str(caught.value)


@dataclass
class Changeable:
    unit: float = 1.0


class Abstract(IntrinsicReward):
    pass


def without_default(observation_space: Any, action_space: Any, config: Any, seed: int = 0) -> Any:
    raise AssertionError


def without_seed(observation_space: Any, action_space: Any) -> Any:
    raise AssertionError


def with_more(observation_space: Any, action_space: Any, extra: Any, seed: int = 0) -> Any:
    raise AssertionError


CHANGEABLE = Changeable()


def changeable(
    observation_space: Any, action_space: Any, config: Changeable = CHANGEABLE, seed: int = 0
) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "must be a class or a function, got 3"),
        (dict, "dict must be a subclass"),
        (Abstract, "Abstract must define learn and reward"),
        (without_default, "the config of without_default must default to a frozen dataclass"),
        (changeable, "the config of changeable must default to a frozen dataclass"),
        (without_seed, "without_seed must accept .*: got an unexpected keyword argument 'seed'"),
        (with_more, "with_more must accept .*: missing a required argument: 'extra'"),
    ],
)
def test_classes_and_functions_that_are_not_methods(wrong: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        method_of(wrong)
    assert "\n" not in str(caught.value)


def test_a_function_must_return_a_method() -> None:
    def wrong(observation_space: Any, action_space: Any, seed: int = 0) -> Any:
        return torch.nn.Linear(1, 1)

    with pytest.raises(UserError, match=r"must be an emi\.IntrinsicReward, got Linear"):
        method_of(wrong).build(SPACE, ACTIONS, 0)


class Wrong(emi.IntrinsicReward):
    """A method with one mistake."""

    def __init__(self, reward: Any = None, learn: Any = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self._reward, self._learn = reward, learn

    def reward(self, batch: emi.Transitions) -> Any:
        if self._reward is None:
            return torch.zeros(len(batch))
        return self._reward(self, batch)

    def learn(self, batch: emi.Transitions) -> Any:
        return {} if self._learn is None else self._learn(self, batch)


def few(n: int = 3) -> emi.Transitions:
    return emi.Transitions(np.zeros((n, 2), np.float32), np.zeros(n, np.int64), np.ones((n, 2)))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"reward": lambda m, b: np.zeros(len(b))}, "Wrong.reward must return a tensor, got ndar"),
        (
            {"reward": lambda m, b: torch.as_tensor(b.obs) @ m.weight},
            "Wrong.reward must return a tensor without gradients: decorate it with @torch.no_grad",
        ),
        ({"reward": lambda m, b: torch.zeros(1)}, r"one bonus per transition, \[3\], got \[1\]"),
        ({"reward": lambda m, b: torch.full((3,), torch.nan)}, "bonus of Wrong is NaN .* row 0"),
        ({"learn": lambda m, b: None}, "Wrong.learn must return a dict of numbers to log, got N"),
    ],
)
def test_a_mistake_in_a_method_gives_a_sentence(mistake: dict[str, Any], sentence: str) -> None:
    with pytest.raises(emi.UserError, match=sentence) as caught:
        emi.score_and_learn(Wrong(**mistake), few())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, entry in METHODS.items() if entry.home])
def test_methods_learn_inside_no_grad_and_with_doubles_as_the_default(name: str) -> None:
    space, actions = Box(-1, 1, (3,)), Discrete(2)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2, 40, 3))[:, ::-1]  # float64, with a negative stride
    batch = emi.Transitions(obs[0], rng.integers(0, 2, 40).tolist(), list(obs[1]))
    usual = find_method(name).build(space, actions, 0)
    assert usual is not None
    expected, _ = emi.score_and_learn(usual, batch)
    torch.set_default_dtype(torch.float64)
    try:
        method = find_method(name).build(space, actions, 0)
        assert method is not None
        with torch.no_grad():
            bonus, _ = emi.score_and_learn(method, batch)
            method.learn(batch)
    finally:
        torch.set_default_dtype(torch.float32)
    usual.learn(batch)
    torch.testing.assert_close(bonus, expected, check_dtype=False)
    torch.testing.assert_close(method.reward(batch), usual.reward(batch), check_dtype=False)


def test_an_empty_batch_gives_a_sentence() -> None:
    method = emi.RND(Box(-1, 1, (2,)), Discrete(2))
    with pytest.raises(emi.UserError, match="at least one transition"):
        emi.score_and_learn(method, few(0))
    with pytest.raises(emi.UserError, match="leading batch axis"):
        emi.Transitions(np.float32(1), [0], np.float32(1))
    with pytest.raises(emi.UserError, match="must have the same shape"):
        emi.Transitions([[1.0], [1.0, 2.0]], [0, 1], [[1.0], [1.0]])
