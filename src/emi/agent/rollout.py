"""Step a vector environment with a policy and store the transitions and episode ends."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.agent.observations import make_keeper
from emi.agent.policy import AnyPolicy
from emi.batch import Array, BoolArray, FloatArray, IntArray, Rows, Stacks, Transitions
from emi.errors import check_finite
from emi.spaces import autoreset_mode


@dataclass(frozen=True)
class Rollout:
    """The steps of all environments in one iteration.

    Observations are stored once, in `pool`; `index` and `next_index` are the rows of s and s'. A
    step is `valid` if it is a transition: with Gymnasium's NEXT_STEP autoreset, a step that only
    resets is not.
    """

    pool: Array | Stacks  # [rows, *observation]
    index: IntArray  # [time, env]
    next_index: IntArray  # [time, env]
    action: Array  # [time, env, *action], as sampled, before rescaling and clipping
    reward: FloatArray  # [time, env], raw
    terminated: BoolArray  # [time, env]
    truncated: BoolArray  # [time, env]
    clock: IntArray  # [time, env], steps since the start of the episode
    valid: BoolArray  # [time, env]
    episode_returns: FloatArray  # [finished episodes], raw

    def __post_init__(self) -> None:
        shape = self.index.shape
        for name in ("next_index", "reward", "terminated", "truncated", "clock", "valid"):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"{name} must have the axes [time, env] = {shape}, "
                    f"got {getattr(self, name).shape}"
                )
        if self.action.shape[:2] != shape:
            raise ValueError(
                f"action must begin with the axes [time, env] = {shape}, got {self.action.shape}"
            )

    @property
    def ended(self) -> BoolArray:
        """[time, env]: whether the episode ended with this step."""
        return self.terminated | self.truncated

    @property
    def steps(self) -> int:
        return int(self.valid.sum())

    def flat(self, grid: Array) -> Array:
        """[time, env, ...] to [n, ...]: the valid steps in time-major order."""
        return grid[self.valid]

    def grid(self, flat: Array) -> Array:
        """[n] to [time, env], the inverse of `flat`; zero where a step is not valid."""
        out = np.zeros(self.valid.shape, flat.dtype)
        out[self.valid] = flat
        return out

    def observations(self) -> Rows:
        """[n, *observation]: s of every valid step."""
        return Rows(self.pool, self.flat(self.index))

    def transitions(self, to_env: Callable[[Array], Array]) -> Transitions:
        """The valid steps as (s, a, s'), with actions in the units of the environment."""
        env_index = np.broadcast_to(np.arange(self.index.shape[1]), self.index.shape)
        ended = self.ended
        ended[-1] = True  # the next rollout starts from a reset
        return Transitions(
            obs=self.observations(),
            action=to_env(self.flat(self.action)),
            next_obs=Rows(self.pool, self.flat(self.next_index)),
            env_index=self.flat(env_index),
            ended=self.flat(ended),
        )


def collect(
    envs: VectorEnv, policy: AnyPolicy, steps: int, rng: np.random.Generator, seed: int
) -> Rollout:
    """Collect at least `steps` steps, starting from a reset with `seed`.

    Every environment takes the same number of steps; the last episode may be unfinished.
    """
    mode = autoreset_mode(envs)
    num_envs = envs.num_envs
    length = math.ceil(steps / num_envs)

    row_of = np.arange((length + 1) * num_envs).reshape(length + 1, num_envs)
    keeper = make_keeper(envs.single_observation_space, row_of.size)
    next_index = row_of[1:].copy()
    spare = row_of.size  # the next row for a last observation of an episode
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
        check_finite("observation", obs)  # before the policy computes an action from it
        keeper.put(row_of[t], obs, row_of[t - 1] if t > 0 else None)
        clock[t] = age
        action = act(obs)
        obs, reward[t], terminated[t], truncated[t], info = envs.step(policy.to_env(action))
        actions.append(action)
        if mode is AutoresetMode.NEXT_STEP and t > 0:
            # An environment whose episode ended in the previous step only resets in this step, so
            # this step is not a transition.
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
