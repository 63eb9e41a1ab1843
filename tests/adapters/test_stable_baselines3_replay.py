"""Replay buffers: rows are scored when drawn, with true successors, and trained on exactly once."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from oracle import STEPS
from sb3_contrib import QRDQN, TQC, CrossQ
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize
from test_stable_baselines3 import (
    NEVER,
    ActionBonus,
    ImageOracle,
    Oracle,
    Probe,
    Recording,
    check_oracle,
    oracles,
    ppo,
    same,
)
from torch import Tensor

import emi
from emi.adapters import BonusCheckpointCallback, IntrinsicRewardCallback
from emi.batch import Array, Transitions, as_tensor
from emi.errors import NotFiniteError, UserError
from emi.intrinsic.contract import IntrinsicReward

CONTINUOUS = Box(2.0, 5.0, (1,), np.float32)  # SB3 stores its actions in [−1, 1]
DISCRETE = Discrete(3)
KINDS: list[type[OffPolicyAlgorithm]] = [SAC, TD3, DDPG, TQC, CrossQ, DQN, QRDQN]
IDS = [kind.__name__ for kind in KINDS]
WARM_UP = 10**9  # no gradient step: actions are drawn from the space


def actions_of(kind: type[OffPolicyAlgorithm]) -> Box | Discrete:
    return DISCRETE if kind in (DQN, QRDQN) else CONTINUOUS


def model_of(kind: type[OffPolicyAlgorithm], env: VecEnv, **settings: Any) -> Any:
    nets = {"net_arch": [8]}
    defaults = {"buffer_size": 1_000, "batch_size": 16, "learning_starts": 20, "train_freq": 1}
    settings = {"policy_kwargs": nets, **defaults, **settings}
    return kind("MlpPolicy", env, seed=0, device="cpu", **settings)


def random_walker(kind: type[OffPolicyAlgorithm], env: VecEnv, **settings: Any) -> Any:
    """A model that is never trained."""
    return model_of(kind, env, learning_starts=WARM_UP, **settings)


class Clock(Recording):
    """The bonus of a row is its t, and its part of a thousand how often the method was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.scored: list[Transitions] = []

    def reward(self, batch: Transitions) -> Tensor:
        self.scored.append(batch)
        bonus = as_tensor(batch.next_obs)[:, 2] + 1e-3 * len(self.batches)
        return bonus.to(torch.float32)


class Draws(BaseCallback):
    """Draws rows as a trainer does, after every `every` steps, and calls `check` with them."""

    def __init__(self, every: int, rows: int, check: Callable[[Any], None]) -> None:
        super().__init__()
        self.every, self.rows, self.check, self.drawn = every, rows, check, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.model.num_timesteps // self.every > self.drawn:
            self.drawn += 1
            self.check(draw(self.model, self.rows))


def draw(model: Any, rows: int = 64) -> Any:
    return model.replay_buffer.sample(rows, env=model.get_vec_normalize_env())


class Settings:
    """A kind of replay: settings of the model, and whether observations are normalised."""

    def __init__(self, normalized: bool, **settings: Any) -> None:
        self.normalized, self.settings = normalized, settings

    def env(self, envs: int, actions: gymnasium.Space, end_chance: float) -> VecEnv:
        made = oracles(envs, actions, end_chance)
        # Clipped at half a standard deviation: raw observations cannot be recovered.
        return VecNormalize(made, clip_obs=0.5, norm_reward=False) if self.normalized else made


