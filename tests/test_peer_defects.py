"""Defects found in other libraries of intrinsic rewards that no other test here covers.

Moments of one row, losses that broadcast, filters along the wrong axis and bonuses that miss the
advantages are in the tests of the methods, the adapters and the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from torch import Tensor, nn

import emi
from emi.adapters import IntrinsicRewardCallback, IntrinsicRewardVectorWrapper
from emi.batch import Transitions

OBSERVATIONS, ACTIONS = Box(-np.inf, np.inf, (4,), np.float32), Box(-1, 1, (2,), np.float32)
IMAGES = Box(0, 255, (1, 36, 36), np.uint8)

EX2 = emi.EX2Config(updates=3, first_updates=3, minibatch=8, min_replay=8, replay_size=64)
AUTOENCODER = emi.SimHashConfig(autoencoder=True, ae_updates=3, ae_minibatch=8, ae_hidden=16)
METHODS: dict[str, Callable[[gymnasium.Space, gymnasium.Space], Any]] = {
    "emi": lambda *s: emi.EMI(*s, emi.EMIConfig(minibatch=16)),
    "emi-d": lambda *s: emi.EMI(*s, emi.EMIConfig(minibatch=16, reward="diversity")),
    "icm": lambda *s: emi.ICM(*s, emi.ICMConfig(minibatch=16)),
    "rnd": lambda *s: emi.RND(*s, emi.RNDConfig(features=16, hidden=(16,))),
    "ex2": lambda *s: emi.EX2(*s, EX2),
    "simhash": lambda *s: emi.SimHash(*s),
    "ae-simhash": lambda *s: emi.SimHash(*s, AUTOENCODER),
    "vime": lambda *s: emi.VIME(*s, emi.VIMEConfig(updates=3, min_replay=8)),
    "e3b": lambda *s: emi.E3B(*s, emi.E3BConfig(minibatch=16)),
    "pseudo-counts": lambda *s: emi.PseudoCounts(*s, emi.PseudoCountsConfig(minibatch=16)),
    "scaled": lambda *s: emi.NormalizeReward(emi.ICM(*s)),
}
EACH = pytest.mark.parametrize("name", METHODS)


def batch_of(space: Box, n: int, seed: int = 0) -> Transitions:
    """n random transitions."""
    rng = np.random.default_rng(seed)
    obs, after = (
        rng.integers(0, 256, (2, n, *space.shape)).astype(np.uint8)
        if space is IMAGES
        else rng.normal(size=(2, n, *space.shape)).astype(np.float32)
    )
    return Transitions(obs, rng.uniform(-1, 1, (n, 2)).astype(np.float32), after)


@EACH
@pytest.mark.parametrize("space", [OBSERVATIONS, IMAGES], ids=["vectors", "images"])
def test_a_rollout_is_read_and_never_written(name: str, space: Box) -> None:
    """A bonus that scales its input in place changes what the policy learns from."""
    if name == "vime" and space is IMAGES:
        space = OBSERVATIONS
    method, batch = METHODS[name](space, ACTIONS), batch_of(space, 32)
    kept = [np.array(column) for column in (batch.obs, batch.action, batch.next_obs)]
    for _ in range(2):
        emi.score_and_learn(method, batch)
    for column, before in zip((batch.obs, batch.action, batch.next_obs), kept, strict=True):
        np.testing.assert_array_equal(column, before)


@EACH
def test_a_batch_of_one_transition_many_times_is_finite(name: str) -> None:
    """Bonuses that are all equal have no spread to be divided by."""
    method, one = METHODS[name](OBSERVATIONS, ACTIONS), batch_of(OBSERVATIONS, 1)
    batch = one[np.zeros(32, np.int64)]
    for _ in range(4):
        bonus, _ = emi.score_and_learn(method, batch)
        assert torch.isfinite(bonus).all()
        if method.episodic:
            assert (bonus.diff() < 1e-5).all()  # a state that is visited again is worth less
        elif name != "scaled":  # whose scale is one for the batch as well: so is the bonus
            assert bonus.max() - bonus.min() < 1e-5
    assert torch.isfinite(method.reward(batch)).all()


class Nothing(emi.IntrinsicReward):
    """A bonus of 0."""

    def reward(self, batch: Transitions) -> Tensor:
        return torch.zeros(len(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        return {"nothing/rows": float(len(batch))}


def test_a_bonus_that_was_always_zero_is_scaled_to_zero() -> None:
    scaled = emi.NormalizeReward(Nothing())
    for seed in range(3):
        bonus, scalars = emi.score_and_learn(scaled, batch_of(OBSERVATIONS, 8, seed))
        assert bonus.tolist() == [0.0] * 8
        assert scalars["normalize/scale"] == 0.0


def test_scaling_keeps_the_decline_of_a_bonus() -> None:
    """Dividing each batch by its own largest bonus would reward well-known states for ever."""
    config = emi.RNDConfig(features=16, hidden=(16,), learning_rate=1e-2)
    scaled = emi.NormalizeReward(emi.RND(OBSERVATIONS, ACTIONS, config))
    batch = batch_of(OBSERVATIONS, 64)
    means = [emi.score_and_learn(scaled, batch)[0].mean().item() for _ in range(20)]
    assert means[-1] < 0.1 * means[0]


def weights_within(thing: Any, seen: set[int] | None = None) -> Iterator[int]:
    """Ids of all parameters that can be reached from `thing`, also through plain containers."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Parameter):
        yield id(thing)
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from weights_within(value, seen)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            yield from weights_within(value, seen)
    elif isinstance(thing, nn.Module):
        yield from weights_within(vars(thing), seen)


