"""The wrapper for Gymnasium's vector environments: transitions, rewards, state.

The oracle's observation is (episode, t), so that every scored or learnt row can be identified.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from oracle import OracleVectorEnv
from torch import Tensor

from emi.adapters import IntrinsicRewardVectorWrapper, linear_schedule
from emi.batch import Transitions
from emi.errors import NotFiniteError, UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.rnd import RND, RNDConfig
from emi.intrinsic.simhash import SimHash
from emi.intrinsic.weighted_sum import WeightedSum
from emi.runs.checkpoint import load_latest, save

SAME, NEXT, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
MODES = pytest.mark.parametrize("mode", [SAME, NEXT, DISABLED], ids=lambda mode: mode.name)
PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "gymnasium.md"


class Recording(IntrinsicReward):
    """A constant bonus; keeps the batches that it scored and learnt, and the order of the calls."""

    def __init__(self, bonus: float = 1.0) -> None:
        super().__init__()
        self.bonus = bonus
        self.scored: list[Transitions] = []
        self.learnt: list[Transitions] = []
        self.calls: list[str] = []

    def reward(self, batch: Transitions) -> Tensor:
        self.calls.append("score")
        self.scored.append(batch)
        return torch.full((len(batch),), self.bonus)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.calls.append("learn")
        self.learnt.append(batch)
        return {"recording/rows": float(len(batch))}


def column(parts: list[Transitions], name: str) -> np.ndarray:
    return np.concatenate([getattr(part, name) for part in parts])


def wrapped(
    envs: VectorEnv,
    method: IntrinsicReward,
    eta: Any = 1.0,
    learn_every: int = 5,
    *,
    pretrained: bool = True,
    **kw: Any,
) -> IntrinsicRewardVectorWrapper:
    """A wrapper that adds a bonus from the first step, unless `pretrained` is False."""
    return IntrinsicRewardVectorWrapper(envs, method, eta, learn_every, pretrained=pretrained, **kw)


def advance(envs: Any, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """A step, and with DISABLED the reset that the caller must do."""
    step = envs.step(actions)
    ended = step[2] | step[3]
    if envs.metadata["autoreset_mode"] is DISABLED and ended.any():
        envs.reset(options={"reset_mask": ended})
    return step


@MODES
def test_every_transition_is_scored_and_learnt_once_and_none_crosses_an_episode(
    mode: AutoresetMode,
) -> None:
    n, steps, learn_every = 20, 5_000, 50  # 100,000 steps
    method, twin = Recording(), OracleVectorEnv(n, mode)
    envs = wrapped(OracleVectorEnv(n, mode), method, learn_every=learn_every)
    envs.reset(seed=3)
    twin.reset(seed=3)
    actions = np.random.default_rng(0).integers(0, 2, (steps, n))
    states, which, ends = [], [], []  # of the twin, which is the reference
    for action in actions:
        which.append(~twin.pending)
        states.append(twin.state.copy())
        _, _, terminated, truncated, _ = advance(twin, action)
        ends.append(terminated | truncated)
        advance(envs, action)
    real = np.stack(which)
    truth, ended = np.stack(states)[real], np.stack(ends)[real]
    assert 0.2 < ended.mean() < 0.4  # episodes have about three steps
    assert len(truth) == (100_000 if mode is not NEXT else real.sum()) == envs.steps
    assert (len(truth) < 90_000) == (mode is NEXT)  # its resets take steps
    for parts in (method.scored, method.learnt):
        np.testing.assert_array_equal(column(parts, "obs"), truth)
        np.testing.assert_array_equal(column(parts, "next_obs"), truth + np.array([0, 1]))
        np.testing.assert_array_equal(column(parts, "action"), actions[real])
        np.testing.assert_array_equal(
            column(parts, "env_index"), np.broadcast_to(np.arange(n), (steps, n))[real]
        )
        np.testing.assert_array_equal(column(parts, "ended"), ended)
    assert len(method.learnt) == steps // learn_every
    assert len(np.unique(truth, axis=0)) == len(truth)


@MODES
@pytest.mark.parametrize("intrinsic_only", [False, True])
def test_rewards_of_a_constant_bonus_by_hand(mode: AutoresetMode, intrinsic_only: bool) -> None:
    n, bare = 3, OracleVectorEnv(3, mode)
    envs = wrapped(
        OracleVectorEnv(n, mode), Recording(bonus=2.0), 0.25, intrinsic_only=intrinsic_only
    )
    envs.reset(seed=1)
    bare.reset(seed=1)
    resets = 0
    for _ in range(200):
        real = ~bare.pending
        resets += int((~real).sum())
        plain, ours = (advance(e, np.zeros(n, np.int64)) for e in (bare, envs))
        base = np.zeros(n) if intrinsic_only else plain[1]
        np.testing.assert_array_equal(ours[1], base + 0.5 * real)
        info = ours[4]
        np.testing.assert_array_equal(info["reward_env"], plain[1])
        np.testing.assert_array_equal(info["bonus"], 2.0 * real)
        np.testing.assert_array_equal(info["_bonus"], real)
        assert info["_reward_env"].all()
        assert info["bonus"].dtype == info["reward_env"].dtype == ours[1].dtype == np.float64
        for k in (0, 2, 3):
            np.testing.assert_array_equal(ours[k], plain[k])
        assert set(info) == {*plain[4], "bonus", "_bonus", "reward_env", "_reward_env"}
    assert (resets > 20) == (mode is NEXT)


@MODES
def test_nothing_is_added_before_the_first_training(mode: AutoresetMode) -> None:
    method, bare = Recording(bonus=2.0), OracleVectorEnv(3, mode)
    envs = wrapped(OracleVectorEnv(3, mode), method, 0.25, learn_every=4, pretrained=False)
    envs.reset(seed=1)
    bare.reset(seed=1)
    for k in range(12):
        added = ~bare.pending & (k >= 4)
        plain, ours = (advance(e, np.zeros(3, np.int64)) for e in (bare, envs))
        np.testing.assert_array_equal(ours[1], plain[1] + 0.5 * added)
        np.testing.assert_array_equal(ours[4]["bonus"], 2.0 * added)
        np.testing.assert_array_equal(ours[4]["_bonus"], added)
    assert method.calls == ["learn", *(["score"] * 4 + ["learn"]) * 2]


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_scaled_bonus_is_as_large_at_its_beginning_as_later(num_envs: int) -> None:
    """Before the first learning there is no scale but a step's own: the bonus would be about 1."""
    inner = gymnasium.make_vec("MountainCarContinuous-v0", num_envs, vectorization_mode="sync")
    spaces = inner.single_observation_space, inner.single_action_space
    method = NormalizeReward(EMI(*spaces, EMIConfig(minibatch=32)))
    envs = wrapped(inner, method, learn_every=64, pretrained=False)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    rounds = [
        np.mean([envs.step(envs.action_space.sample())[4]["bonus"] for _ in range(64)])
        for _ in range(3)
    ]
    assert rounds[0] == 0
    assert 0 < rounds[1] < 0.2
    envs.close()