SMALL = {"handle_timeout_termination": False}
SAVING = {"optimize_memory_usage": True, "replay_buffer_kwargs": SMALL}
REPLAYS = {
    "plain": Settings(False),
    "timeouts as ends": Settings(False, replay_buffer_kwargs=SMALL),
    "less memory": Settings(False, **SAVING),
    "normalised": Settings(True),
    "normalised, less memory": Settings(True, **SAVING),
}


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("kind", [SAC, DQN], ids=["SAC", "DQN"])
def test_no_row_crosses_an_episode_and_none_is_stale(kind: type[Any], replay: str) -> None:
    envs, made = 20, REPLAYS[replay]
    env, method, probe = made.env(envs, actions_of(kind), 0.05), Clock(), Probe()
    model = random_walker(kind, env, buffer_size=STEPS // 3, **made.settings)
    callback = IntrinsicRewardCallback(method, 2.0, learn_every=50)
    seen = {"rows": 0, "ended": 0}

    def check(samples: Any) -> None:
        if not method.batches:
            return
        batch = method.scored[-1]
        assert len(batch) == len(samples.rewards) == 256
        number, episode, t, _ = np.asarray(batch.obs).T
        after = np.asarray(batch.next_obs)
        np.testing.assert_array_equal(after[:, 0], number)
        np.testing.assert_array_equal(after[:, 1], episode)
        np.testing.assert_array_equal(after[:, 2], t + 1)
        np.testing.assert_array_equal(after[:, 3], np.asarray(batch.action).reshape(-1))
        assert batch.ended is not None
        fresh = method.reward(batch).numpy()  # by the method as of now
        np.testing.assert_array_equal(samples.rewards.numpy()[:, 0], t + 1 + 2 * fresh)
        seen["rows"] += len(batch)
        seen["ended"] += int(batch.ended.sum())

    model.learn(STEPS, callback=[callback, probe, Draws(envs * 7, 256, check)])
    assert seen["rows"] >= 256 * (STEPS // (envs * 7) - 8)
    # 0.0975 of the steps end an episode, those by time alone included.
    assert 0.08 < seen["ended"] / seen["rows"] < 0.115
    assert probe.truncated > 0.04 * STEPS
    callback._gather()
    assert callback._replay is not None
    # Ends of rows that are overwritten are dropped; the newest rows are kept before a reset.
    assert len(callback._replay.ends) <= model.replay_buffer.dones.sum() + envs
    method.batches += callback._replay.pending  # what is not yet trained on
    check_oracle(method, envs, STEPS // envs, probe.ended)


def test_subprocesses_and_images() -> None:
    env = oracles(3, CONTINUOUS, kind=SubprocVecEnv)
    method, probe = Clock(), Probe()
    model = random_walker(SAC, env)
    try:
        model.learn(300, callback=[IntrinsicRewardCallback(method, 1.0, learn_every=100), probe])
    finally:
        env.close()
    check_oracle(method, 3, 100, probe.ended)

    pictures, images = Recording(), DummyVecEnv([lambda: ImageOracle(0)])
    small = {"features_extractor_kwargs": {"features_dim": 8}}
    model = DQN(
        "CnnPolicy", images, buffer_size=500, learning_starts=WARM_UP, seed=0, device="cpu",
        policy_kwargs=small,
    )  # fmt: skip
    rows: list[Transitions] = []
    pictures.reward = lambda batch: rows.append(batch) or torch.zeros(len(batch))  # type: ignore[assignment,func-returns-value]
    callback = IntrinsicRewardCallback(pictures, 0.1, learn_every=50)
    model.learn(60, callback=[callback, Draws(55, 20, lambda samples: None)])
    for batch in (rows[-1], pictures.batches[0]):
        obs, after = np.asarray(batch.obs), np.asarray(batch.next_obs)
        assert obs.shape[1:] == (1, 36, 36)
        assert obs.dtype == np.uint8
        assert (after[:, 0, 0] == obs[:, 0, 0]).all()
        assert (after[:, 0, 1] == obs[:, 0, 1] + 1).all()
        assert (after[:, 0, 2, 0] == batch.action).all()


def test_images_inside_vec_normalize_are_scored_as_images() -> None:
    env = VecNormalize(DummyVecEnv([lambda: ImageOracle(0)]))
    model = random_walker(DQN, env)
    assert model.replay_buffer.observations.dtype == np.float32
    method, seen = Recording(), []
    method.reward = lambda batch: seen.append(batch) or torch.zeros(len(batch))  # type: ignore[assignment,func-returns-value]
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=10)
    model.learn(40, callback=[callback, Draws(20, 8, lambda samples: None)])
    assert np.asarray(seen[-1].obs).dtype == np.uint8
    assert (np.asarray(seen[-1].obs)[:, 1] + 1 == np.asarray(seen[-1].next_obs)[:, 1]).all()


def weights(model: Any) -> dict[str, Tensor]:
    """All networks and optimizers, copied."""
    named: dict[str, Tensor] = {}
    for name, state in model.get_parameters().items():
        entries = state.get("state", {}) if "param_groups" in state else {"": state}
        for number, entry in entries.items():
            for key, value in entry.items():
                named[f"{name}/{number}/{key}"] = torch.as_tensor(value).clone()
    return named


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_zero_changes_no_bit_and_a_bonus_changes_the_update(kind: type[Any]) -> None:
    def trained(callback: BaseCallback | None, **settings: Any) -> dict[str, Tensor]:
        model = model_of(kind, VecNormalize(oracles(2, actions_of(kind))), **settings)
        model.learn(120, callback=callback)
        return weights(model)

    plain = trained(None)
    spaces = Box(-np.inf, np.inf, (4,), np.float32), actions_of(kind)
    method = emi.EMI(*spaces, emi.EMIConfig(minibatch=32, state_hidden=(8,)))
    untrained = {name: value.clone() for name, value in method.phi.state_dict().items()}
    assert same(plain, trained(IntrinsicRewardCallback(method, 0.0, learn_every=20)))
    assert not same(untrained, method.phi.state_dict())
    assert same(plain, trained(IntrinsicRewardCallback(Recording(0.0), 1.0, learn_every=20)))
    assert not same(plain, trained(IntrinsicRewardCallback(ActionBonus(), 1.0, learn_every=20)))


def test_a_q_function_learns_the_bonus() -> None:
    # Without a discount, Q(s, a) is the expected reward: 0 from the environment, and the action.
    model = model_of(
        DQN, oracles(2, scale=0.0), gamma=0.0, learning_rate=1e-2, exploration_final_eps=1.0
    )  # fmt: skip
    model.learn(1_500, callback=IntrinsicRewardCallback(ActionBonus(), 0.5, learn_every=10))
    obs = torch.as_tensor(model.replay_buffer.observations[:200, 0])
    q = model.q_net(obs).mean(0).detach().numpy()
    np.testing.assert_allclose(q, [0.0, 0.5, 1.0], atol=0.15)
    # The stored rewards are those of the environment.
    assert not model.replay_buffer.rewards.any()


@pytest.mark.parametrize(
    "settings",
    [{}, {"train_freq": 5, "gradient_steps": 3}, {"learning_starts": WARM_UP}],
    ids=["one for one", "three in five", "never"],
)
def test_each_transition_is_trained_on_once_whatever_the_gradient_steps(settings: Any) -> None:
    method, probe = Recording(1.0), Probe()
    model = model_of(SAC, oracles(2, CONTINUOUS), **settings)
    callback = IntrinsicRewardCallback(method, 0.1, learn_every=15)
    model.learn(100, callback=[callback, probe])  # 50 steps: three trainings, five steps left
    assert [len(batch) for batch in method.batches] == [30] * 3
    model.learn(20, callback=[callback, probe], reset_num_timesteps=False)
    assert [len(batch) for batch in method.batches] == [30] * 4
    check_oracle(method, 2, 60, probe.ended)


def test_a_reset_between_two_trainings_ends_the_pending_rows() -> None:
    method = Recording()
    model = random_walker(SAC, oracles(2, CONTINUOUS, end_chance=0.0))
    callback = IntrinsicRewardCallback(method, 0.1, learn_every=20)
    for _ in range(2):  # the second resets the environments
        model.learn(20, callback=callback)
    _, _, next_obs, ended = method.of(0)
    assert np.flatnonzero(ended).tolist() == [9]
    assert next_obs[9].tolist()[1:3] == [1, 10]


def test_the_default_is_a_thousand_steps() -> None:
    method = Recording()
    model = random_walker(SAC, oracles(2, CONTINUOUS))
    model.learn(4_000, callback=IntrinsicRewardCallback(method, 0.1))
    assert [len(batch) for batch in method.batches] == [2_000, 2_000]


@pytest.mark.parametrize("intrinsic_only", [False, True])
def test_nothing_is_added_before_the_first_training(intrinsic_only: bool) -> None:
    rewards: list[Array] = []
    callback = IntrinsicRewardCallback(
        Recording(3.0), 0.5, learn_every=20, intrinsic_only=intrinsic_only
    )
    model = random_walker(SAC, oracles(1, CONTINUOUS))
    drawn = Draws(10, 40, lambda samples: rewards.append(samples.rewards.numpy()[:, 0]))
    model.learn(40, callback=[callback, drawn], log_interval=NEVER)
    plain = set(model.replay_buffer.rewards[:40, 0].tolist())
    before, after = rewards[0], rewards[-1]
    if intrinsic_only:
        assert not before.any()
        assert set(after.tolist()) == {1.5}
    else:
        assert set(before.tolist()) <= plain
        assert set((after - 1.5).tolist()) <= plain
    assert "sample" not in vars(model.replay_buffer)
    assert set(draw(model).rewards.numpy()[:, 0].tolist()) <= plain  # the training is over


def test_the_bonus_comes_after_the_normalisation_of_rewards() -> None:
    env = VecNormalize(oracles(2, CONTINUOUS), norm_obs=False, clip_reward=0.5)
    model, seen = random_walker(SAC, env), []
    callback = IntrinsicRewardCallback(Recording(3.0), 0.5, learn_every=10)
    model.learn(100, callback=[callback, Draws(80, 64, lambda s: seen.append(s.rewards))])
    rewards = seen[-1].numpy() - 1.5
    assert rewards.max() == 0.5
    assert len(np.unique(rewards)) > 2  # and not all are clipped


def test_an_n_step_row_has_the_discounted_sum_of_its_bonuses() -> None:
    method = Clock()
    model = random_walker(SAC, oracles(2, CONTINUOUS, 0.2), n_steps=3, gamma=0.5, buffer_size=60)
    buffer = model.replay_buffer
    assert isinstance(buffer, NStepReplayBuffer)
    checked: list[Array] = []

    def check(samples: Any) -> None:
        """SB3's own sum over rewards: the bonus of a row is its reward, t, plus a constant."""
        if not method.batches:
            return
        steps = np.round(np.log(samples.discounts.numpy()) / np.log(0.5))
        constant = 1e-3 * len(method.batches) * (2 - 0.5 ** (steps - 1))  # Σ 0.5ᵏ
        checked.append(steps)
        plain = samples.rewards.numpy() - 4 * constant  # (1 + 4) Σ γᵏ t
        obs = samples.observations.numpy()
        first = obs[:, 2:3] + 1  # t of the first step of the row
        expected = sum(0.5**k * (first + k) * (k < steps) for k in range(3))
        np.testing.assert_allclose(plain, 5 * expected, rtol=1e-5)

    callback = IntrinsicRewardCallback(method, 4.0, learn_every=10)
    model.learn(200, callback=[callback, Draws(6, 32, check)])
    assert set(np.concatenate(checked)[:, 0].tolist()) == {1.0, 2.0, 3.0}


class Column(IntrinsicReward):
    """The bonus is t of the successor."""

    def reward(self, batch: Transitions) -> Tensor:
        return as_tensor(batch.next_obs)[:, 2].to(torch.float32)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return {}


def test_drawn_rows_do_not_enter_the_running_scale() -> None:
    method = emi.NormalizeReward(Column())
    model, seen = random_walker(SAC, oracles(2, CONTINUOUS, 0.2)), []
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=20, intrinsic_only=True)
    before: list[Any] = []

    def check(samples: Any) -> None:
        if before:
            assert same(before[-1], tensors(method))
            t = samples.next_observations[:, 2:3]
            np.testing.assert_allclose(samples.rewards, t / method.sums.variance.sqrt(), rtol=1e-5)
            seen.append(samples)
        if callback._replay is not None and callback._replay.trained:
            before.append(tensors(method))

    class Forget(BaseCallback):
        def _on_step(self) -> bool:
            before.clear()  # the method may be trained in this step
            return True

    # One check before and one after each draw.
    model.learn(200, callback=[callback, Forget(), *(Draws(10, 32, check) for _ in range(2))])
    assert len(seen) > 5


def tensors(method: IntrinsicReward) -> dict[str, Tensor]:
    state = copy.deepcopy(method.state_dict())
    extra = {"last": state.pop("_extra_state")["last"]}
    return {**state, **extra}


@pytest.mark.parametrize("make", [emi.EX2, emi.SimHash, emi.VIME, emi.RND, emi.ICM])
def test_other_methods_score_drawn_rows(make: Any) -> None:
    """Also those that learn first, and VIME, whose scale is 0 at its first training."""
    configs = {
        emi.EX2: emi.EX2Config(updates=1, first_updates=2, minibatch=4, min_replay=50),
        emi.VIME: emi.VIMEConfig(updates=1, min_replay=2),
    }
    model = model_of(SAC, oracles(2, CONTINUOUS))
    spaces = model.observation_space, model.action_space
    given = (configs[make],) if make in configs else ()
    method = emi.NormalizeReward(make(*spaces, *given))
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=20)
    model.learn(200, callback=callback, log_interval=NEVER)
    assert np.isfinite(model.logger.name_to_value["intrinsic/bonus_mean"])
    assert model.logger.name_to_value["intrinsic/bonus_std"] > 0


