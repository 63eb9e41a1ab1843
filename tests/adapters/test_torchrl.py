"""The module and the transform for TorchRL: transitions, rewards, advantages, state.

The oracle's observation is (episode, t), so that every scored or learnt row can be identified.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode
from oracle import STEPS, OracleVectorEnv
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.collectors.utils import split_trajectories
from torchrl.data import Bounded, Categorical, Composite, OneHot, Unbounded
from torchrl.envs import (
    Compose,
    EnvBase,
    GymEnv,
    GymWrapper,
    ObservationNorm,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from torchrl.modules import ValueOperator
from torchrl.objectives.value import GAE

import emi
from emi.adapters import (
    IntrinsicRewardModule,
    IntrinsicRewardTransform,
    linear_schedule,
    torchrl_spaces,
)
from emi.adapters.tensor_rows import Pending
from emi.batch import Transitions
from emi.errors import NotFiniteError, UserError
from emi.intrinsic.contract import IntrinsicReward

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "torchrl.md"
REWARD, BONUS, REWARD_ENV = ("next", "reward"), ("next", "intrinsic_reward"), ("next", "reward_env")


class Recording(IntrinsicReward):
    """A bonus of `scale` · (1 + t of s'); keeps what it scored and learnt."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.scored: list[Transitions] = []
        self.learnt: list[Transitions] = []
        self.calls: list[str] = []

    def reward(self, batch: Transitions) -> Tensor:
        self.calls.append("score")
        self.scored.append(batch)
        return self.scale * (1 + batch.next_obs[:, 1])

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.calls.append("learn")
        assert torch.is_grad_enabled()
        self.learnt.append(batch)
        return {"recording/rows": float(len(batch))}


def column(parts: list[Transitions], name: str) -> Tensor:
    return torch.cat([getattr(part, name) for part in parts])


class Steps(EnvBase):
    """`n` environments in TorchRL's form; obs = (episode, t), reward = t, ends by either flag."""

    def __init__(self, n: int, seed: int = 0) -> None:
        super().__init__(batch_size=[n])
        self.observation_spec = Composite(observation=Unbounded((n, 2)), shape=[n])
        self.action_spec = Categorical(2, shape=(n,))
        self.reward_spec = Unbounded((n, 1))
        self.episodes, self.state = 0, torch.zeros(n, 2)
        self.rng = torch.Generator().manual_seed(seed)

    def _set_seed(self, seed: int | None) -> None:
        self.rng.manual_seed(seed or 0)

    def _reset(self, tensordict: Any = None, **_: Any) -> TensorDict:
        which = torch.ones(len(self.state), dtype=torch.bool)
        if tensordict is not None and "_reset" in tensordict.keys():  # noqa: SIM118
            which = tensordict["_reset"].reshape(-1)
        for env in which.nonzero().flatten().tolist():
            self.episodes += 1
            self.state[env] = torch.tensor([self.episodes, 0])
        return TensorDict({"observation": self.state.clone()}, self.batch_size)

    def _step(self, tensordict: Any) -> TensorDict:
        n = len(self.state)
        reward = self.state[:, 1:].clone()
        self.state[:, 1] += 1
        terminated, truncated = torch.rand((2, n, 1), generator=self.rng) < 1 / 6
        return TensorDict(
            {
                "observation": self.state.clone(),
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "done": terminated | truncated,
            },
            self.batch_size,
        )


def oracle(kind: str, n: int) -> EnvBase:
    if kind == "torchrl":
        return Steps(n)
    envs = OracleVectorEnv(n, AutoresetMode[kind])
    envs.autoreset_mode = envs.mode  # where TorchRL looks for it
    return GymWrapper(envs, categorical_action_encoding=True)


def collected(env: EnvBase, steps: int, batch: int) -> Iterator[Any]:
    return iter(Collector(env, None, frames_per_batch=batch, total_frames=steps))


# OracleVectorEnv's DISABLED mode resets by a mask, as Gymnasium's own vector environments do.
KINDS = pytest.mark.parametrize("kind", ["torchrl", "SAME_STEP", "DISABLED"])


@KINDS
def test_the_module_uses_every_transition_once_and_none_crosses_an_episode(kind: str) -> None:
    n, steps, method = 20, STEPS, Recording()
    module = IntrinsicRewardModule(method, 0.5)
    truth, ends, actions = [], [], []
    for data in collected(oracle(kind, n), steps, 1_000):
        time_major = data.transpose(0, 1).reshape(-1)
        truth.append(time_major["observation"].clone())
        ends.append(time_major["next", "done"][:, 0].clone())
        actions.append(time_major["action"].clone())
        assert module(data) is data
        torch.testing.assert_close(
            data[BONUS], 1 + data["next", "observation"][..., 1:], rtol=0, atol=0
        )
    obs, ended = torch.cat(truth), torch.cat(ends)
    assert len(obs) == steps == module.steps
    assert 0.2 < ended.double().mean() < 0.4
    assert len(obs.unique(dim=0)) == steps  # (episode, t) is never seen twice
    for parts in (method.scored, method.learnt):
        assert torch.equal(column(parts, "obs"), obs)
        assert torch.equal(column(parts, "next_obs"), obs + torch.tensor([0, 1]))
        assert torch.equal(column(parts, "action"), torch.cat(actions))
        assert torch.equal(column(parts, "ended"), ended)
        assert torch.equal(column(parts, "env_index"), torch.arange(n).repeat(steps // n))
    assert method.calls == ["score", "learn"] * (steps // 1_000)


@KINDS
def test_the_transform_uses_every_transition_once_and_none_crosses_an_episode(kind: str) -> None:
    n, steps, method = 20, STEPS, Recording()
    transform = IntrinsicRewardTransform(method, 0.5, learn_every=50, pretrained=True)
    env = oracle(kind, n)  # with SAME_STEP a TransformedEnv already
    if isinstance(env, TransformedEnv):
        env.append_transform(transform)
    else:
        env = TransformedEnv(env, transform)
    before = transform.steps  # TorchRL may step an environment to read its specs
    method.scored.clear()
    method.learnt.clear()
    seen = [data.select("observation", "next").clone() for data in collected(env, steps, 2_000)]
    rows = torch.cat([data.transpose(0, 1).reshape(-1) for data in seen])
    for parts, count in ((method.scored, steps), (method.learnt, steps // 1_000 * 1_000)):
        assert torch.equal(column(parts, "obs")[:count], rows["observation"][:count])
        assert torch.equal(
            column(parts, "next_obs")[:count], rows["observation"][:count] + torch.tensor([0, 1])
        )
        assert torch.equal(column(parts, "ended")[:count], rows["next", "done"][:count, 0])
        index = torch.arange(n).repeat(count // n)
        assert torch.equal(column(parts, "env_index")[:count], index)
    assert transform.steps - before == steps
    total = rows[REWARD_ENV] + 0.5 * rows[BONUS]
    assert torch.equal(rows[REWARD], total)
    assert torch.equal(rows[BONUS], 1 + rows["next", "observation"][:, 1:])


def test_rewards_by_hand() -> None:
    """Two environments, three steps; the order of the rows is that of time, then environments."""
    data = TensorDict(
        {
            "observation": torch.tensor([[[1, 0], [1, 1], [3, 0]], [[2, 0], [2, 1], [2, 2.0]]]),
            "action": torch.tensor([[0, 1, 0], [1, 1, 0]]),
            "next": {
                "observation": torch.tensor([[[1, 1], [1, 2], [3, 1]], [[2, 1], [2, 2], [2, 3.0]]]),
                "reward": torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]),
                "done": torch.tensor([[[False], [True], [False]], [[False], [False], [True]]]),
            },
        },
        [2, 3],
        names=[None, "time"],
    )
    method = Recording(scale=2.0)
    for time_first in (False, True):
        batch = data.clone()
        if time_first:  # as env.rollout of nested environments may give it
            batch = batch.transpose(0, 1).contiguous()
        IntrinsicRewardModule(method, 0.25)(batch)
        if time_first:
            batch = batch.transpose(0, 1)
        assert batch[BONUS][..., 0].tolist() == [[4, 6, 4], [4, 6, 8]]
        assert batch[REWARD][..., 0].tolist() == [[2, 3.5, 4], [5, 6.5, 8]]
        assert torch.equal(batch[REWARD_ENV], data[REWARD])
        assert method.scored[-1].obs.tolist() == [[1, 0], [2, 0], [1, 1], [2, 1], [3, 0], [2, 2]]
        assert method.scored[-1].action.tolist() == [0, 1, 1, 1, 0, 0]
        assert method.scored[-1].env_index.tolist() == [0, 1] * 3
        assert method.scored[-1].ended.tolist() == [False, False, True, False, False, True]
    only = IntrinsicRewardModule(method, 0.25, intrinsic_only=True)
    assert only(data.clone())[REWARD][..., 0].tolist() == [[1, 1.5, 1], [1, 1.5, 2]]
    assert only.scalars == {
        "intrinsic/bonus_mean": pytest.approx(32 / 6),
        "intrinsic/bonus_std": pytest.approx(np.std([4, 6, 4, 4, 6, 8]), rel=1e-6),
        "intrinsic/eta": 0.25,
        "intrinsic/share": 1.0,
        "recording/rows": 6.0,
    }


def test_zero_coefficient_changes_no_bit() -> None:
    data = Steps(3).rollout(40, break_when_any_done=False)
    data[REWARD] = torch.where(data[REWARD] > 1, -data[REWARD] * 1e-40, -0.0)
    before = data[REWARD].view(torch.int32).clone()
    module = IntrinsicRewardModule(method := Recording(5.0), 0.0)
    assert torch.equal(module(data)[REWARD].view(torch.int32), before)
    assert method.calls == ["score", "learn"]
    plain, ours = Steps(3), TransformedEnv(Steps(3), IntrinsicRewardTransform(method, 0.0, 5))
    torch.manual_seed(0)
    expected = plain.rollout(40, break_when_any_done=False)
    torch.manual_seed(0)
    found = ours.rollout(40, break_when_any_done=False)
    assert torch.equal(found[REWARD], expected[REWARD])
    assert torch.equal(found["observation"], expected["observation"])


def test_the_bonus_reaches_the_advantages() -> None:
    """With V = 0, λ = 1: the sum of discounted rewards until the end, by hand."""
    zero = nn.Linear(2, 1)
    nn.init.zeros_(zero.weight)
    nn.init.zeros_(zero.bias)
    gae = GAE(gamma=0.5, lmbda=1.0, value_network=ValueOperator(zero, in_keys=["observation"]))
    data = Steps(4, seed=1).rollout(30, break_when_any_done=False)
    plain = gae(data.clone())["advantage"]
    with torch.no_grad():
        found = gae(IntrinsicRewardModule(Recording(), 2.0)(data.clone()))["advantage"]
    extra = torch.zeros(4, 31)
    for t in reversed(range(30)):
        going = ~data["next", "done"][:, t, 0]
        bonus = 1 + data["next", "observation"][:, t, 1]
        extra[:, t] = 2 * bonus + 0.5 * going * extra[:, t + 1]
    torch.testing.assert_close(found[..., 0] - plain[..., 0], extra[:, :30])
    assert (extra[:, :30] >= 4).all()


def test_a_method_that_learns_first_does_so() -> None:
    method = Recording()
    method.learns_first = True
    IntrinsicRewardModule(method, 1.0)(Steps(2).rollout(5, break_when_any_done=False))
    assert method.calls == ["learn", "score"]


def test_nothing_is_added_before_the_first_training_of_the_transform() -> None:
    method = Recording()
    transform = IntrinsicRewardTransform(method, 1.0, learn_every=4)
    data = TransformedEnv(Steps(2), transform).rollout(10, break_when_any_done=False)
    assert (data[BONUS][:, :4] == 0).all()
    assert (data[BONUS][:, 4:] > 0).all()
    assert method.calls == ["learn", *["score"] * 4, "learn", *["score"] * 2]
    assert transform.scalars["recording/rows"] == 8
    assert transform.scalars["intrinsic/bonus_mean"] > 0


def test_a_schedule_is_called_with_the_steps_before() -> None:
    eta = linear_schedule(1.0, 0.0, steps=20)
    module = IntrinsicRewardModule(Recording(), eta)
    etas = []
    for _ in range(3):
        module(Steps(2).rollout(5, break_when_any_done=False))
        etas.append(module.scalars["intrinsic/eta"])
    assert etas == [1.0, 0.5, 0.0]
    transform = IntrinsicRewardTransform(Recording(), eta, 100, pretrained=True)
    data = TransformedEnv(Steps(2), transform).rollout(12, break_when_any_done=False)
    ratio = (data[REWARD] - data[REWARD_ENV]) / data[BONUS]
    expected = torch.tensor([max(0.0, 1 - 2 * t / 20) for t in range(12)])
    torch.testing.assert_close(ratio[0, :, 0], expected)


class Images(gymnasium.Env):
    observation_space = Box(0, 255, (1, 36, 36), np.uint8)
    action_space = Discrete(3)

    def __init__(self) -> None:
        self.t = 0

    def _obs(self) -> Any:
        return self.np_random.integers(0, 256, (1, 36, 36), np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), 0.0, self.t == 5, False, {}


def made(name: str) -> EnvBase:
    match name:
        case "continuous":
            return GymEnv("MountainCarContinuous-v0")
        case "one-hot":
            return SerialEnv(2, lambda: GymEnv("CartPole-v1"))
        case "categorical":
            return GymEnv("CartPole-v1", categorical_action_encoding=True)
        case _:
            return GymWrapper(Images())


@pytest.mark.parametrize("name", ["continuous", "one-hot", "categorical", "images"])
@pytest.mark.parametrize("kind", ["EMI", "RND", "ICM"])
def test_spaces_and_encodings(name: str, kind: str) -> None:
    env = made(name)
    spaces = torchrl_spaces(env)
    if name != "continuous":
        assert spaces[1] == Discrete(3 if name == "images" else 2)
    settings = {"EMI": {"epochs": 1}, "RND": {"features": 8}, "ICM": {"epochs": 1}}[kind]
    method = getattr(emi, kind)(*spaces, getattr(emi, f"{kind}Config")(**settings))
    module = IntrinsicRewardModule(method, 1.0, action_spec=env.action_spec)
    data = env.rollout(20, break_when_any_done=False)
    if name == "images":
        assert data["observation"].dtype == torch.uint8
    module(data)
    assert torch.equal(data[REWARD], data[REWARD_ENV] + data[BONUS])
    assert (data[BONUS] > 0).all()
    assert (data["action"].ndim > data.ndim) == (name != "categorical")
    transform = IntrinsicRewardTransform(method, 1.0, learn_every=10, pretrained=True)
    data = TransformedEnv(env, transform).rollout(11, break_when_any_done=False)
    assert (data[BONUS] > 0).all()


def test_spaces_of_specs() -> None:
    env = Steps(3)
    env.observation_spec = Composite(
        observation=Bounded(-1.0, 2.0, (3, 2)),
        camera=Bounded(0, 255, (3, 4, 4), dtype=torch.uint8),
        shape=[3],
    )
    env.action_spec = OneHot(4, shape=(3, 4))
    both, actions = torchrl_spaces(env, ["observation", "camera"])
    assert both == Dict(observation=Box(-1, 2, (2,)), camera=Box(0, 255, (4, 4), np.uint8))
    assert actions == Discrete(4)
    env.action_spec = Unbounded((3, 2))
    assert torchrl_spaces(env) == (Box(-1, 2, (2,)), Box(-np.inf, np.inf, (2,)))


def test_several_keys_are_a_dict() -> None:
    module = IntrinsicRewardModule(Recording(), 1.0, in_keys=["a", ("b", "c")])
    data = TensorDict({"a": torch.ones(4, 2), "b": {"c": torch.zeros(4, 3)}}, [4])
    from emi.adapters.torchrl import _observation

    parts = _observation(module.observation_keys, data.get)
    assert {name: part.shape for name, part in parts.items()} == {"a": (4, 2), "b.c": (4, 3)}
    assert ("next", "b", "c") in module.in_keys


def test_what_is_rejected() -> None:
    data = Steps(2).rollout(10, break_when_any_done=False)
    module = IntrinsicRewardModule(Recording(), 1.0)
    padded = split_trajectories(data, done_key="done")
    with pytest.raises(UserError, match="split_trajs=False"):
        module(padded)
    with pytest.raises(UserError, match="axis of time"):
        module(data[0, 0])
    module(data)
    with pytest.raises(UserError, match="already"):
        module(data)
    one_hot = SerialEnv(2, lambda: GymEnv("CartPole-v1")).rollout(3)
    with pytest.raises(UserError, match=r"action_spec=env\.action_spec"):
        module(one_hot)
    with pytest.raises(UserError, match="eta"):
        IntrinsicRewardModule(Recording(), -1.0)
    with pytest.raises(UserError, match="learn_every"):
        IntrinsicRewardTransform(Recording(), 1.0, 0)
    with pytest.raises(UserError, match="IntrinsicRewardModule for batches"):
        IntrinsicRewardTransform(Recording(), 1.0, 1)(data)
    with pytest.raises(NotFiniteError):
        IntrinsicRewardModule(Recording(float("nan")), 1.0)(Steps(2).rollout(3))


def test_a_transform_that_changes_the_observation_afterwards_is_rejected() -> None:
    ours = IntrinsicRewardTransform(Recording(), 1.0, 5)
    norm = ObservationNorm(loc=1.0, scale=2.0, in_keys=["observation"])
    with pytest.raises(UserError, match="append IntrinsicRewardTransform after it"):
        TransformedEnv(Steps(2), Compose(ours, norm)).rollout(2)
    # In the right order it reads what the policy reads, before and after the action.
    method = Recording()
    ours = IntrinsicRewardTransform(method, 1.0, 5)
    norm = ObservationNorm(loc=1.0, scale=2.0, in_keys=["observation"])
    env = TransformedEnv(Steps(2), Compose(norm, ours, RewardSum(), StepCounter()))
    data = env.rollout(5, break_when_any_done=False)
    (batch,) = method.learnt
    torch.testing.assert_close(batch.next_obs, batch.obs + torch.tensor([0.0, 2.0]))
    assert torch.equal(batch.obs, data["observation"].transpose(0, 1).reshape(-1, 2))


def test_an_end_without_its_observation_gets_no_bonus() -> None:
    data = Steps(3).rollout(30, break_when_any_done=False)
    done = data["next", "done"][..., 0]
    data["next", "observation"][done] = torch.nan
    module = IntrinsicRewardModule(method := Recording(), 1.0)
    module(data)
    assert len(method.learnt[0]) == int((~done).sum()) < 90
    assert (data[BONUS][..., 0] == 0).equal(done)
    assert method.learnt[0].next_obs.isfinite().all()
    data = Steps(3).rollout(30, break_when_any_done=False)
    data["next", "observation"][1, 7] = torch.nan
    data["next", "done"][1, 7] = False
    with pytest.raises(UserError, match="middle of an episode"):
        module(data)


def test_only_environments_that_were_stepped_are_used() -> None:
    """TorchRL's rollouts stop finished environments one by one."""
    method = Recording()
    env = TransformedEnv(Steps(4), IntrinsicRewardTransform(method, 1.0, 1, pretrained=True))
    env.rollout(40, break_when_any_done=False, break_when_all_done=True)
    env_index, ended = column(method.learnt, "env_index"), column(method.learnt, "ended")
    for one in range(4):  # one episode each, and nothing after its end
        assert ended[env_index == one].nonzero().tolist() == [[int((env_index == one).sum()) - 1]]
    assert torch.equal(column(method.scored, "obs"), column(method.learnt, "obs"))


def test_pending_transitions_are_copies() -> None:
    """Environments may write their next observation to the same tensor."""
    pending, obs = Pending(), torch.ones(2, 3)
    for step in range(2):
        index, ended = torch.arange(2), torch.zeros(2, dtype=torch.bool)
        pending.add(Transitions(obs, index, obs, index, ended))
        obs *= 0 if step == 0 else 5
    batch = pending.take()
    assert batch is not None
    assert batch.obs[:, 0].tolist() == [1, 1, 0, 0]
    assert (pending.steps, pending.take()) == (0, None)


def test_the_state_continues_bit_for_bit() -> None:
    def build() -> tuple[Any, Any, Any]:
        spaces = Box(-np.inf, np.inf, (2,)), Discrete(2)
        method = emi.NormalizeReward(emi.EMI(*spaces, emi.EMIConfig(minibatch=16)))
        eta = linear_schedule(1.0, 0.0, 500)
        module = IntrinsicRewardModule(method, eta)
        transform = IntrinsicRewardTransform(emi.RND(*spaces), eta, learn_every=7)
        return module, transform, TransformedEnv(Steps(2), transform)

    first, second, third = (
        Steps(2, seed=k).rollout(20, break_when_any_done=False) for k in range(3)
    )
    module, transform, env = build()
    module(first)
    module(second)
    torch.manual_seed(0)
    env.rollout(10, break_when_any_done=False)  # three steps are not trained on yet
    state, steps = copy.deepcopy(module.state_dict()), copy.deepcopy(env.state_dict())
    again, transform_again, env_again = build()
    again.load_state_dict(state)
    env_again.load_state_dict(steps)
    assert (again.steps, transform_again.steps) == (80, 20)
    assert torch.equal(module(third.clone())[REWARD], again(third)[REWARD])
    results = []
    for each in (env, env_again):
        each.base_env.episodes = 0
        each.set_seed(3)
        torch.manual_seed(1)
        results.append(each.rollout(15, break_when_any_done=False))
    assert torch.equal(results[0][BONUS], results[1][BONUS])
    assert (results[0][BONUS] > 0).all()
    assert transform.scalars == transform_again.scalars


@contextmanager
def no_arrays(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors of data cannot become arrays or leave their device; indices of minibatches may."""

    def forbid(name: str) -> None:
        original = getattr(Tensor, name)

        def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.dtype != torch.int64:
                raise AssertionError(f"Tensor.{name} of {self.dtype}")
            return original(self, *args, **kwargs)

        patch.setattr(Tensor, name, method)

    with patch.context():
        for name in ("numpy", "cpu", "__array__"):
            forbid(name)
        yield


@pytest.mark.parametrize("name", ["EMI", "RND", "ICM", "SimHash", "NormalizeReward"])
def test_no_data_leaves_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = Box(-np.inf, np.inf, (2,)), Discrete(2)
    method = getattr(emi, "EMI" if name == "NormalizeReward" else name)(*spaces)
    if name == "NormalizeReward":
        method = emi.NormalizeReward(emi.NormalizeObservation(method, spaces[0]))
    data = Steps(4).rollout(64, break_when_any_done=False)
    module = IntrinsicRewardModule(method, 1.0)
    env = TransformedEnv(Steps(4), IntrinsicRewardTransform(method, 1.0, learn_every=8))
    env.rollout(1)
    with no_arrays(monkeypatch):
        module(data.clone())
        module(data.clone())
        env.rollout(20, break_when_any_done=False)
        with pytest.raises(AssertionError, match=r"Tensor\.numpy"):
            data[REWARD].numpy()
    assert module.steps == 512


def test_import_of_the_adapters_does_not_need_torchrl() -> None:
    check = "import sys, emi.adapters; print({'torchrl', 'skrl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_pages_python_runs() -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(snippets) == 3
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet, names)
    assert names["intrinsic"].steps == 4_096
    assert "emi/loss_linear" in names["intrinsic"].scalars
    assert names["transform"].steps >= 1_024