class MinusZero(OracleVectorEnv):
    """Rewards of −0 and tiny numbers: adding 0 would change the first."""

    def step(self, actions: Any) -> Any:
        obs, reward, *rest = super().step(actions)
        return obs, np.where(reward > 2, -reward * 1e-310, -0.0), *rest


@MODES
def test_zero_coefficient_changes_no_bit(mode: AutoresetMode) -> None:
    bare, inner = MinusZero(4, mode), MinusZero(4, mode)
    envs = wrapped(inner, Recording(bonus=5.0), 0.0)
    assert bare.reset(seed=2)[0].tobytes() == envs.reset(seed=2)[0].tobytes()
    for _ in range(300):
        plain, ours = (advance(e, np.ones(4, np.int64)) for e in (bare, envs))
        assert [x.tobytes() for x in plain[:4]] == [x.tobytes() for x in ours[:4]]


@pytest.mark.parametrize(("mode", "rows"), [(SAME, 15), (DISABLED, 15), (NEXT, None)])
def test_it_scores_every_step_and_learns_when_the_steps_are_full(
    mode: AutoresetMode, rows: int | None
) -> None:
    method = Recording()
    envs = wrapped(OracleVectorEnv(3, mode), method, learn_every=5)
    envs.reset(seed=0)
    assert envs.scalars == {}
    for k in range(20):
        advance(envs, np.zeros(3, np.int64))
        assert len(method.learnt) == (k + 1) // 5
    assert method.calls == (["score"] * 5 + ["learn"]) * 4
    sizes = [len(batch) for batch in method.learnt]
    if rows is not None:
        assert sizes == [rows] * 4
    else:
        assert all(size < 15 for size in sizes)
    assert envs.scalars == {"recording/rows": float(sizes[-1])}
    assert envs.steps == sum(sizes)