def test_eta_follows_the_steps_and_the_values_are_logged() -> None:
    model = random_walker(DQN, oracles(1, scale=0.0))
    callback = IntrinsicRewardCallback(Recording(3.0), lambda steps: steps / 10, learn_every=10)
    rewards: list[Any] = []
    model.learn(
        30,
        callback=[callback, Draws(10, 4, lambda s: rewards.append(s.rewards.unique().tolist()))],
        log_interval=NEVER,
    )
    np.testing.assert_allclose(rewards, [[3.0], [6.0], [9.0]], rtol=1e-6)
    logged = model.logger.name_to_value
    assert logged["intrinsic/eta"] == 3
    assert logged["intrinsic/bonus_mean"] == 3
    assert logged["intrinsic/bonus_std"] == 0
    assert logged["intrinsic/share"] == 1
    assert logged["recording/rows"] == 10


def test_rows_of_an_unknown_successor_have_no_bonus() -> None:
    """They were stored without the callback, in a buffer that overwrites last observations."""
    model = random_walker(SAC, oracles(1, CONTINUOUS, 0.3), **SAVING)
    model.learn(100, callback=None)
    ends = model.replay_buffer.dones[:100, 0] > 0
    assert 20 < ends.sum() < 80
    method, seen = Clock(), []
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3's, that the last episode is truncated
        model.learn(1, callback=[callback, Draws(1, 500, seen.append)])
    obs, ended = seen[0].observations.numpy(), seen[0].dones.numpy()[:, 0] > 0
    rewards, reward_env = seen[0].rewards.numpy()[:, 0], obs[:, 2] + 1
    newest = obs[:, 1] >= obs[:, 1].max() - 1  # episodes whose end the callback saw
    unknown = ended & ~newest
    assert unknown.sum() > 100
    np.testing.assert_array_equal(rewards[unknown], reward_env[unknown])
    np.testing.assert_allclose(rewards[~ended], 2 * reward_env[~ended] + 1e-3, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer")
def test_ends_of_rows_that_were_overwritten_are_not_used() -> None:
    """A training without the callback overwrites rows whose ends it kept."""
    env = VecNormalize(oracles(2, CONTINUOUS, 0.3), clip_obs=0.5, norm_reward=False)
    model, method = random_walker(SAC, env, buffer_size=100, **SAVING), Clock()
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=10)
    model.learn(100, callback=callback)
    assert callback._replay is not None
    kept = len(callback._replay.ends)
    model.learn(60, callback=None)
    method.scored.clear()
    model.learn(2, callback=[callback, Draws(1, 300, lambda samples: None)])
    assert len(callback._replay.ends) >= kept - 2
    batch = method.scored[-1]  # the first are the two rows of the check that the method fits
    obs, after = np.asarray(batch.obs), np.asarray(batch.next_obs)
    assert batch.ended is not None
    assert batch.ended.sum() > 10
    np.testing.assert_array_equal(after[:, 1], obs[:, 1])
    np.testing.assert_array_equal(after[:, 2], obs[:, 2] + 1)


@pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer")
@pytest.mark.parametrize("replay", ["less memory", "normalised, less memory"])
@pytest.mark.parametrize("with_callback", [True, False])
def test_the_row_before_a_reset_keeps_its_successor(replay: str, with_callback: bool) -> None:
    """A second call of `learn` resets the environments, in the middle of their episodes."""
    made, method = REPLAYS[replay], Clock()
    model = random_walker(SAC, made.env(2, CONTINUOUS, 0.0), **made.settings)
    callback = IntrinsicRewardCallback(method, 1.0, learn_every=5)
    model.learn(20, callback=callback if with_callback else None)
    model.learn(20, callback=[callback, Draws(12, 200, lambda samples: None)])
    obs, after = (np.asarray(x) for x in (method.scored[-1].obs, method.scored[-1].next_obs))
    np.testing.assert_array_equal(after[:, :3] - obs[:, :3], np.tile([0, 0, 1], (len(obs), 1)))
    # Without the callback, and after SB3 marked it as an end, it may be known or not.
    last = (obs[:, 1] == 1) & (obs[:, 2] == 9)
    assert last.any() == (with_callback or not made.normalized)


class Interrupted(BaseException):
    pass


class Stops(BaseCallback):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps == self.at:
            raise Interrupted
        return True


def test_an_interrupted_training_leaves_no_bonus() -> None:
    model = random_walker(SAC, VecNormalize(oracles(1, CONTINUOUS), norm_reward=False))
    callback = IntrinsicRewardCallback(Recording(1e6), 1.0, learn_every=10)
    with pytest.raises(Interrupted):
        model.learn(100, callback=[callback, Stops(50)])
    seen: list[Any] = []
    model.learn(20, callback=Draws(5, 30, seen.append))
    assert max(samples.rewards.max() for samples in seen) < 1_000
    assert "sample" not in vars(model.replay_buffer)
    model.learn(20, callback=[callback, Draws(5, 30, seen.append)])
    assert seen[-1].rewards.min() > 1_000


