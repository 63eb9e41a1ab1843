"""The collector against an oracle, in all of Gymnasium's autoreset modes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv

from emi.agent.play import clocks, returns
from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import Rollout, collect


def run(mode: AutoresetMode, steps: int, num_envs: int = 7, seed: int = 0) -> Rollout:
    envs = OracleVectorEnv(num_envs, mode)
    policy = make_policy(
        envs.single_observation_space,
        envs.single_action_space,
        PolicyConfig(hidden=(2,)),
        torch.Generator().manual_seed(0),
    )
    return collect(envs, policy, steps, np.random.default_rng(0), seed)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_no_triple_crosses_an_episode(mode: AutoresetMode) -> None:
    rollout = run(mode, steps=100_000)
    batch = rollout.transitions(lambda action: action)
    obs, next_obs = batch.obs[:], batch.next_obs[:]
    assert len(batch) == rollout.steps
    np.testing.assert_array_equal(next_obs[:, 0], obs[:, 0])
    np.testing.assert_array_equal(next_obs[:, 1], obs[:, 1] + 1)
    np.testing.assert_array_equal(rollout.flat(rollout.clock), obs[:, 1])
    # Episodes were many, and each end was seen: terminated, truncated, and both.
    flags = {(bool(t), bool(e)) for t, e in zip(*map(np.ravel, ends(rollout)), strict=True)}
    assert flags == {(False, False), (True, False), (False, True), (True, True)}
    assert len(rollout.episode_returns) == rollout.ended.sum() > 10_000


@pytest.mark.parametrize("mode", AutoresetMode)
def test_ended_marks_the_last_row_of_every_episode(mode: AutoresetMode) -> None:
    batch = run(mode, steps=2_000).transitions(lambda action: action)
    assert batch.env_index is not None
    assert batch.ended is not None
    assert set(batch.env_index.tolist()) == set(range(7))
    episodes = 0
    for env in range(7):
        part = batch[batch.env_index == env]
        assert part.ended is not None
        episode, t = np.asarray(part.obs).T
        assert t[0] == 0
        begins = np.flatnonzero(episode[1:] != episode[:-1]) + 1
        assert (t[begins] == 0).all()
        expected = np.zeros(len(part), bool)
        expected[begins - 1] = expected[-1] = True  # the next rollout starts from a reset
        np.testing.assert_array_equal(part.ended, expected)
        assert len(np.unique(episode)) == len(begins) + 1  # rows are in time order
        episodes += len(begins)
    assert episodes > 200


def ends(rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    return rollout.terminated, rollout.truncated


@pytest.mark.parametrize("mode", AutoresetMode)
def test_returns_are_those_of_whole_episodes(mode: AutoresetMode) -> None:
    rollout = run(mode, steps=2_000)
    # The return of an episode of length L is 0 + 1 + … + (L − 1).
    lengths = rollout.clock[rollout.ended] + 1
    np.testing.assert_array_equal(rollout.episode_returns, lengths * (lengths - 1) / 2)
    assert rollout.flat(rollout.reward).min() == 0


def test_next_step_mode_masks_exactly_the_resetting_steps() -> None:
    rollout = run(AutoresetMode.NEXT_STEP, steps=2_000)
    expected = np.ones_like(rollout.valid)
    expected[1:] = ~rollout.ended[:-1]
    np.testing.assert_array_equal(rollout.valid, expected)
    assert not rollout.valid.all()
    assert not rollout.ended[~rollout.valid].any()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_other_modes_waste_no_step(mode: AutoresetMode) -> None:
    assert run(mode, steps=2_000).steps == 2_002  # 286 steps of 7 environments


def test_the_seed_decides() -> None:
    first, again, other = (run(AutoresetMode.SAME_STEP, 500, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.terminated, again.terminated)
    assert (first.terminated != other.terminated).any()


def test_an_environment_without_an_autoreset_mode_is_rejected() -> None:
    envs = OracleVectorEnv(2, AutoresetMode.SAME_STEP)
    envs.metadata = {}
    policy = make_policy(
        envs.single_observation_space, envs.single_action_space, PolicyConfig(), torch.Generator()
    )
    with pytest.raises(ValueError, match="autoreset_mode"):
        collect(envs, policy, 10, np.random.default_rng(0), 0)


def test_clocks_count_the_valid_steps_of_an_episode() -> None:
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1], [1, 0], [0, 0]], bool)
    valid = np.ones_like(ended)
    assert clocks(ended, valid).T.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1]]
    # A step that only resets is not counted.
    valid[2, 0] = valid[4, 1] = valid[5, 0] = False
    assert clocks(ended, valid).T.tolist() == [[0, 1, 0, 0, 1, 0], [0, 1, 2, 3, 0, 0]]


def test_returns_are_sums_in_the_order_of_the_ends() -> None:
    reward = np.array([[1.0, 10.0], [2.0, 0.1], [4.0, 0.2], [8.0, 0.3]])
    ended = np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool)
    assert returns(reward, ended).tolist() == [3.0, (10.0 + 0.1) + 0.2]
    assert returns(-0.0 * reward, ended).tolist() == [0.0, 0.0]
    assert not np.signbit(returns(-0.0 * reward, ended)).any()
    assert returns(reward, np.zeros_like(ended)).shape == (0,)