def test_steps_of_which_none_is_real_are_not_learnt() -> None:
    method = Recording()
    envs = wrapped(OracleVectorEnv(1, NEXT, mean_length=1.0), method, learn_every=1)
    envs.reset(seed=0)
    for _ in range(6):  # every episode has one step; then comes one that only resets
        envs.step(np.zeros(1, np.int64))
    assert method.calls == ["score", "learn"] * 3
    assert column(method.learnt, "obs").tolist() == [[1, 0], [2, 0], [3, 0]]


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_a_schedule_is_called_with_the_steps_before_this_one(mode: AutoresetMode) -> None:
    calls: list[int] = []

    def eta(steps: int) -> float:
        calls.append(steps)
        return linear_schedule(1.0, 0.0, steps=30)(steps)

    bare = OracleVectorEnv(3, mode)
    envs = wrapped(OracleVectorEnv(3, mode), Recording(), eta)
    envs.reset(seed=0)
    bare.reset(seed=0)
    taken, calls[:] = 0, []
    for _ in range(15):
        real = ~bare.pending
        plain, ours = (e.step(np.zeros(3, np.int64)) for e in (bare, envs))
        added = max(0.0, 1 - taken / 30)
        np.testing.assert_allclose(ours[1], plain[1] + added * real, rtol=0, atol=1e-12)
        assert calls[-1] == taken
        taken += int(real.sum())
    assert envs.steps == taken
    assert (taken == 45) == (mode is SAME)


class Still(VectorEnv):
    """Two environments in which nothing ever happens."""

    def __init__(self) -> None:
        self.metadata, self.num_envs = {"autoreset_mode": SAME}, 2
        self.single_observation_space, self.single_action_space = Box(-1, 1, (3,)), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.ones((2, 3), np.float32), {}

    def step(self, actions: Any) -> Any:
        return np.ones((2, 3), np.float32), np.zeros(2), *np.zeros((2, 2), bool), {}


def test_a_method_that_learns_first_scores_as_of_its_last_training() -> None:
    """1/√n with the n of the last training, by hand; a count of 0 is treated as 1."""
    still = Still()
    method = SimHash(still.single_observation_space, still.single_action_space)
    assert method.learns_first
    envs = wrapped(still, method, 2.0, learn_every=3)
    envs.reset()
    rewards = [envs.step(np.zeros(2, np.int64))[1].tolist() for _ in range(9)]
    expected = [2.0] * 3 + [2 / np.sqrt(6)] * 3 + [2 / np.sqrt(12)] * 3
    np.testing.assert_allclose(rewards, np.stack([expected, expected], 1), rtol=1e-6)