def resumable(callback: IntrinsicRewardCallback) -> tuple[Any, ...]:
    replay = callback._replay
    assert replay is not None
    callback._gather()
    pending = [np.asarray(part.next_obs) for part in replay.pending]
    return replay.trained, np.concatenate(pending).tolist(), sorted(replay.ends)


@pytest.mark.parametrize("saving", [False, True], ids=["plain", "less memory"])
def test_checkpoints_hold_all_that_is_needed(saving: bool, tmp_path: Path) -> None:
    """SB3's files are those of a training without the callback, and the bonus continues."""
    spaces = Box(-np.inf, np.inf, (4,), np.float32), CONTINUOUS

    def method() -> IntrinsicReward:
        config = emi.EMIConfig(minibatch=16, state_hidden=(8,))
        return emi.NormalizeReward(emi.EMI(*spaces, config, seed=3))

    settings = SAVING if saving else {}
    env = VecNormalize(oracles(2, CONTINUOUS), norm_reward=False)
    model = model_of(SAC, env, **settings)
    callback = IntrinsicRewardCallback(method(), 0.5, learn_every=30)
    checkpoints = BonusCheckpointCallback(
        callback, save_freq=20, save_path=str(tmp_path), save_replay_buffer=True,
        save_vecnormalize=True, name_prefix="car",
    )  # fmt: skip
    model.learn(80, callback=[callback, checkpoints])
    parts = ("", "bonus_", "replay_buffer_", "vecnormalize_")
    endings = {"": "zip", "bonus_": "safetensors"}
    names = [f"car_{p}{n}_steps.{endings.get(p, 'pkl')}" for n in (40, 80) for p in parts]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    text = (tmp_path / "car_replay_buffer_80_steps.pkl").read_bytes()
    assert b"emi." not in text  # it can be loaded where emi is not installed
    assert type(pickle.loads(text)) is ReplayBuffer

    again = IntrinsicRewardCallback(method(), 0.5, learn_every=30)
    again.load(tmp_path / "car_bonus_80_steps.safetensors")
    loaded = SAC.load(tmp_path / "car_80_steps.zip", env=env, device="cpu")
    loaded.load_replay_buffer(tmp_path / "car_replay_buffer_80_steps.pkl")
    *trained_and_pending, ends = resumable(again)
    *expected, kept = resumable(callback)
    assert trained_and_pending == expected
    # The first training also kept the successors of its newest row when it ended.
    assert ends == [place for place in kept if place[0] != 39]
    again.save(tmp_path / "again.safetensors")
    first = tmp_path / "car_bonus_80_steps.safetensors"
    assert (tmp_path / "again.safetensors").read_bytes() == first.read_bytes()

    def check(samples: Any) -> None:
        assert samples.rewards.isfinite().all()

    loaded.learn(40, callback=[again, Draws(10, 64, check)], reset_num_timesteps=False)
    assert again._replay is not None
    assert again._replay.trained


