"""Dict observations in every adapter: no transition crosses an episode, and every method learns."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracle import STEPS
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)
from torch import Tensor

import emi
from emi.adapters import IntrinsicRewardCallback, IntrinsicRewardVectorWrapper, spaces_of
from emi.batch import Transitions, joined
from emi.images import FrameStack

SPACE = Dict({"who": Box(-np.inf, np.inf, (2,)), "time": Box(-np.inf, np.inf, (1,))})


class DictOracle(gymnasium.Env):
    """{"who": (environment, episode), "time": t, "parity": t mod 2}; ends at random."""

    def __init__(self, number: int) -> None:
        self.observation_space = Dict({**SPACE.spaces, "parity": Discrete(2)})
        self.action_space = Discrete(3)
        self.number, self.episode, self.t = number, 0, 0
        self.rng = np.random.default_rng(number)

    def _obs(self) -> dict[str, Any]:
        who = np.array([self.number, self.episode], np.float32)
        return {"who": who, "time": np.array([self.t], np.float32), "parity": self.t % 2}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        terminated, truncated = (bool(x) for x in self.rng.random(2) < 0.1)
        return self._obs(), 1.0, terminated, truncated, {}


class Recording(emi.IntrinsicReward):
    def __init__(self) -> None:
        super().__init__()
        self.learnt: list[Transitions] = []
        self.scored: list[Transitions] = []

    def reward(self, batch: Transitions) -> Tensor:
        self.scored.append(batch)
        return torch.as_tensor(np.asarray(batch.next_obs["time"])[:, 0])

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.learnt.append(batch)
        return {"recording/rows": float(len(batch))}


def check(batch: Transitions) -> None:
    obs, after = ({k: np.asarray(v) for k, v in c.items()} for c in (batch.obs, batch.next_obs))
    np.testing.assert_array_equal(obs["who"], after["who"])
    np.testing.assert_array_equal(obs["time"] + 1, after["time"])
    for columns in (obs, after):
        np.testing.assert_array_equal(columns["parity"].reshape(-1), columns["time"][:, 0] % 2)


@pytest.mark.filterwarnings("ignore:Recording changed")
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_gymnasium_wrapper(mode: AutoresetMode) -> None:
    envs = SyncVectorEnv([lambda i=i: DictOracle(i) for i in range(5)], autoreset_mode=mode)
    method = Recording()
    wrapped = IntrinsicRewardVectorWrapper(envs, method, 1.0, learn_every=50, pretrained=True)
    method.scored.clear()
    wrapped.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 3, (STEPS // 5, 5))
    for action in actions:
        _, reward, _, _, info = wrapped.step(action)
    batch = joined(method.learnt)
    check(batch)
    assert len(batch) == (STEPS if mode is AutoresetMode.SAME_STEP else wrapped.steps) > STEPS / 2
    check(joined(method.scored))
    state = wrapped.state_dict()
    wrapped.load_state_dict(state)
    np.testing.assert_array_equal(reward, info["reward_env"] + info["bonus"])


def small(kind: Any, env: Any, **settings: Any) -> Any:
    nets = {"net_arch": [8]}
    return kind("MultiInputPolicy", env, policy_kwargs=nets, device="cpu", seed=0, **settings)


@pytest.mark.parametrize("normalize", [False, True])
def test_rollouts_of_stable_baselines3(normalize: bool) -> None:
    env: Any = DummyVecEnv([lambda i=i: DictOracle(i) for i in range(4)])
    if normalize:
        env = VecNormalize(env, clip_obs=0.5, norm_obs_keys=["who", "time"])
    model, method = small(PPO, env, n_steps=500, batch_size=500, n_epochs=1), Recording()
    model.learn(STEPS // 2, callback=IntrinsicRewardCallback(method, 0.001), log_interval=10**6)
    batch = joined(method.learnt)
    check(batch)
    assert len(batch) >= STEPS // 2
    assert batch.ended is not None
    assert 0.1 < np.mean(np.asarray(batch.ended)) < 0.3


def test_rows_of_a_dict_replay_buffer() -> None:
    env = DummyVecEnv([lambda i=i: DictOracle(i) for i in range(4)])
    model = small(DQN, env, buffer_size=4_000, learning_starts=200, batch_size=64, train_freq=50)
    method = Recording()
    model.learn(STEPS, callback=IntrinsicRewardCallback(method, 0.1, learn_every=100))
    learnt, drawn = joined(method.learnt), joined(method.scored[1:])
    check(learnt)
    check(drawn)
    assert len(learnt) >= STEPS - 400
    assert len(drawn) > 1_000


@pytest.mark.parametrize("name", ["emi", "icm", "rnd", "ex2", "simhash", "vime"])
def test_every_method_trains_on_dicts(name: str) -> None:
    env = DummyVecEnv([lambda i=i: DictOracle(i) for i in range(2)])
    model = small(PPO, env, n_steps=64, batch_size=64, n_epochs=1)
    callback = IntrinsicRewardCallback(emi.bonus(name, *spaces_of(model)), 1.0)
    model.learn(256, callback=callback, log_interval=10**6)
    assert np.isfinite(model.logger.name_to_value["intrinsic/bonus_mean"])


class Frames(gymnasium.Env):
    """Images that count the steps."""

    observation_space = Box(0, 255, (40, 40, 1), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros((40, 40, 1), np.uint8), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full((40, 40, 1), self.t % 256, np.uint8), 0.0, self.t == 20, False, {}


def test_stacks_are_known_from_the_wrappers() -> None:
    def model(env: Any) -> Any:
        extractor = {"features_extractor_kwargs": {"features_dim": 8}}
        return PPO(
            "CnnPolicy", env, n_steps=32, batch_size=32, policy_kwargs=extractor, device="cpu"
        )

    stacked = model(VecTransposeImage(VecFrameStack(DummyVecEnv([Frames]), 4)))
    space, _ = spaces_of(stacked)
    assert isinstance(space, FrameStack)
    assert (space.frames, space.shape) == (4, (4, 40, 40))
    method = emi.EMI(*spaces_of(stacked))
    stacked.learn(32, callback=IntrinsicRewardCallback(method, 1.0))
    assert method.entries.channels == 1  # type: ignore[union-attr]

    whole, _ = spaces_of(model(DummyVecEnv([Frames])))
    assert not isinstance(whole, FrameStack)
    grey = gymnasium.wrappers.TransformObservation(
        Frames(), lambda x: x[..., 0], Box(0, 255, (40, 40), np.uint8)
    )
    own = DummyVecEnv([lambda: gymnasium.wrappers.FrameStackObservation(grey, 3)])
    space, _ = spaces_of(model(own))
    assert isinstance(space, FrameStack)
    assert space.frames == 3