class Counter(gymnasium.Env):
    """obs = (episode, t) as the `dtype` of the space; an episode ends after `length` steps."""

    def __init__(self, length: int, obs: Box, action: gymnasium.Space) -> None:
        self.length, self.observation_space, self.action_space = length, obs, action
        self.episode = self.t = 0
        self.buffer = np.zeros(obs.shape, obs.dtype)

    def _obs(self) -> np.ndarray:
        self.buffer[...] = 10 * self.episode + self.t
        return self.buffer.copy()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.t += 1
        return self._obs(), 1.0, self.t == self.length, False, {}


ACTIONS = {
    "discrete": Discrete(3),
    "from minus one": Discrete(3, start=-1),
    "box": Box(-2, 3, (2,), np.float32),
}
OBSERVATIONS = {
    "vector": Box(-np.inf, np.inf, (4,), np.float32),
    "stack": Box(0, 255, (4, 52, 52), np.uint8),
}


@MODES
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("observations", OBSERVATIONS)
@pytest.mark.parametrize("reused", [False, True])
def test_gymnasiums_own_environments(
    mode: AutoresetMode, actions: str, observations: str, reused: bool
) -> None:
    """Lengths 2 and 3; also where the environment hands out the same array again and again."""
    space, action_space = OBSERVATIONS[observations], ACTIONS[actions]
    made = SyncVectorEnv(
        [lambda n=n: Counter(n, space, action_space) for n in (2, 3)],
        copy=not reused,
        autoreset_mode=mode,
    )
    method = Recording()
    envs = wrapped(made, method, learn_every=6)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    taken = np.empty_like(envs.action_space.sample())
    history = []
    for _ in range(12):
        taken[...] = envs.action_space.sample()  # a trainer that uses its array again
        history.append(taken.copy())
        advance(envs, taken)
    lengths = (2, 3)
    expected = []  # (env, number before, number after, step)
    clocks = [[1, 0], [1, 0]]
    for step in range(12):
        for env in range(2):
            episode, t = clocks[env]
            if t == lengths[env]:  # only with NEXT_STEP, for one step
                clocks[env] = [episode + 1, 0]
                continue
            expected.append((env, 10 * episode + t, 10 * episode + t + 1, step))
            over = t + 1 == lengths[env] and mode is not NEXT
            clocks[env] = [episode + 1, 0] if over else [episode, t + 1]
    for parts in (method.scored, method.learnt):
        rows = [column(parts, name) for name in ("env_index", "obs", "next_obs", "action")]
        assert rows[0].tolist() == [e for e, _, _, _ in expected]
        for got, number in ((rows[1], 1), (rows[2], 2)):
            assert got.dtype == space.dtype
            numbers = np.array([row[number] for row in expected])
            shape = (-1,) + (1,) * len(space.shape)
            np.testing.assert_array_equal(got, np.broadcast_to(numbers.reshape(shape), got.shape))
        np.testing.assert_array_equal(rows[3], [history[s][e] for e, _, _, s in expected])
    envs.close()


def test_a_whole_reset_ends_the_episodes_and_keeps_what_is_not_learnt() -> None:
    method = Recording()
    envs = wrapped(OracleVectorEnv(2, NEXT, mean_length=1.0), method, learn_every=2)
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))  # all episodes end: the next step would only reset
    envs.reset(seed=1)
    envs.step(np.zeros(2, np.int64))
    assert column(method.learnt, "obs").tolist() == [[1, 0], [2, 0], [3, 0], [4, 0]]
    assert column(method.learnt, "next_obs").tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]


def test_a_partial_reset_leaves_the_others_unchanged() -> None:
    """Gymnasium's environments take the mask out of the options they are given."""
    space, method = OBSERVATIONS["vector"], Recording()
    makers = [lambda: Counter(2, space, Discrete(2))] * 2
    envs = wrapped(SyncVectorEnv(makers, autoreset_mode=NEXT), method, learn_every=4)
    envs.reset(seed=0)
    for _ in range(2):  # both episodes end: the next step would only reset
        envs.step(np.zeros(2, np.int64))
    envs.reset(options={"reset_mask": np.array([True, False])})
    for _ in range(2):
        envs.step(np.zeros(2, np.int64))
    assert column(method.learnt, "env_index").tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert column(method.learnt, "obs")[:, 0].tolist() == [10, 10, 11, 11, 20, 21, 20]
    assert column(method.learnt, "next_obs")[:, 0].tolist() == [11, 11, 12, 12, 21, 22, 21]