@pytest.mark.filterwarnings("ignore:Recording changed batches")
def test_a_loaded_method_continues_as_if_never_stopped(tmp_path: Path) -> None:
    """Ten steps are pending when it is saved; the next training has all thirty."""

    def played(callback: IntrinsicRewardCallback, method: Recording) -> Array:
        model = random_walker(SAC, oracles(2, CONTINUOUS, end_chance=0.0))
        model.learn(40, callback=callback)
        return np.asarray(method.batches[-1].obs)

    first = Recording()
    callback = IntrinsicRewardCallback(first, 1.0, learn_every=30)
    model = random_walker(SAC, oracles(2, CONTINUOUS, end_chance=0.0))
    model.learn(80, callback=callback)
    callback.save(tmp_path / "bonus.safetensors")
    second = Recording()
    restored = IntrinsicRewardCallback(second, 1.0, learn_every=30)
    restored.load(tmp_path / "bonus.safetensors")
    obs = played(restored, second)
    np.testing.assert_array_equal(obs, played(callback, first))
    assert obs.shape == (60, 4)
    assert obs[::2, 2].tolist() == [*range(30, 40), *range(20)]
    model.learn(10, callback=callback)  # leaves five steps
    callback.save(tmp_path / "bonus.safetensors")
    restored.load(tmp_path / "bonus.safetensors")
    other = random_walker(SAC, DummyVecEnv([Narrow]))
    with pytest.raises(UserError, match=r"observations of shape \(4,\), .* of the same task"):
        other.learn(10, callback=restored)


