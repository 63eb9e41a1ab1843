"""The worlds an agent can be trained in, each behind one name.

`make_env` turns a name into a `gymnasium.vector.VectorEnv`; every one of them resets an ended
environment within the same step (`AutoresetMode.SAME_STEP`) and hands over the true last
observation as `info["final_obs"]`. Simulators are extras: a world's file, and with it the
simulator, is imported when that world is first made.
"""

import difflib
from typing import cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

GYM_PREFIX = "gym:"
ATARI_PREFIX = "atari:"

# The six of the paper; any other is known by its prefix.
ATARI_GAMES = {
    "Freeway": "lead a chicken over the road",
    "Frostbite": "build an igloo on drifting ice",
    "Venture": "take treasures out of guarded rooms",
    "Gravitar": "land on planets that pull",
    "Solaris": "fly and fight through a star map",
    "MontezumaRevenge": "find keys and doors in a tomb",
}
ENVIRONMENTS: dict[str, str] = {
    "SparseHalfCheetah": "run 5 m from the start, either way (MuJoCo; 20-d vectors, 6-d actions)",
    "SwimmerGather": "swim to apples, not to bombs (MuJoCo; 33-d vectors, 2-d actions)",
    **{name: f"{what} (Atari; 4×52×52 images)" for name, what in ATARI_GAMES.items()},
    "BoxImage": "a disc in a box, no reward: to look at embeddings (1×52×52 images, 2-d actions)",
}
# What else `make_env` takes.
FAMILIES: dict[str, str] = {
    f"{ATARI_PREFIX}<Game>": "any other game of ale-py, as atari:Pong",
    f"{GYM_PREFIX}<id>": "any installed Gymnasium environment with Box or Discrete spaces",
}

for _name, _module, _steps in (
    ("SparseHalfCheetah", "sparse_half_cheetah", 500),
    ("SwimmerGather", "swimmer_gather", 500),
    ("BoxImage", "box_image", 500),
):
    gym.register(
        id=f"emi/{_name}-v0",
        entry_point=f"emi.envs.{_module}:{_name}Env",
        vector_entry_point=f"emi.envs.{_module}:{_name}VectorEnv",
        max_episode_steps=_steps,
    )
for _name in (*ATARI_GAMES, "Atari"):  # the last takes the game as an argument
    gym.register(
        id=f"emi/{_name}-v0",
        entry_point="emi.envs.atari:AtariEnv",
        vector_entry_point="emi.envs.atari:AtariVectorEnv",
        kwargs={"game": _name} if _name in ATARI_GAMES else {},
        max_episode_steps=4_500,
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
    env = _make(name, num_envs, threads)
    if seed is not None:
        env.reset(seed=seed)
        env.action_space.seed(seed)
    return env


def is_atari(name: str) -> bool:
    return name in ATARI_GAMES or name.startswith(ATARI_PREFIX)


def time_limit(name: str) -> int | None:
    """The longest episode of an environment, in steps; None if there is no limit or no name."""
    if name.startswith(GYM_PREFIX):
        known = name.removeprefix(GYM_PREFIX)
    else:
        known = f"emi/{'Atari' if is_atari(name) else name}-v0"
    try:
        return gym.spec(known).max_episode_steps
    except (gym.error.Error, ImportError):
        return None


def observes_images(name: str) -> bool:
    """Whether a `gym:` environment shows images; to know, it is made."""
    env = _make(name, num_envs=1, threads=None)
    space = env.single_observation_space
    env.close()
    return space.dtype == np.uint8 and len(space.shape or ()) > 1


def _make(name: str, num_envs: int, threads: int | None) -> VectorEnv:
    if name == "SparseHalfCheetah":
        from emi.envs.sparse_half_cheetah import SparseHalfCheetahVectorEnv

        return SparseHalfCheetahVectorEnv(num_envs, threads=threads)
    if name == "SwimmerGather":
        from emi.envs.swimmer_gather import SwimmerGatherVectorEnv

        return SwimmerGatherVectorEnv(num_envs, threads=threads)
    if name == "BoxImage":
        from emi.envs.box_image import BoxImageVectorEnv

        return BoxImageVectorEnv(num_envs)
    if is_atari(name):
        from emi.envs.atari import make_atari

        return make_atari(name, num_envs, threads)
    if name.startswith(GYM_PREFIX):
        return _make_gymnasium(name.removeprefix(GYM_PREFIX), num_envs)
    raise ValueError(unknown_name(name))


def unknown_name(name: str) -> str:
    """One sentence for a name nobody knows, with the nearest one that exists."""
    if name in gym.registry:
        return f"unknown environment {name!r}: did you mean '{GYM_PREFIX}{name}'?"
    # Compared without case, so that 'sparsehalfcheetah' is found as well.
    names = {known.lower(): known for known in ENVIRONMENTS}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    if close:
        return f"unknown environment {name!r}: did you mean {names[close[0]]!r}?"
    choices = ", ".join([*ENVIRONMENTS, *FAMILIES])
    return f"unknown environment {name!r}: choose one of {choices}."


def _make_gymnasium(env_id: str, num_envs: int) -> VectorEnv:
    """A registered Gymnasium environment, if its spaces are ones the methods understand."""
    try:
        env = gym.make_vec(
            env_id,
            num_envs=num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            wrappers=[as_vector_or_image],  # type: ignore[list-item]
        )
    except (gym.error.Error, ImportError) as error:
        raise ValueError(f"cannot make '{GYM_PREFIX}{env_id}': {error}") from error
    observation, action = env.single_observation_space, env.single_action_space
    if not (
        isinstance(observation, spaces.Box) and isinstance(action, spaces.Box | spaces.Discrete)
    ):
        env.close()
        raise ValueError(
            f"'{GYM_PREFIX}{env_id}' has observations {observation} and actions {action}: "
            "supported are Box, Discrete, MultiDiscrete and MultiBinary observations "
            "and Box or Discrete actions."
        )
    return env


def as_vector_or_image(env: gym.Env) -> gym.Env:
    """The environment with observations as float32 vectors, if they are easily made ones.

    A number of a `Discrete` space becomes a one-hot vector, several of a `MultiDiscrete` one after
    the other, and an array of any shape is laid out in a row. Vectors, images (uint8, two or three
    axes) and what is no single array stay as they are.
    """
    space = env.observation_space
    if isinstance(space, spaces.Box):
        image = space.dtype == np.uint8 and len(space.shape) in (2, 3)
        if image or len(space.shape) == 1:
            return env
    elif not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return env
    flat = cast(spaces.Box, spaces.flatten_space(space))
    with np.errstate(over="ignore"):  # a float64 bound may be beyond all of float32
        low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    return gym.wrappers.TransformObservation(
        env,
        lambda obs: np.asarray(spaces.flatten(space, obs), dtype=np.float32),
        spaces.Box(low, high, dtype=np.float32),
    )