def test_a_partial_reset_reads_only_its_observations() -> None:
    class Blank(OracleVectorEnv):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            obs, info = super().reset(seed=seed, options=options)
            if options is not None:
                obs[~options["reset_mask"]] = -1
            return obs, info

    method = Recording()
    envs = wrapped(Blank(2, DISABLED, mean_length=1e9), method, learn_every=2)
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    envs.reset(options={"reset_mask": np.array([False, True])})
    envs.step(np.zeros(2, np.int64))
    assert column(method.learnt, "obs").tolist() == [[1, 0], [2, 0], [1, 1], [3, 0]]


def emi_of(space: Box, actions: gymnasium.Space, seed: int) -> Any:
    return EMI(space, actions, EMIConfig(minibatch=8), seed)


def sum_of(space: Box, actions: gymnasium.Space, seed: int) -> Any:
    small = RNDConfig(features=8, hidden=(8,))
    parts = {
        "rnd": (NormalizeReward(RND(space, actions, small, seed)), 0.5),
        "diverse": (
            NormalizeReward(EMI(space, actions, EMIConfig(reward="diversity", minibatch=8), seed)),
            1.0,
        ),
    }
    return WeightedSum(parts)


@MODES
@pytest.mark.parametrize("make", [emi_of, sum_of])
@pytest.mark.parametrize("reseeded", [False, True])
@pytest.mark.parametrize("steps", [3, 18])
def test_a_restored_wrapper_continues_bit_for_bit(
    mode: AutoresetMode, make: Callable[..., Any], reseeded: bool, steps: int, tmp_path: Path
) -> None:
    """From the middle of a batch, through checkpoint files, with restored environments."""
    inner = OracleVectorEnv(3, mode, mean_length=3.0)
    spaces = inner.single_observation_space, inner.single_action_space
    schedule = linear_schedule(1.0, 0.1, steps=100)
    ours = wrapped(inner, make(*spaces, 0), schedule, learn_every=7, pretrained=False)
    ours.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (50, 3))
    for action in actions[:steps]:  # not yet trained; or trained twice, and four steps more
        advance(ours, action)
    if mode is NEXT and steps == 18:  # the hardest place: some environments are about to reset
        assert inner.pending.any()
    save(tmp_path, 1, {"wrapper": ours.state_dict()})

    # The other wrapper was in the opposite state: pretrained or not.
    theirs = wrapped(
        copy.deepcopy(inner), make(*spaces, 99), schedule, learn_every=7, pretrained=steps == 3
    )
    theirs.load_state_dict(load_latest(tmp_path).state["wrapper"])
    assert theirs.scalars == ours.scalars
    if reseeded:
        for envs in (ours, theirs):
            envs.reset(seed=5)
    for action in actions[steps:]:
        first, second = advance(ours, action), advance(theirs, action)
        assert first[1].tobytes() == second[1].tobytes()
        assert first[4]["bonus"].tobytes() == second[4]["bonus"].tobytes()
        assert ours.scalars == theirs.scalars
        assert ours.steps == theirs.steps
    assert len(ours.scalars) > 2