class Narrow(Oracle):
    def __init__(self) -> None:
        super().__init__(0, CONTINUOUS, 0.1)
        self.observation_space = Box(-1, 1, (3,), np.float32)

    def _obs(self) -> Array:
        return np.zeros(3, np.float32)


def test_a_damaged_replay_state_is_refused(tmp_path: Path) -> None:
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    path, callback = tmp_path / "bonus.safetensors", IntrinsicRewardCallback(Recording(), 1.0)
    random_walker(SAC, oracles(2, CONTINUOUS)).learn(10, callback=callback)
    callback.save(path)
    with safe_open(path, framework="pt") as file:
        (text,) = file.metadata().values()
        (name,) = file.metadata().keys()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert "replay" in text
    for wrong in ('"trained"', '"pending"', '"obs"', '"env_index"'):
        save_file(tensors, path, {name: text.replace(wrong, '"x"')})
        with pytest.raises(UserError, match="is damaged"):
            callback.load(path)
    kept = json.loads(text)
    kept["state"] = 3
    save_file({}, path, {name: json.dumps(kept)})
    with pytest.raises(UserError, match="is damaged"):
        callback.load(path)


@pytest.mark.filterwarnings("ignore:Recording changed batches")
def test_a_method_of_an_on_policy_training_is_trained(tmp_path: Path) -> None:
    path, first = tmp_path / "bonus.safetensors", IntrinsicRewardCallback(Recording(2.0), 1.0)
    ppo(oracles(1)).learn(32, callback=first)
    first.save(path)
    second = IntrinsicRewardCallback(Recording(2.0), 1.0, intrinsic_only=True)
    second.load(path)
    model, seen = random_walker(DQN, oracles(1)), []
    model.learn(10, callback=[second, Draws(5, 4, lambda s: seen.append(s.rewards))])
    assert seen[0].unique().tolist() == [2.0]


@pytest.mark.filterwarnings("ignore:Recording changed batches")
def test_the_checkpoints_of_an_on_policy_training(tmp_path: Path) -> None:
    callback = IntrinsicRewardCallback(Recording(), 1.0)
    kept = BonusCheckpointCallback(callback, save_freq=16, save_path=str(tmp_path))
    ppo(oracles(2)).learn(64, callback=[callback, kept])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rl_model_32_steps.zip",
        "rl_model_64_steps.zip",
        "rl_model_bonus_32_steps.safetensors",
        "rl_model_bonus_64_steps.safetensors",
    ]
    with pytest.raises(UserError, match="pass the IntrinsicRewardCallback to learn as well"):
        ppo(oracles(2)).learn(64, callback=kept)


