"""The worlds an agent can be trained in, each behind one name.

`make_env` turns a name into a `gymnasium.vector.VectorEnv`; every one of them resets an ended
environment within the same step (`AutoresetMode.SAME_STEP`) and hands over the true last
observation as `info["final_obs"]`. Simulators are extras: a world's file, and with it the
simulator, is imported when that world is first made.
"""

import difflib

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

GYM_PREFIX = "gym:"

ENVIRONMENTS: dict[str, str] = {
    "SparseHalfCheetah": "run 5 m from the start, either way (MuJoCo; 20-d vectors, 6-d actions)",
}

gym.register(
    id="emi/SparseHalfCheetah-v0",
    entry_point="emi.envs.sparse_half_cheetah:SparseHalfCheetahEnv",
    vector_entry_point="emi.envs.sparse_half_cheetah:SparseHalfCheetahVectorEnv",
    max_episode_steps=500,
)


def make_env(
    name: str, num_envs: int = 1, seed: int | None = None, threads: int | None = None
) -> VectorEnv:
    """Make `num_envs` copies of the environment `name`, stepped together.

    `seed` starts the environments' random streams, so that a later `reset()` without a seed is
    reproducible too. `threads` bounds the simulator's thread pool (default: the machine's cores);
    it changes the speed, never the result, and `gym:` environments, which run in the calling
    thread, have no use for it.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}.")
    env: VectorEnv
    if name == "SparseHalfCheetah":
        from emi.envs.sparse_half_cheetah import SparseHalfCheetahVectorEnv

        env = SparseHalfCheetahVectorEnv(num_envs, threads=threads)
    elif name.startswith(GYM_PREFIX):
        env = _make_gymnasium(name.removeprefix(GYM_PREFIX), num_envs)
    else:
        raise ValueError(unknown_name(name))
    if seed is not None:
        env.reset(seed=seed)
        env.action_space.seed(seed)
    return env


def unknown_name(name: str) -> str:
    """One sentence for a name nobody knows, with the nearest one that exists."""
    if name in gym.registry:
        return f"unknown environment {name!r}: did you mean '{GYM_PREFIX}{name}'?"
    # Compared without case, so that 'sparsehalfcheetah' is found as well.
    names = {known.lower(): known for known in ENVIRONMENTS}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    if close:
        return f"unknown environment {name!r}: did you mean {names[close[0]]!r}?"
    return f"unknown environment {name!r}: choose one of {', '.join(ENVIRONMENTS)} or gym:<id>."


def _make_gymnasium(env_id: str, num_envs: int) -> VectorEnv:
    """A registered Gymnasium environment, if its spaces are ones the methods understand."""
    try:
        env = gym.make_vec(
            env_id,
            num_envs=num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
    except (gym.error.Error, ImportError) as error:
        raise ValueError(f"cannot make '{GYM_PREFIX}{env_id}': {error}") from error
    observation, action = env.single_observation_space, env.single_action_space
    if not (_is_vector_or_image(observation) and isinstance(action, spaces.Box | spaces.Discrete)):
        env.close()
        raise ValueError(
            f"'{GYM_PREFIX}{env_id}' has observations {observation} and actions {action}: "
            "supported are Box observations (vectors or uint8 images) and Box or Discrete actions."
        )
    return env


def _is_vector_or_image(space: gym.Space) -> bool:
    if not isinstance(space, spaces.Box):
        return False
    return len(space.shape) == 1 or (space.dtype == np.uint8 and len(space.shape) in (2, 3))