@pytest.mark.filterwarnings("ignore:Recording changed")
def test_a_state_is_a_copy_and_counts_its_environments() -> None:
    method = Recording()
    envs = wrapped(OracleVectorEnv(2, SAME), method, learn_every=3)
    fresh = envs.state_dict()  # before the first reset
    assert fresh["obs"] is None
    assert fresh["unlearnt"] is None
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    state = envs.state_dict()
    state["unlearnt"]["obs"] += 100
    state["obs"] += 100
    for _ in range(2):
        envs.step(np.zeros(2, np.int64))
    assert column(method.learnt, "obs").max() < 50
    with pytest.raises(ValueError, match="of 2 environments, the wrapper has 4"):
        wrapped(OracleVectorEnv(4, SAME), Recording()).load_state_dict(state)
    envs.load_state_dict(fresh)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        envs.step(np.zeros(2, np.int64))


@MODES
def test_loading_a_state_restores_it(mode: AutoresetMode) -> None:
    """Further training must not change the saved state, and loading must undo it."""
    inner = OracleVectorEnv(3, mode, mean_length=3.0)
    spaces = inner.single_observation_space, inner.single_action_space
    method = sum_of(*spaces, 0)
    envs = wrapped(inner, method, learn_every=7, pretrained=False)
    envs.reset(seed=0)
    for _ in range(10):
        advance(envs, np.zeros(3, np.int64))
    probe = Transitions(np.ones((4, 2), np.float32), np.zeros(4, int), np.zeros((4, 2), np.float32))
    state, before = envs.state_dict(), method.reward(probe)
    for _ in range(20):
        advance(envs, np.zeros(3, np.int64))
    assert not torch.equal(method.reward(probe), before)
    envs.load_state_dict(state)
    assert torch.equal(method.reward(probe), before)


class OfTensors(OracleVectorEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        return torch.as_tensor(obs), info


def test_wrong_uses_raise_a_user_error() -> None:
    made = OracleVectorEnv(2, SAME)
    with pytest.raises(ValueError, match="learn_every must be 1 or more, got 0"):
        wrapped(made, Recording(), learn_every=0)
    with pytest.raises(ValueError, match="finite and zero or more"):
        wrapped(made, Recording(), -1.0)
    for name in ("single_observation_space", "single_action_space"):
        other = OracleVectorEnv(2, SAME)
        setattr(other, name, Dict({"a": Discrete(2)}))
        what = "observations" if "observation" in name else "actions"
        with pytest.raises(ValueError, match=f"{what} must be arrays"):
            wrapped(other, Recording())
    with pytest.raises(
        UserError, match=r"NumPy arrays, got tensors: put wrappers such as NumpyToTorch around"
    ):
        wrapped(OfTensors(2, SAME), Recording()).reset()
    hidden = OracleVectorEnv(2, SAME)
    hidden.metadata = {}
    with pytest.raises(ValueError, match=r'set metadata\["autoreset_mode"\]'):
        wrapped(hidden, Recording())


def test_a_missing_last_observation_raises() -> None:
    class Forgetful(OracleVectorEnv):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {}

    envs = wrapped(Forgetful(4, SAME, mean_length=1.0), Recording())
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="final_obs"):
        envs.step(np.zeros(4, np.int64))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_raise(bad: float) -> None:
    envs = wrapped(OracleVectorEnv(2, SAME), Recording(bonus=bad))
    envs.reset(seed=0)
    with pytest.raises(NotFiniteError, match="bonus became"):
        envs.step(np.zeros(2, np.int64))

    inner = OracleVectorEnv(2, DISABLED)
    envs = wrapped(inner, Recording())
    envs.reset(seed=0)
    inner.state[0, 1] = bad
    with pytest.raises(NotFiniteError, match="observation became"):
        envs.step(np.zeros(2, np.int64))
    with pytest.raises(NotFiniteError, match="observation became"):
        envs.reset(options={"reset_mask": np.array([False, True])})


def test_the_adapters_do_not_need_stable_baselines3() -> None:
    check = "import sys, emi.adapters; print('stable_baselines3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_pages_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(snippets) == 3
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet, names)
    assert "emi/loss_linear" in names["envs"].scalars
    assert names["envs"].steps == 4 * 256
    assert names["method"].learns_first is False
    assert capsys.readouterr().out