def test_layers_in_a_plain_list_would_be_found() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(2, 3)]

    assert len([*weights_within(Hidden())]) == 2
    assert not [*Hidden().parameters()]


@pytest.mark.parametrize("name", ["emi", "icm", "rnd", "ex2", "ae-simhash", "vime", "e3b"])
def test_every_weight_learns(name: str) -> None:
    """Layers in a plain list, which no optimizer sees, stay as they were drawn."""
    method = METHODS[name](OBSERVATIONS, ACTIONS)
    before = {n: p.detach().clone() for n, p in method.named_parameters()}
    learners = {n for n, p in method.named_parameters() if p.requires_grad}
    for seed in range(3):
        method.learn(batch_of(OBSERVATIONS, 64, seed))
    moved = {n for n, p in method.named_parameters() if not torch.equal(p, before[n])}
    assert moved == learners
    assert set(weights_within(method)) == set(map(id, method.parameters()))
    assert all(n.startswith("target.") for n in set(before) - learners)  # RND's alone is fixed
    assert (name == "rnd") == (learners != set(before))


class Untouched(OracleVectorEnv):
    """Counts its resets and steps."""

    calls = 0

    def reset(self, **kw: Any) -> Any:
        self.calls += 1
        return super().reset(**kw)

    def step(self, actions: Any) -> Any:
        self.calls += 1
        return super().step(actions)


def test_building_takes_no_step_and_draws_nothing() -> None:
    """Statistics gathered by stepping the training environment shift its random stream."""
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    envs = Untouched(2, AutoresetMode.SAME_STEP)
    for make in METHODS.values():
        method = make(envs.single_observation_space, envs.single_action_space)
        IntrinsicRewardVectorWrapper(envs, method, 1.0, learn_every=8)
        IntrinsicRewardCallback(method, 1.0)
    assert envs.calls == 0
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


class SameArray(OracleVectorEnv):
    """Hands out one and the same array of rewards at every step."""

    def __init__(self) -> None:
        super().__init__(2, AutoresetMode.SAME_STEP)
        self.rewards = np.full(2, 3.0)

    def step(self, actions: Any) -> Any:
        obs, _, *rest = super().step(actions)
        return obs, self.rewards, *rest


def test_the_environments_reward_is_not_added_to_in_place() -> None:
    """`original = reward; reward += bonus` keeps nothing: both are the same array."""
    envs = SameArray()
    method = emi.SimHash(envs.single_observation_space, envs.single_action_space)
    wrapped = IntrinsicRewardVectorWrapper(envs, method, 1.0, learn_every=4, pretrained=True)
    wrapped.reset(seed=0)
    for _ in range(8):
        _, reward, _, _, info = wrapped.step(np.zeros(2, np.int64))
        assert info["reward_env"].tolist() == envs.rewards.tolist() == [3.0, 3.0]
        np.testing.assert_array_equal(reward, 3.0 + info["bonus"])
        assert (info["bonus"] > 0).all()


class Bandit(gymnasium.Env):
    """One step an episode, no reward."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), 0.0, True, False, {}


class SecondArm(Nothing):
    """The action, which the environment does not reward, is the bonus."""

    def reward(self, batch: Transitions) -> Tensor:
        return torch.as_tensor(np.asarray(batch.action)).flatten().float()


@pytest.mark.parametrize(("eta", "least", "most"), [(1.0, 0.9, 1.0), (0.0, 0.3, 0.7)])
def test_a_policy_learns_from_the_bonus_alone(eta: float, least: float, most: float) -> None:
    """Added after the advantages, a bonus would leave both policies the same."""
    envs = DummyVecEnv([Bandit] * 4)
    nets = {"net_arch": [8]}
    model = PPO(
        "MlpPolicy", envs, n_steps=32, batch_size=64, learning_rate=1e-2, seed=0,
        policy_kwargs=nets, device="cpu",
    )  # fmt: skip
    model.learn(4 * 32 * 6, callback=IntrinsicRewardCallback(SecondArm(), eta))
    obs = torch.zeros(1, 1)
    share = model.policy.get_distribution(obs).distribution.probs[0, 1].item()  # type: ignore[union-attr]
    assert least <= share <= most
