"""Step a vector environment with an actor and store what happens. NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.agent.acting import AnyActions
from emi.agent.observations import Keeper
from emi.batch import Array, BoolArray, FloatArray, IntArray
from emi.errors import check_finite
from emi.spaces import autoreset_mode


class Trace(NamedTuple):
    """The steps of all environments, without the observations: these are rows of a keeper.

    Row t · env + i of the keeper is the observation of environment i before step t. The last
    observation of an episode that ended is a row after those.
    """

    next_index: IntArray  # [time, env], the rows of s'
    action: Array  # [time, env, *action], as sampled, before rescaling and clipping
    reward: FloatArray  # [time, env], raw
    terminated: BoolArray  # [time, env]
    truncated: BoolArray  # [time, env]
    clock: IntArray  # [time, env], steps since the start of the episode
    valid: BoolArray  # [time, env], see `emi.agent.rollout.Rollout`
    episode_returns: FloatArray  # [finished episodes], raw, in the order of their ends


def first_rows(length: int, num_envs: int) -> IntArray:
    """[time + 1, env]: the rows of the observations before each step, and after the last one."""
    return np.arange((length + 1) * num_envs).reshape(length + 1, num_envs)


def play(
    envs: VectorEnv,
    outputs: Callable[[Array], Array],
    actions: AnyActions,
    noise: Array,
    obs: Array,
    keeper: Keeper,
) -> Trace:
    """Take one step in every environment for each row of `noise` [time, env, A].

    `obs` [env, ...] is that of the reset; `outputs` maps observations to what the noise is added
    to. The last episode may be unfinished.
    """
    mode = autoreset_mode(envs)
    length, num_envs = noise.shape[:2]
    row_of = first_rows(length, num_envs)
    next_index = row_of[1:].copy()
    spare = row_of.size  # the next row for a last observation of an episode
    taken: list[Array] = []
    reward = np.zeros((length, num_envs))
    terminated = np.zeros((length, num_envs), bool)
    truncated = np.zeros((length, num_envs), bool)
    valid = np.ones((length, num_envs), bool)

    for t in range(length):
        check_finite("observation", obs)  # before the policy computes an action from it
        keeper.put(row_of[t], obs, row_of[t - 1] if t > 0 else None)
        action = actions.chosen(outputs(obs), noise[t])
        obs, reward[t], terminated[t], truncated[t], info = envs.step(actions.to_env(action))
        taken.append(action)
        if mode is AutoresetMode.NEXT_STEP and t > 0:
            # An environment whose episode ended in the previous step only resets in this step, so
            # this step is not a transition.
            valid[t] = ~(valid[t - 1] & (terminated[t - 1] | truncated[t - 1]))
            reward[t, ~valid[t]] = 0.0
            terminated[t, ~valid[t]] = truncated[t, ~valid[t]] = False
        if mode is AutoresetMode.NEXT_STEP or not (
            np.count_nonzero(terminated[t]) or np.count_nonzero(truncated[t])
        ):
            continue
        ended = terminated[t] | truncated[t]
        which = np.flatnonzero(ended)
        same_step = mode is AutoresetMode.SAME_STEP
        last = (
            np.stack([np.asarray(info["final_obs"][i]) for i in which]) if same_step else obs[which]
        )
        check_finite("observation", last)
        next_index[t, which] = spare + np.arange(len(which))
        spare += len(which)
        keeper.put(next_index[t, which], last, row_of[t, which])
        if mode is AutoresetMode.DISABLED:
            obs, _ = envs.reset(options={"reset_mask": ended})
    check_finite("observation", obs)
    keeper.put(row_of[length], obs, row_of[length - 1])
    return Trace(
        next_index=next_index,
        action=np.stack(taken),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        clock=clocks(terminated | truncated, valid),
        valid=valid,
        episode_returns=returns(reward, terminated | truncated),
    )


def clocks(ended: BoolArray, valid: BoolArray) -> IntArray:
    """[time, env]: the number of valid steps of the same episode before each step."""
    done = np.zeros(ended.shape, np.int64)  # valid steps before each step, of all episodes
    np.cumsum(valid[:-1], axis=0, out=done[1:])
    # A step that only resets adds nothing, so that it and the first one of the episode count 0.
    at_start = np.zeros_like(done)
    np.maximum.accumulate(np.where(ended, done + valid, 0)[:-1], axis=0, out=at_start[1:])
    return done - at_start


def returns(reward: FloatArray, ended: BoolArray) -> FloatArray:
    """The sum of the rewards of every episode that `ended`, in the order of their ends."""
    found: list[float] = []
    start = np.zeros(ended.shape[1], np.int64)
    for t, i in np.argwhere(ended):
        rewards = np.append(0.0, reward[start[i] : t + 1, i])
        found.append(np.add.accumulate(rewards)[-1])  # added one after the other
        start[i] = t + 1
    return np.array(found)
