"""A batch of steps: what happened, on the [time, env] grid, and the transitions in it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gymnasium.vector import VectorEnv

from emi.agent.observations import make_keeper
from emi.agent.play import Trace, first_rows, play
from emi.agent.policy import AnyPolicy
from emi.batch import Array, BoolArray, FloatArray, IntArray, Rows, Stacks, Transitions


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
    position: FloatArray | None = None  # [time, env, 1 or 2], of s', if positions are recorded

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
    noise = draw_noise(policy, steps, envs.num_envs, rng)
    keeper = make_keeper(envs.single_observation_space, (len(noise) + 1) * envs.num_envs)
    obs, _ = envs.reset(seed=seed)
    played = play(envs, policy.outputs(), policy.actions, noise, obs, keeper)
    return rollout_of(keeper.pool(), played)


def draw_noise(policy: AnyPolicy, steps: int, num_envs: int, rng: np.random.Generator) -> Array:
    """The noise [time, env, A] of the actions of at least `steps` steps."""
    return policy.noise(rng, math.ceil(steps / num_envs), num_envs)


def rollout_of(pool: Array | Stacks, played: Trace) -> Rollout:
    """The rollout of played steps, whose observations are the rows of `pool`."""
    return Rollout(pool=pool, index=first_rows(*played.reward.shape)[:-1], **played._asdict())
