"""The callback gives true successors and raw observations, and its bonus reaches the gradient."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from safetensors.torch import save_file
from sb3_contrib import ARS, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecNormalize,
)
from torch import Tensor

from emi.adapters.schedule import Decay, Eta
from emi.adapters.stable_baselines3 import FORMAT, IntrinsicRewardCallback
from emi.batch import Array, Transitions, as_tensor
from emi.errors import NotFiniteError, UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.rnd import RND, RNDConfig

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "stable_baselines3.md"
NEVER = 1_000_000  # rollouts between two dumps of the log: what was recorded stays to be read
THREE = Discrete(3)


class Oracle(gymnasium.Env):
    """obs = (environment, episode, t, last action); reward = t; ends by either flag or both."""

    def __init__(
        self, number: int, action_space: gymnasium.Space, end_chance: float, scale: float = 1.0
    ) -> None:
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = action_space
        self.number, self.end_chance, self.scale = number, end_chance, scale
        self.rng = np.random.default_rng(number)
        self.episode, self.t, self.action = 0, 0, 0.0

    def _obs(self) -> Array:
        return np.array([self.number, self.episode, self.t, self.action], np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        self.episode, self.t, self.action = self.episode + 1, 0, 0.0
        return self._obs(), {}

    def action_masks(self) -> Array:
        return np.ones(3, bool)  # for MaskablePPO

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t, self.action = self.t + 1, float(np.ravel(action)[0])
        terminated, truncated = (bool(x) for x in self.rng.random(2) < self.end_chance)
        return self._obs(), self.scale * self.t, terminated, truncated, {}


class ImageOracle(Oracle):
    """The same in pixels, [36, 36, 1]: rows of episode, t and action, modulo 256."""

    def __init__(self, number: int) -> None:
        super().__init__(number, THREE, 0.1)
        self.observation_space = Box(0, 255, (36, 36, 1), np.uint8)

    def _obs(self) -> Array:
        image = np.zeros((36, 36, 1), np.uint8)
        image[:3, :, 0] = np.array([[self.episode], [self.t], [int(self.action)]]) % 256
        return image


class Recording(IntrinsicReward):
    """A constant bonus; keeps every batch that it is trained on."""

    def __init__(self, bonus: float = 0.0) -> None:
        super().__init__()
        self.bonus = bonus
        self.batches: list[Transitions] = []

    def reward(self, batch: Transitions) -> Tensor:
        return torch.full((len(batch),), self.bonus)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.batches.append(batch[:])
        return {"recording/rows": float(len(batch))}

    def of(self, env: int) -> tuple[Array, Array, Array, Array]:
        """obs, action, next_obs and ended of one environment in time order, all batches."""
        names = ("obs", "action", "next_obs", "ended")
        parts = [batch[batch.env_index == env] for batch in self.batches]
        columns = ([getattr(p, name) for p in parts] for name in names)
        obs, action, next_obs, ended = (np.concatenate(column) for column in columns)
        return obs, action, next_obs, ended


class ActionBonus(Recording):
    """The bonus is the action, which the environment does not reward."""

    def reward(self, batch: Transitions) -> Tensor:
        return as_tensor(batch.action).float().reshape(len(batch), -1)[:, 0]


class Probe(BaseCallback):
    """Counts the ends of episodes, and calls `rollout_end` with the model."""

    def __init__(self, rollout_end: Callable[[BaseAlgorithm], None] = lambda model: None) -> None:
        super().__init__()
        self.rollout_end = rollout_end
        self.ended = self.truncated = 0

    def _on_step(self) -> bool:
        self.ended += int(self.locals["dones"].sum())
        self.truncated += sum(info["TimeLimit.truncated"] for info in self.locals["infos"])
        return True

    def _on_rollout_end(self) -> None:
        self.rollout_end(self.model)


def oracles(
    envs: int = 2,
    action_space: gymnasium.Space = THREE,
    end_chance: float = 0.1,
    kind: type[VecEnv] = DummyVecEnv,
    **settings: Any,
) -> VecEnv:
    def maker(number: int) -> Callable[[], gymnasium.Env]:
        return lambda: Oracle(number, action_space, end_chance, **settings)

    options = {"start_method": "fork"} if kind is SubprocVecEnv else {}
    return kind([maker(number) for number in range(envs)], **options)  # type: ignore[call-arg]


def ppo(env: Any, n_steps: int = 32, **settings: Any) -> PPO:
    small = {"net_arch": [8]}
    defaults: dict[str, Any] = {"n_epochs": 1, "batch_size": n_steps, "policy_kwargs": small}
    return PPO("MlpPolicy", env, n_steps=n_steps, seed=0, device="cpu", **(defaults | settings))


def algorithm(kind: type[BaseAlgorithm], env: VecEnv) -> BaseAlgorithm:
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    settings: dict[str, Any] = {"n_steps": 32, "policy_kwargs": {"net_arch": [8]}}
    if kind is RecurrentPPO:
        settings["policy_kwargs"]["lstm_hidden_size"] = 8
    if kind is not A2C:
        settings["batch_size"] = 32
    if kind not in (A2C, TRPO):
        settings["n_epochs"] = 1
    return kind(policy, env, seed=0, device="cpu", **settings)


def weights(model: BaseAlgorithm) -> dict[str, Tensor]:
    """The policy and its optimizer, copied."""
    moments = {
        f"moment/{i}/{name}": torch.as_tensor(value).clone()
        for i, entry in model.policy.optimizer.state_dict()["state"].items()
        for name, value in entry.items()
    }
    return {name: value.clone() for name, value in model.policy.state_dict().items()} | moments


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    assert a.keys() == b.keys()
    assert len(a) > 0
    return all(torch.equal(a[name], b[name]) for name in a)


def check_oracle(method: Recording, envs: int, steps: int, ended: int) -> None:
    """Every step of every environment is there once, and none crosses the end of an episode."""
    crossings = marked = 0
    for env in range(envs):
        obs, action, next_obs, ended_here = method.of(env)
        assert len(obs) == steps
        number, episode, t, _ = obs.T
        assert (number == env).all()
        assert (next_obs[:, 0] == env).all()
        assert (next_obs[:, 1] == episode).all()
        assert (next_obs[:, 2] == t + 1).all()
        assert (next_obs[:, 3] == action.reshape(len(action))).all()
        assert (t[0], episode[0]) == (0, 1)
        goes_on = (obs[1:] == next_obs[:-1]).all(1)
        begins = (t[1:] == 0) & (episode[1:] == episode[:-1] + 1)
        assert (goes_on ^ begins).all()
        np.testing.assert_array_equal(ended_here[:-1], begins)
        crossings += int(begins.sum())
        marked += int(ended_here.sum())
    assert ended - envs <= crossings <= ended  # an end at the very last step begins nothing
    assert marked == ended


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv], ids=["dummy", "subprocess"])
def test_no_transition_crosses_an_episode_and_none_is_missing(kind: type[VecEnv]) -> None:
    envs, rollouts, n_steps, total = 50, 4, 500, 100_000
    env, method, probe = oracles(envs, end_chance=0.05, kind=kind), Recording(), Probe()
    model = ppo(env, n_steps, batch_size=n_steps * envs)
    try:
        model.learn(total, callback=[IntrinsicRewardCallback(method, 0.5), probe])
    finally:
        env.close()
    assert [len(batch) for batch in method.batches] == [25_000] * rollouts
    check_oracle(method, envs, rollouts * n_steps, probe.ended)
    # 0.0975 of the steps end; of these 0.0475 of the steps by time alone.
    assert probe.truncated > 0.045 * total
    assert probe.ended - probe.truncated > 0.047 * total


def test_training_continues_where_the_last_rollout_stopped() -> None:
    method, probe = Recording(), Probe()
    callbacks, model = [IntrinsicRewardCallback(method, 0.5), probe], ppo(oracles())
    model.learn(64, callback=callbacks)
    model.learn(64, callback=callbacks, reset_num_timesteps=False)
    check_oracle(method, 2, 64, probe.ended)


KINDS = [PPO, A2C, TRPO, RecurrentPPO, MaskablePPO]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_zero_changes_no_bit_and_a_bonus_changes_the_update(kind: type[BaseAlgorithm]) -> None:
    def trained(callback: BaseCallback | None, rollouts: int) -> dict[str, Tensor]:
        model = algorithm(kind, oracles(2))
        model.learn(64 * rollouts, callback=callback)
        return weights(model)

    plain = trained(None, 3)
    config = EMIConfig(minibatch=32, state_hidden=(8,))
    method = EMI(Box(-np.inf, np.inf, (4,), np.float32), THREE, config)
    untrained = {name: value.clone() for name, value in method.phi.state_dict().items()}
    assert same(plain, trained(IntrinsicRewardCallback(method, 0.0), 3))
    assert not same(untrained, method.phi.state_dict())
    # A bonus of 0 goes all the way: the buffer computes its advantages again, to the same bits.
    assert same(plain, trained(IntrinsicRewardCallback(Recording(0.0), 1.0), 3))
    assert not same(trained(None, 2), trained(IntrinsicRewardCallback(ActionBonus(), 1.0), 2))


def test_a_policy_follows_the_bonus() -> None:
    env = oracles(4, scale=0.0)
    model = ppo(env, 64, learning_rate=3e-2, n_epochs=2)
    method = ActionBonus()
    model.learn(4 * 64 * 20, callback=IntrinsicRewardCallback(method, 1.0))
    first, last = method.batches[0], method.batches[-1]
    assert as_tensor(first.action).float().mean() < 1.3
    assert as_tensor(last.action).float().mean() > 1.7


def snapshot(model: BaseAlgorithm) -> dict[str, Array]:
    buffer = model.rollout_buffer
    names = ("rewards", "values", "advantages", "returns", "episode_starts")
    return {name: getattr(buffer, name).copy() for name in names}


def around(callback: IntrinsicRewardCallback, model: BaseAlgorithm, steps: int) -> list[Any]:
    """The buffer before and after the callback, for each rollout."""
    seen: list[dict[str, Array]] = []
    keep = Probe(lambda model: seen.append(snapshot(model)))
    model.learn(steps, callback=[keep, callback, keep])
    return seen


def test_returns_of_a_constant_bonus_are_the_closed_form() -> None:
    # No reward, no end, λ = 1: the return is a geometric sum and the discounted last value.
    model = ppo(oracles(1, end_chance=0.0, scale=0.0), 32, gamma=0.9, gae_lambda=1.0)
    last = []
    values = Probe(
        lambda model: last.append(
            model.policy.predict_values(torch.as_tensor(model._last_obs)).item()
        )
    )
    seen: list[dict[str, Array]] = []
    after = Probe(lambda model: seen.append(snapshot(model)))
    callback = IntrinsicRewardCallback(Recording(3.0), 0.5)
    model.learn(32, callback=[values, callback, after])
    left = 32 - np.arange(32)
    expected = 1.5 * (1 - 0.9**left) / 0.1 + 0.9**left * last[0]
    np.testing.assert_allclose(seen[0]["rewards"], 1.5)
    np.testing.assert_allclose(seen[0]["returns"][:, 0], expected, rtol=1e-5)


def test_advantages_of_a_constant_bonus_stop_at_the_ends_of_episodes() -> None:
    callback, model = IntrinsicRewardCallback(Recording(3.0), 0.5), ppo(oracles(2), gae_lambda=0.8)
    before, after = around(callback, model, 64)
    ends = np.vstack([before["episode_starts"][1:], np.ones((1, 2))])
    assert 4 < ends.sum() < 30
    # Steps to the end of the episode, or of the rollout.
    left = np.zeros((32, 2))
    for t in reversed(range(32)):
        left[t] = 1 + (0 if t == 31 else (1 - ends[t]) * left[t + 1])
    k = 0.99 * 0.8
    gained = 1.5 * (1 - k**left) / (1 - k)
    np.testing.assert_allclose(
        after["advantages"] - before["advantages"], gained, rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(after["rewards"] - before["rewards"], 1.5, rtol=1e-5)
    np.testing.assert_allclose(after["returns"], after["advantages"] + after["values"])


def test_intrinsic_only_keeps_the_value_after_a_time_out() -> None:
    terminal_values: dict[tuple[int, int], float] = {}
    ended = np.zeros((32, 2), bool)

    class TimeOuts(BaseCallback):
        def _on_step(self) -> bool:
            for env, info in enumerate(self.locals["infos"]):
                at = (self.n_calls - 1, env)
                ended[at] = self.locals["dones"][env]
                if info["TimeLimit.truncated"]:
                    obs = torch.as_tensor(info["terminal_observation"])[None]
                    terminal_values[at] = self.model.policy.predict_values(obs).item()
            return True

    seen: list[dict[str, Array]] = []
    after = Probe(lambda model: seen.append(snapshot(model)))
    callback = IntrinsicRewardCallback(Recording(3.0), 0.5, intrinsic_only=True)
    model = ppo(oracles(2), 32, gamma=0.9)
    model.learn(64, callback=[TimeOuts(), callback, after])
    expected = np.full((32, 2), 1.5)
    for at, value in terminal_values.items():
        expected[at] += 0.9 * value
    assert 0 < len(terminal_values) < ended.sum()
    np.testing.assert_allclose(seen[0]["rewards"], expected, rtol=1e-5, atol=1e-5)


def test_vec_normalize_leaves_the_method_raw_observations(tmp_path: Path) -> None:
    # Observations are clipped at 0.5 standard deviations, which cannot be inverted.
    def normalized() -> VecNormalize:
        inner = [lambda n=n: Monitor(Oracle(n, THREE, 0.1)) for n in range(2)]
        return VecNormalize(DummyVecEnv(inner), clip_obs=0.5)

    env, method, probe = normalized(), Recording(1.0), Probe()
    evaluation = EvalCallback(normalized(), n_eval_episodes=1, eval_freq=40, verbose=0)
    model = ppo(env)
    model.learn(192, callback=[IntrinsicRewardCallback(method, 0.1), probe, evaluation])
    check_oracle(method, 2, 96, probe.ended)
    assert "step_wait" not in vars(env.venv)
    assert np.abs(model.rollout_buffer.observations).max() == 0.5


def test_rewards_scaled_around_normalised_observations() -> None:
    method, probe = Recording(1.0), Probe()
    env = VecNormalize(VecNormalize(oracles(2), norm_reward=False, clip_obs=0.5), norm_obs=False)
    ppo(env).learn(64, callback=[IntrinsicRewardCallback(method, 0.1), probe])
    check_oracle(method, 2, 32, probe.ended)


def test_vec_normalize_of_rewards_comes_before_the_bonus() -> None:
    env = VecNormalize(oracles(2), clip_reward=1.0)
    callback, model = IntrinsicRewardCallback(Recording(3.0), 0.5), ppo(env, gamma=0.0)
    before, after = around(callback, model, 64)
    assert np.abs(before["rewards"]).max() == 1.0
    np.testing.assert_allclose(after["rewards"], before["rewards"] + 1.5)


def test_stacks_are_what_the_policy_sees() -> None:
    method, probe = Recording(), Probe()
    env = VecNormalize(VecFrameStack(oracles(2), 2))
    ppo(env).learn(64, callback=[IntrinsicRewardCallback(method, 0.1), probe])
    assert probe.ended > 0
    for number in range(2):
        obs, _, next_obs, _ = method.of(number)
        assert obs.shape == (32, 8)
        assert (next_obs[:, :4] == obs[:, 4:]).all()
        assert (next_obs[:, 6] == obs[:, 6] + 1).all()


def test_images_come_as_the_policy_sees_them() -> None:
    env = DummyVecEnv([lambda: ImageOracle(0)])
    model = PPO(
        "CnnPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 8}},
    )  # fmt: skip
    assert model.observation_space.shape == (1, 36, 36)
    method = Recording()
    model.learn(64, callback=IntrinsicRewardCallback(method, 0.1))
    obs, action, next_obs, _ = method.of(0)
    assert obs.shape == (64, 1, 36, 36)
    assert obs.dtype == np.uint8
    assert (next_obs[:, 0, 0] == obs[:, 0, 0]).all()
    assert (next_obs[:, 0, 1] == obs[:, 0, 1] + 1).all()
    assert (next_obs[:, 0, 2, 0] == action).all()

    wrong = EMI(env.observation_space, env.action_space)
    with pytest.raises(ValueError, match=r"EMI was not built for .*spaces_of\(model\)"):
        model.learn(32, callback=IntrinsicRewardCallback(wrong, 0.1))
    right = EMI(model.observation_space, model.action_space, EMIConfig(minibatch=16))
    model.learn(32, callback=IntrinsicRewardCallback(right, 0.1), log_interval=NEVER)
    assert model.logger.name_to_value["intrinsic/bonus_mean"] > 0


@pytest.mark.parametrize("squashed", [False, True])
def test_actions_are_those_the_environment_got(squashed: bool) -> None:
    method, probe = Recording(), Probe()
    settings: dict[str, Any] = {}
    if squashed:
        settings = {"use_sde": True, "policy_kwargs": {"net_arch": [8], "squash_output": True}}
    env = oracles(2, Box(2.0, 3.0, (1,), np.float32))
    ppo(env, **settings).learn(64, callback=[IntrinsicRewardCallback(method, 0.1), probe])
    check_oracle(method, 2, 32, probe.ended)
    actions = np.concatenate([batch.action for batch in method.batches])
    assert ((actions >= 2) & (actions <= 3)).all()
    assert ((actions == 2) | (actions == 3)).any() != squashed


def test_eta_follows_the_steps_and_is_logged() -> None:
    calls: list[int] = []

    def schedule(steps: int) -> float:
        calls.append(steps)
        return steps / 64

    env = DummyVecEnv([lambda n=n: Monitor(Oracle(n, THREE, 0.5, scale=0.0)) for n in range(2)])
    model = ppo(env)
    model.learn(128, callback=IntrinsicRewardCallback(Recording(3.0), schedule), log_interval=NEVER)
    assert calls[-2:] == [64, 128]
    logged = model.logger.name_to_value
    assert logged["intrinsic/eta"] == 2
    assert logged["intrinsic/bonus_mean"] == 3
    assert logged["intrinsic/bonus_std"] == 0
    assert logged["intrinsic/share"] == 1
    assert logged["recording/rows"] == 64
    # Monitor is inside the environment: the bonus is not in its sums.
    assert {info["r"] for info in model.ep_info_buffer} == {0.0}


def test_share_of_the_bonus() -> None:
    class Fixed(Oracle):
        def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            obs, _, terminated, _, info = super().step(action)
            return obs, -1.0, terminated, False, info

    model = ppo(DummyVecEnv([lambda: Fixed(0, THREE, 0.1)]))
    model.learn(32, callback=IntrinsicRewardCallback(Recording(6.0), 0.5), log_interval=NEVER)
    assert model.logger.name_to_value["intrinsic/share"] == 0.75


def etas_of(model: BaseAlgorithm, callback: IntrinsicRewardCallback, **learn: Any) -> list[float]:
    """The coefficient of each rollout of a training of 8 rollouts."""
    etas: list[float] = []
    log = Probe(lambda model: etas.append(model.logger.name_to_value["intrinsic/eta"]))
    model.learn(8 * 64, callback=[callback, log], log_interval=NEVER, **learn)
    return etas


def test_by_default_the_coefficient_falls_to_0_over_the_first_half() -> None:
    model, callback = ppo(oracles()), IntrinsicRewardCallback(Recording(0.01))
    assert etas_of(model, callback) == [0.75, 0.5, 0.25, 0, 0, 0, 0, 0]
    # SB3 counts on: this is the second half of 16 rollouts.
    assert etas_of(model, callback, reset_num_timesteps=False) == [0] * 8
    assert etas_of(model, callback) == [0.75, 0.5, 0.25, 0, 0, 0, 0, 0]
    slower = IntrinsicRewardCallback(Recording(0.01), Decay(2.0, steps=16 * 64))
    assert etas_of(ppo(oracles()), slower)[:4] == [1.875, 1.75, 1.625, 1.5]


def test_a_bonus_that_stays_large_warns() -> None:
    def learn(eta: Eta, *, intrinsic_only: bool = False, reward: float = 1.0) -> None:
        callback = IntrinsicRewardCallback(Recording(100.0), eta, intrinsic_only=intrinsic_only)
        ppo(oracles(scale=reward)).learn(12 * 64, callback=callback)

    with pytest.warns(UserWarning, match="let eta fall to 0") as caught:
        learn(1.0)
    assert len(caught) == 1
    # Warnings are errors: none of these warns.
    learn(Decay(1.0))
    learn(1e-4)
    learn(1.0, intrinsic_only=True)
    learn(1.0, reward=0.0)


@pytest.mark.parametrize("kind", ["emi", "rnd"])
def test_a_restored_method_continues_as_if_never_stopped(kind: str, tmp_path: Path) -> None:
    def make() -> EMI | RND:
        spaces = Box(-np.inf, np.inf, (4,), np.float32), THREE
        if kind == "emi":
            return EMI(*spaces, EMIConfig(minibatch=16, state_hidden=(8,)), seed=3)
        return RND(*spaces, RNDConfig(features=8, hidden=(8,)), seed=3)

    def scalars_of_next(callback: IntrinsicRewardCallback) -> dict[str, float]:
        model = ppo(oracles(2))
        model.learn(64, callback=callback, log_interval=NEVER)
        ours = ("intrinsic/", f"{kind}/")
        return {k: v for k, v in model.logger.name_to_value.items() if k.startswith(ours)}

    class SavesInside(BaseCallback):
        def _on_rollout_end(self) -> None:
            self.model.save(tmp_path / "model.zip")

        def _on_step(self) -> bool:
            return True

    first = IntrinsicRewardCallback(make(), 0.1)
    env = VecNormalize(oracles(2))
    ppo(env).learn(128, callback=[first, SavesInside()])
    first.save(tmp_path / "bonus.safetensors")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["bonus.safetensors", "model.zip"]
    assert PPO.load(tmp_path / "model.zip", env=env, device="cpu").num_timesteps == 128

    second = IntrinsicRewardCallback(make(), 0.1)
    second.load(str(tmp_path / "bonus.safetensors"))
    second.save(tmp_path / "again.safetensors")
    original, again = (tmp_path / f"{n}.safetensors" for n in ("bonus", "again"))
    assert original.read_bytes() == again.read_bytes()
    assert torch.equal(
        first.method.descent.generator.get_state(),  # type: ignore[attr-defined]
        second.method.descent.generator.get_state(),  # type: ignore[attr-defined]
    )
    expected = scalars_of_next(first)
    assert len(expected) > 5
    assert scalars_of_next(second) == expected
    assert scalars_of_next(IntrinsicRewardCallback(make(), 0.1)) != expected


def test_files_that_are_not_of_this_method(tmp_path: Path) -> None:
    vectors, path = Box(-1, 1, (4,)), tmp_path / "bonus.safetensors"
    rnd = IntrinsicRewardCallback(RND(vectors, THREE, RNDConfig(features=8, hidden=(8,))), 0.1)
    rnd.save(path)
    with pytest.raises(ValueError, match=r"holds the state of RND, not of EMI$"):
        IntrinsicRewardCallback(EMI(vectors, THREE), 0.1).load(path)
    wider = IntrinsicRewardCallback(RND(vectors, THREE, RNDConfig(features=16, hidden=(8,))), 0.1)
    with pytest.raises(
        ValueError, match="is the state of RND with other spaces or another config: build"
    ):
        wider.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        rnd.load(path)
    with pytest.raises(UserError, match=r"there is no file .*gone"):
        rnd.load(tmp_path / "gone")


def test_a_file_of_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment of another shape made Adam write outside its memory."""
    method = RND(Box(-1, 1, (4,)), THREE, RNDConfig(features=8, hidden=(8,)))
    callback, path = IntrinsicRewardCallback(method, 0.1), tmp_path / "bonus.safetensors"
    state = copy.deepcopy(dict(method.state_dict()))
    moments = {"step": torch.ones(()), "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    state["descent._extra_state"]["optimizer"]["state"][0] = moments
    with monkeypatch.context() as patched:
        patched.setattr(method, "state_dict", lambda: state)
        callback.save(path)
    with pytest.raises(UserError, match=r"RND\.descent\.optimizer\.state\.0\.exp_avg has shape"):
        callback.load(path)
    for metadata in ("[]", "{", "[" * 10_000, '{"version": 1, "method": "RND", "state": 3}'):
        save_file({}, path, {FORMAT: metadata})
        with pytest.raises(UserError):
            callback.load(path)


def test_algorithms_without_a_buffer_of_rewards_are_rejected() -> None:
    model = ARS("LinearPolicy", Oracle(0, THREE, 0.1), n_delta=1, device="cpu")
    message = r"supports PPO, A2C, .*, and SAC, TD3, .*; ARS is not supported$"
    with pytest.raises(ValueError, match=message):
        model.learn(10, callback=IntrinsicRewardCallback(Recording(), 0.1))


def test_spaces_that_are_not_supported() -> None:
    class Other(Oracle):
        def __init__(self, observation_space: gymnasium.Space, actions: gymnasium.Space) -> None:
            super().__init__(0, actions, 0.1)
            self.observation_space = observation_space

        def _obs(self) -> Any:
            return self.observation_space.sample()

    vectors = Box(-1, 1, (4,))
    cases = {
        "Recording was not built": (vectors, THREE),
    }
    for message, (observations, actions) in cases.items():
        method = Recording()
        if "built" in message:
            method.reward = lambda batch: batch.obs[:, 99]  # type: ignore[assignment]
        model = ppo(DummyVecEnv([lambda o=observations, a=actions: Other(o, a)]))
        with pytest.raises(ValueError, match=message):
            model.learn(32, callback=IntrinsicRewardCallback(method, 0.1))
    images = Box(0, 255, (1, 40, 40), np.uint8)
    pictures = VecNormalize(DummyVecEnv([lambda: Other(images, THREE)]))
    model = PPO("MlpPolicy", pictures, n_steps=32, batch_size=32, device="cpu")
    for_vectors, for_images = EMI(model.observation_space, THREE), EMI(images, THREE)
    with pytest.raises(ValueError, match=r"EMI was not built for .*spaces_of\(model\)"):
        model.learn(32, callback=IntrinsicRewardCallback(for_vectors, 0.1))
    model.learn(32, callback=IntrinsicRewardCallback(for_images, 0.1))


def test_fewer_actions_than_the_environment_has() -> None:
    model = ppo(oracles(1, Discrete(5)))
    method = EMI(model.observation_space, THREE)
    with pytest.raises(ValueError, match="EMI was not built for"):
        model.learn(32, callback=IntrinsicRewardCallback(method, 0.1))


@pytest.mark.parametrize(
    ("built", "used"),
    [
        (MultiDiscrete([2, 3]), MultiDiscrete([3, 2])),
        (MultiDiscrete([3, 3]), MultiDiscrete([3, 3, 3])),
        (MultiBinary(3), MultiDiscrete([2, 2, 3])),
        (MultiBinary(2), MultiBinary(3)),
        (THREE, MultiBinary(3)),
    ],
    ids=str,
)
def test_other_groups_of_actions_than_the_environment_has(built: Any, used: Any) -> None:
    model = ppo(oracles(1, used))
    method = EMI(model.observation_space, built)
    with pytest.raises(ValueError, match="EMI was not built for"):
        model.learn(32, callback=IntrinsicRewardCallback(method, 0.1))


def test_wrong_uses_raise_a_user_error() -> None:
    def learn(callback: BaseCallback, env: VecEnv | None = None, **settings: Any) -> None:
        ppo(env or oracles(2), **settings).learn(64, callback=callback)

    with pytest.raises(ValueError, match="eta"):
        learn(IntrinsicRewardCallback(Recording(), -0.1))
    with pytest.raises(NotFiniteError, match="the bonus of Recording is NaN"):
        learn(IntrinsicRewardCallback(Recording(float("nan")), 0.1))
    with pytest.raises(ValueError, match="do not nest it in EveryNTimesteps; pass both in a list"):
        learn(EveryNTimesteps(10, IntrinsicRewardCallback(Recording(), 0.1)))
    with pytest.raises(ValueError, match="make VecNormalize the outermost wrapper"):
        learn(
            IntrinsicRewardCallback(Recording(), 0.1),
            VecFrameStack(VecNormalize(oracles(2)), 2),
        )

    with pytest.raises(
        ValueError, match=r"more than one VecNorm.*: set norm_obs=False in all but one"
    ):
        learn(IntrinsicRewardCallback(Recording(), 0.1), VecNormalize(VecNormalize(oracles(2))))

    class Silent(DummyVecEnv):
        def step_wait(self) -> Any:
            obs, rewards, dones, infos = super().step_wait()
            for info in infos:
                info.pop("terminal_observation", None)
            return obs, rewards, dones, infos

    for env in (oracles(2, kind=Silent), VecNormalize(oracles(2, kind=Silent))):
        with pytest.raises(UserError, match="without `terminal_observation`"):
            learn(IntrinsicRewardCallback(Recording(), 0.1), env)

    class Bolder(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: Tensor, dones: Array) -> None:
            super().compute_returns_and_advantage(last_values + 1, np.zeros_like(dones))

    with pytest.raises(UserError, match="advantages of PPO cannot be computed again"):
        learn(IntrinsicRewardCallback(Recording(), 0.1), rollout_buffer_class=Bolder)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(snippets) >= 2
    small = {
        "1_000_000": "64",
        "10_000": "32",
        "1_000": "20",
        'PPO("MlpPolicy",': 'PPO("MlpPolicy", n_steps=64, device="cpu", env=',
        'SAC("MlpPolicy",': 'SAC("MlpPolicy", learning_starts=50, device="cpu", env=',
    }
    names: dict[str, Any] = {}
    steps = []
    for snippet in snippets:
        for long, short in small.items():
            snippet = snippet.replace(long, short)
        exec(snippet, names)
        steps.append(names["model"].num_timesteps)
    assert steps == [64, 64, 128, 64]
    assert names["sac"].logger.name_to_value["intrinsic/bonus_mean"] > 0
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "rl_model_32_steps.zip",
        "rl_model_64_steps.zip",
        "rl_model_bonus_32_steps.safetensors",
        "rl_model_bonus_64_steps.safetensors",
    ]