def test_copies_of_a_buffer_are_plain() -> None:
    model, made = random_walker(SAC, oracles(1, CONTINUOUS)), []

    def copied(samples: Any) -> None:
        buffer = model.replay_buffer
        made.extend([copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))])

    callback = IntrinsicRewardCallback(Recording(1e6), 1.0, learn_every=5)
    model.learn(20, callback=[callback, Draws(15, 4, copied)])
    assert len(made) == 2
    for buffer in made:
        assert buffer.sample(50).rewards.max() < 1_000
        assert buffer.sample.__self__ is buffer


class Goals(gymnasium.Env):
    def __init__(self) -> None:
        box = Box(-1, 1, (2,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = Dict(dict.fromkeys(names, box))
        self.action_space = CONTINUOUS

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return {name: np.zeros(2, np.float32) for name in self.observation_space}, {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 0.0, False, False, {}

    def compute_reward(self, *args: Any) -> Array:
        return np.zeros(1)


def test_wrong_uses_raise_a_user_error() -> None:
    def learn(callback: Any, env: VecEnv | None = None, **settings: Any) -> None:
        env = env or oracles(2, CONTINUOUS)
        model_of(SAC, env, **settings).learn(100, callback=callback)

    def bonus(value: float = 1.0, **settings: Any) -> IntrinsicRewardCallback:
        return IntrinsicRewardCallback(Recording(value), 1.0, **settings)

    with pytest.raises(UserError, match="learn_every must be 1 or more, got 0"):
        bonus(learn_every=0)
    with pytest.raises(UserError, match=r"with PPO .* after every rollout: leave out learn_every"):
        ppo(oracles(1)).learn(64, callback=bonus(learn_every=10))
    with pytest.raises(NotFiniteError, match="the bonus of Recording is NaN"):
        learn(bonus(float("nan"), learn_every=10))
    with pytest.raises(UserError, match=r"two callbacks .* use one callback with emi\.WeightedSum"):
        learn([bonus(), bonus()])
    nested = VecNormalize(VecNormalize(oracles(2, CONTINUOUS), norm_reward=False), norm_obs=False)
    with pytest.raises(UserError, match="use one VecNormalize for observations and rewards"):
        learn(bonus(), nested)

    class Silent(ReplayBuffer):
        def _get_samples(self, batch_inds: Array, env: Any = None) -> Any:
            self.rewards[0, 0]  # another access
            return super()._get_samples(batch_inds, env)

    with pytest.raises(UserError, match="the rows that Silent draws are not known: use the Replay"):
        learn(bonus(learn_every=5), replay_buffer_class=Silent)

    small = {"buffer_size": 100, "policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
    goals = DummyVecEnv([Goals])
    model = SAC("MultiInputPolicy", goals, replay_buffer_class=HerReplayBuffer, **small)
    with pytest.raises(UserError, match="HerReplayBuffer is not supported, because it changes"):
        model.learn(10, callback=bonus())


def test_dicts_of_observations_are_scored_key_by_key() -> None:
    """The rows of a DictReplayBuffer, for a method that reads dicts."""
    from emi.adapters.stable_baselines3_replay import _equal
    from emi.batch import map_columns

    pair = {"a": np.arange(4.0), "b": {"c": np.ones((4, 2))}}
    picked = map_columns(lambda x: x[[1, 3]], pair)
    assert _equal(picked, {"a": np.array([1.0, 3.0]), "b": {"c": np.ones((2, 2))}})
    assert not _equal(picked, {"a": np.array([1.0, 2.0]), "b": {"c": np.ones((2, 2))}})


def test_a_plain_checkpoint_callback_still_works(tmp_path: Path) -> None:
    model = model_of(SAC, oracles(2, CONTINUOUS))
    checkpoints = CheckpointCallback(20, str(tmp_path), save_replay_buffer=True)
    bonus = IntrinsicRewardCallback(Recording(), 1.0, learn_every=5)
    model.learn(80, callback=[bonus, checkpoints])
    loaded = SAC.load(tmp_path / "rl_model_80_steps.zip", device="cpu")
    loaded.load_replay_buffer(tmp_path / "rl_model_replay_buffer_80_steps.pkl")
    assert loaded.replay_buffer.size() == 39  # SB3 saves before it stores the newest step
