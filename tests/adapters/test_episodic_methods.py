"""Methods with an episodic memory in every trainer: it begins and ends with the episodes.

The observation is (episode, t). A method that counts the steps of each episode must give every step
the bonus t.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv
from skrl.envs.wrappers.torch import wrap_env
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv
from test_skrl import Watched, agent_of, train, walks
from test_stable_baselines3 import oracles, ppo
from test_torchrl import BONUS, Steps, oracle
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.envs import TransformedEnv

from emi.adapters import (
    IntrinsicRewardCallback,
    IntrinsicRewardModule,
    IntrinsicRewardTransform,
    IntrinsicRewardVectorWrapper,
    add_intrinsic_reward,
)
from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.episodes import EpisodicMemory, Memory, Streams
from emi.intrinsic.ngu import NGU, NGUConfig
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.pseudo_counts import PseudoCountsConfig
from emi.intrinsic.rnd import RNDConfig
from emi.intrinsic.weighted_sum import WeightedSum

SAME, NEXT, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
MODES = pytest.mark.parametrize("mode", [SAME, NEXT, DISABLED], ids=lambda mode: mode.name)


class StepsInEpisode(IntrinsicReward):
    """The number of earlier steps of the same episode; keeps what it scored as a whole."""

    episodic = True

    def __init__(self) -> None:
        super().__init__()
        self.memory = EpisodicMemory(count=torch.tensor(0.0))
        self.scored: list[tuple[Tensor, Transitions]] = []

    def _score(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        streams = Streams.of(batch, torch.device("cpu"))
        rows, counts = self.memory.rows(streams.envs, before), []
        for t in range(len(streams)):
            counts.append(rows["count"][: streams.envs].clone())
            rows["count"][: streams.envs] += streams.present[t]
            self.memory.begin(rows, streams.ended[t])
        return streams.flat(torch.stack(counts)), rows

    def reward(self, batch: Transitions) -> Tensor:
        return self._score(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        bonus, rows = self._score(batch)
        self.scored.append((bonus, batch))
        self.memory.store(rows)
        return {"steps/rows": float(len(batch))}

    def scorer(self) -> Any:
        return self.memory.scorer(self._score)

    def forget(self, envs: Any) -> None:
        self.memory.forget(envs)


def assert_all_are_t(method: StepsInEpisode, rows: int, column: int = 1) -> None:
    """Every row that was learned has the bonus t, the entry `column` of its s."""
    bonus = torch.cat([bonus for bonus, _ in method.scored])
    obs = np.concatenate([np.asarray(batch.obs) for _, batch in method.scored])
    assert len(bonus) == rows
    np.testing.assert_array_equal(bonus, obs[:, column])


def in_a_sum(method: IntrinsicReward) -> IntrinsicReward:
    """Wrapped as users wrap methods; the first number of a bonus of 0 is 0."""
    return WeightedSum({"steps": (method, 1.0)})


@pytest.mark.filterwarnings("ignore:.*scored, which is not saved")
@MODES
@pytest.mark.parametrize("wrap", [lambda m: m, in_a_sum], ids=["alone", "in a sum"])
def test_the_wrapper_also_with_early_resets(mode: AutoresetMode, wrap: Any) -> None:
    method, rng = StepsInEpisode(), np.random.default_rng(0)
    envs = IntrinsicRewardVectorWrapper(
        OracleVectorEnv(3, mode), wrap(method), 1.0, learn_every=4, pretrained=True
    )
    obs, _ = envs.reset(seed=0)
    checked = early = 0
    for _ in range(150):
        after, _, terminated, truncated, info = envs.step(np.zeros(3, np.int64))
        scored = info["_bonus"]
        np.testing.assert_array_equal(info["bonus"][scored], obs[scored, 1])
        checked += scored.sum()
        obs, ended = after, terminated | truncated
        reset = (ended if mode is DISABLED else np.zeros(3, bool)) | (rng.random(3) < 0.05)
        early += (reset & ~ended).sum()
        if reset.all():
            obs, _ = envs.reset()
        elif reset.any():
            obs, _ = envs.reset(options={"reset_mask": reset})
        if rng.random() < 0.1:  # a restored wrapper continues
            state, wrapper = envs.state_dict(), envs
            method = StepsInEpisode()
            envs = IntrinsicRewardVectorWrapper(wrapper.env, wrap(method), 1.0, 4)
            envs.load_state_dict(state)
    assert checked > 300
    assert early > 10


@pytest.mark.filterwarnings("ignore:.*scored, which is not saved")
def test_a_loaded_wrapper_forgets_the_steps_since_the_state() -> None:
    inner = OracleVectorEnv(2, SAME, mean_length=1e9)
    envs = IntrinsicRewardVectorWrapper(inner, StepsInEpisode(), 1.0, 4, pretrained=True)
    envs.reset(seed=0)
    for step in range(6):
        assert envs.step(np.zeros(2, np.int64))[-1]["bonus"].tolist() == [step, step]
    state = envs.state_dict()
    envs.step(np.zeros(2, np.int64))
    envs.load_state_dict(state)
    assert envs.step(np.zeros(2, np.int64))[-1]["bonus"].tolist() == [6, 6]


@MODES
def test_ngu_remembers_nothing_of_an_earlier_episode(mode: AutoresetMode) -> None:
    """After every step: s₀ to s_t of the current episodes, and nothing where one ended."""
    inner = OracleVectorEnv(3, mode)
    parts = PseudoCountsConfig(width=2, hidden=()), RNDConfig(features=4, hidden=(4,))
    config = NGUConfig(episodic=parts[0], lifelong=parts[1])
    method = NGU(inner.single_observation_space, inner.single_action_space, config)
    envs = IntrinsicRewardVectorWrapper(inner, method, 1.0, learn_every=1)
    envs.reset(seed=0)
    before = np.zeros(3, bool)
    for _ in range(60):
        *_, terminated, truncated, info = envs.step(np.zeros(3, np.int64))
        ended = terminated | truncated
        reached = np.array([i[1] for i in inner.state])
        expected = np.where(ended | (before & (mode is NEXT)), 0, reached + 1)
        length = method.counts.memory.get_extra_state()["length"]
        np.testing.assert_array_equal(length, expected)
        before = ended
        if mode is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    assert info["bonus"].any()


@MODES
def test_rollouts_of_our_trainer(mode: AutoresetMode) -> None:
    """An iteration starts from a reset: the memory is empty after each."""
    method, envs = StepsInEpisode(), OracleVectorEnv(3, mode)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(*spaces, PolicyConfig(hidden=(2,)), torch.Generator().manual_seed(0))
    steps = 0
    for seed in range(3):
        rollout = collect(envs, policy, 60, np.random.default_rng(0), seed)
        method.learn(rollout.transitions(lambda action: action))
        steps += rollout.steps
        assert method.memory.get_extra_state()["count"].tolist() == [0, 0, 0]
    assert_all_are_t(method, steps)


def test_stable_baselines3_also_when_learn_resets() -> None:
    method = StepsInEpisode()
    callback, model = IntrinsicRewardCallback(method, 0.5), ppo(oracles())
    for kwargs in ({}, {"reset_num_timesteps": False}, {}, {}):
        model.learn(64, callback=callback, **kwargs)
    assert_all_are_t(method, 4 * 64, column=2)


class Reset(DummyVecEnv):
    """Resets are counted."""

    resets = 0

    def reset(self) -> Any:
        self.resets += 1
        return super().reset()


def test_stable_baselines3_with_another_environment() -> None:
    method = StepsInEpisode()
    callback, model = IntrinsicRewardCallback(method, 0.5), ppo(oracles(kind=Reset))
    model.learn(64, callback=callback)
    model.set_env(oracles(kind=Reset))
    model.learn(64, callback=callback, reset_num_timesteps=False)
    assert model.env.unwrapped.resets == 1  # type: ignore[union-attr]
    assert_all_are_t(method, 2 * 64, column=2)


# Not SAME_STEP with resets: TorchRL then joins an observation of one episode to the next.
@pytest.mark.parametrize(
    ("kind", "reset_at_each_iter"),
    [
        ("torchrl", False),
        ("torchrl", True),
        ("SAME_STEP", False),
        ("DISABLED", False),
        ("DISABLED", True),
    ],
)
def test_the_torchrl_module(kind: str, reset_at_each_iter: bool) -> None:
    module = IntrinsicRewardModule(method := StepsInEpisode(), 1.0)
    collector = Collector(
        oracle(kind, 3),
        None,
        frames_per_batch=30,
        total_frames=150,
        reset_at_each_iter=reset_at_each_iter,
    )
    for data in collector:
        module(data)
        torch.testing.assert_close(data[BONUS][..., 0], data["observation"][..., 1])
    collector.shutdown()
    assert_all_are_t(method, 150)


def test_batches_of_different_numbers_of_environments() -> None:
    module = IntrinsicRewardModule(StepsInEpisode(), 1.0)
    for envs in (3, 1, 4, 4):
        data = Steps(envs, seed=envs).rollout(12, break_when_any_done=False)
        module(data)
        torch.testing.assert_close(data[BONUS][..., 0], data["observation"][..., 1])


@pytest.mark.parametrize("transform", [False, True])
def test_torchrl_ends_without_their_observation(transform: bool) -> None:
    class Silent(Steps):
        def _step(self, tensordict: Any) -> Any:
            after = super()._step(tensordict)
            after["observation"][after["done"][..., 0]] = torch.nan
            return after

    env: Any = Silent(4)
    method = StepsInEpisode()
    module = IntrinsicRewardModule(method, 1.0)
    if transform:
        made = IntrinsicRewardTransform(method, 1.0, learn_every=3, pretrained=True)
        env = TransformedEnv(env, made)
    state, dropped = env.reset(), 0
    for _ in range(8):  # batches of a few steps: ends are often the first of theirs
        data = env.rollout(5, auto_reset=False, tensordict=state, break_when_any_done=False)
        state = env.step_mdp(data[:, -1])
        state = env.maybe_reset(state)
        if not transform:
            module(data)
        done = data["next", "done"][..., 0]
        dropped += int(done.sum())
        t = data["observation"][..., 1].masked_fill(done, 0)
        torch.testing.assert_close(data[BONUS][..., 0], t)
    assert dropped > 20


def test_the_torchrl_transform_also_with_early_resets() -> None:
    transform = IntrinsicRewardTransform(StepsInEpisode(), 1.0, learn_every=7, pretrained=True)
    env = TransformedEnv(Steps(3), transform)
    for _ in range(8):
        data = env.rollout(5, break_when_any_done=False)  # begins with a reset
        torch.testing.assert_close(data[BONUS][..., 0], data["observation"][..., 1])
        state = transform.state_dict()
        transform = IntrinsicRewardTransform(StepsInEpisode(), 1.0, learn_every=7)
        transform.load_state_dict(state)
        env = TransformedEnv(env.base_env, transform)


@pytest.mark.parametrize("mode", [SAME, NEXT], ids=lambda mode: mode.name)
def test_skrl_rollouts_and_a_second_training(mode: AutoresetMode, tmp_path: Path) -> None:
    inner, method = Watched(4, mode), StepsInEpisode()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("A2C", env, tmp_path, size=10)
    add_intrinsic_reward(agent, env, method, 1.0)
    for _ in range(2):
        train(agent, env, 30)
    assert_all_are_t(method, int(np.sum(inner.real)))


def test_skrl_ends_without_their_observation(tmp_path: Path) -> None:
    class Silent(Watched):
        def step(self, actions: Any) -> Any:
            *rest, _ = super().step(actions)
            return *rest, {}

    inner, method = Silent(4, SAME), StepsInEpisode()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("A2C", env, tmp_path, size=2)  # ends are often the first row of a batch
    add_intrinsic_reward(agent, env, method, 1.0)
    train(agent, env, 60)
    ended = int(np.sum(inner.ends))
    assert ended > 20
    assert_all_are_t(method, 240 - ended)


def test_trainers_with_a_replay_buffer_are_refused(tmp_path: Path) -> None:
    method = NormalizeReward(StepsInEpisode())
    model = DQN("MlpPolicy", oracles(1), seed=0, device="cpu")
    with pytest.raises(UserError, match=r"NormalizeReward remembers .* DQN draws .* on-policy"):
        model.learn(10, callback=IntrinsicRewardCallback(method, 1.0))
    env = wrap_env(walks(2, SAME, Box(-1, 1, (1,))), wrapper="gymnasium", verbose=False)
    with pytest.raises(UserError, match="SAC draws steps in no order"):
        add_intrinsic_reward(agent_of("SAC", env, tmp_path), env, method, 1.0)
