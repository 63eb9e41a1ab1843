"""Step a vector of environments with a policy and keep what happened, episode ends included."""

from __future__ import annotations

import math

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.agent.observations import make_keeper
from emi.agent.policy import AnyPolicy
from emi.data import Array, Rollout, autoreset_mode, check_finite


def collect(
    envs: VectorEnv, policy: AnyPolicy, steps: int, rng: np.random.Generator, seed: int
) -> Rollout:
    """At least `steps` steps, starting from a reset seeded with `seed`.

    Every environment takes the same number of steps; an episode still running at the end is cut.
    """
    mode = autoreset_mode(envs)
    num_envs = envs.num_envs
    length = math.ceil(steps / num_envs)

    row_of = np.arange((length + 1) * num_envs).reshape(length + 1, num_envs)
    keeper = make_keeper(envs.single_observation_space, row_of.size)
    next_index = row_of[1:].copy()
    spare = row_of.size  # the next row for a true successor that no later step will hold
    actions: list[Array] = []
    reward = np.zeros((length, num_envs))
    terminated = np.zeros((length, num_envs), bool)
    truncated = np.zeros((length, num_envs), bool)
    clock = np.zeros((length, num_envs), np.int64)
    valid = np.ones((length, num_envs), bool)
    episode_return = np.zeros(num_envs)
    episode_returns: list[float] = []
    age = np.zeros(num_envs, np.int64)

    act = policy.actor(rng)
    obs, _ = envs.reset(seed=seed)
    for t in range(length):
        check_finite("observation", obs)  # before the policy turns it into an action
        keeper.put(row_of[t], obs, row_of[t - 1] if t > 0 else None)
        clock[t] = age
        action = act(obs)
        obs, reward[t], terminated[t], truncated[t], info = envs.step(policy.to_env(action))
        actions.append(action)
        if mode is AutoresetMode.NEXT_STEP and t > 0:
            # Environments that ended one step ago only reset in this one: no transition.
            valid[t] = ~(valid[t - 1] & (terminated[t - 1] | truncated[t - 1]))
            reward[t, ~valid[t]] = 0.0
            terminated[t, ~valid[t]] = truncated[t, ~valid[t]] = False
        episode_return += reward[t]
        age += valid[t]
        ended = terminated[t] | truncated[t]
        if not ended.any():
            continue
        which = np.flatnonzero(ended)
        episode_returns.extend(episode_return[which])
        episode_return[which] = 0.0
        age[which] = 0
        if mode is AutoresetMode.NEXT_STEP:
            continue
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
    return Rollout(
        pool=keeper.pool(),
        index=row_of[:-1],
        next_index=next_index,
        action=np.stack(actions),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        clock=clock,
        valid=valid,
        episode_returns=np.array(episode_returns),
    )
