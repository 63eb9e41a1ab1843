"""Environments, made by name.

`make_vec` returns a `gymnasium.vector.VectorEnv` that resets an ended environment within the same
step (`AutoresetMode.SAME_STEP`) and returns the true last observation as `info["final_obs"]`.
Simulators are optional dependencies: an environment's file, which imports its simulator, is
imported when the environment is first made.
"""

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.envs.table import (
    ANY_ATARI_GAME,
    ENVIRONMENTS,
    FAMILIES,
    GYM_PREFIX,
    Environment,
    find_environment,
)
from emi.errors import UserError, did_you_mean
from emi.images import is_image
from emi.program import install
from emi.spaces import ActionSpace

for _name, _entry in (ENVIRONMENTS | {"Atari": ANY_ATARI_GAME}).items():
    gym.register(
        id=f"emi/{_name}-v0",
        entry_point=f"emi.envs.{_entry.home}Env",
        vector_entry_point=f"emi.envs.{_entry.home}VectorEnv",
        kwargs=dict(_entry.arguments),
        max_episode_steps=_entry.max_episode_steps,
    )

_GYMNASIUM_MUJOCO = "gymnasium.envs.mujoco."
_NOT_THERE = (gym.error.Error, ImportError, SyntaxError)  # what making a `gym:` name can raise


def make_vec(
    name: str, num_envs: int = 1, seed: int | None = None, threads: int | None = None
) -> VectorEnv:
    """Make `num_envs` copies of the environment `name`, stepped together.

    `seed` seeds the environments' random streams, so that a later `reset()` without a seed is
    reproducible too. `threads` bounds the simulator's thread pool (default: the machine's cores);
    it changes the speed, never the result, and has no effect on `gym:` environments, which run in
    the calling thread.
    """
    if num_envs < 1:
        raise UserError(f"num_envs must be at least 1, got {num_envs}")
    if threads is not None and threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    entry = known_environment(name)
    if entry is None:
        envs = _make_gymnasium(name, num_envs)
    else:
        kind = load_class(name, entry, "VectorEnv")
        envs = kind(num_envs=num_envs, threads=threads, **entry.arguments)
    if seed is not None:
        envs.reset(seed=seed)
        envs.action_space.seed(seed)
    return envs


def make_single(name: str, render_mode: str | None = None) -> gym.Env:
    """Make one copy of the environment `name`, as a `gymnasium.Env` that can be rendered."""
    entry = known_environment(name)
    if entry is None:
        return as_vector_or_image(_registered(name, gym.make, render_mode=render_mode))
    env: gym.Env = load_class(name, entry, "Env")(render_mode=render_mode, **entry.arguments)
    return gym.wrappers.TimeLimit(env, entry.max_episode_steps)


def load_class(name: str, entry: Environment, ending: str) -> Any:
    """The class of a table entry; UserError names the extra if its simulator is missing."""
    module, _, kind = entry.home.partition(":")
    try:
        return getattr(importlib.import_module(f"emi.envs.{module}"), f"{kind}{ending}")
    except ModuleNotFoundError as error:
        if error.name != entry.simulator or entry.extra is None:
            raise
        raise UserError(
            f"{name} needs {error.name}, which is not installed: {install(entry.extra)}"
        ) from None


def time_limit(name: str) -> int | None:
    """The longest episode of an environment in steps; None if there is no limit or no such name."""
    entry = find_environment(name)
    if entry is not None:
        return entry.max_episode_steps
    if not name.startswith(GYM_PREFIX):
        return None
    module, _, env_id = name.removeprefix(GYM_PREFIX).rpartition(":")
    try:
        if module:  # as in gym:my_package.envs:MyEnv-v0; importing it registers the environment
            importlib.import_module(module)
        return gym.spec(env_id).max_episode_steps
    except _NOT_THERE:
        return None


def observes_images(name: str) -> bool:
    """Whether the observations of an environment are images; creates it to find out."""
    with contextlib.closing(make_vec(name)) as envs:
        return is_image(envs.single_observation_space)


def known_environment(name: str) -> Environment | None:
    """The entry of a name, None for `gym:`; UserError names the nearest name."""
    entry = find_environment(name)
    if entry is None and not name.startswith(GYM_PREFIX):
        choices = f": choose one of {', '.join([*ENVIRONMENTS, *FAMILIES])}"
        hint = did_you_mean(name, ENVIRONMENTS, choices)
        if name in gym.registry:
            hint = f": did you mean '{GYM_PREFIX}{name}'?"
        raise UserError(f"unknown environment {name!r}{hint}")
    if entry is None:
        module, colon, _ = name.removeprefix(GYM_PREFIX).rpartition(":")
        if colon and not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"{name!r} must be gym:ID or gym:package.module:ID")
    return entry


def _registered(name: str, make: Callable[..., Any], **arguments: Any) -> Any:
    """What `gym.make` or `gym.make_vec` makes of a `gym:` name; UserError if it is unknown."""
    env_id = name.removeprefix(GYM_PREFIX)
    spec = gym.registry.get(env_id)
    try:
        if spec is not None and str(spec.entry_point).startswith(_GYMNASIUM_MUJOCO):
            _prepare_mujoco(rendered=arguments.get("render_mode") is not None)
        return make(env_id, **arguments)
    except _NOT_THERE as error:
        raise UserError(f"cannot make {name!r}: {error}") from error


def _prepare_mujoco(rendered: bool) -> None:
    """Silence MuJoCo, and tell Gymnasium which OpenGL works: its own choice needs a window."""
    importlib.import_module("emi.envs.silent_mujoco").silence()
    if rendered:
        rendering = importlib.import_module("emi.envs.rendering")
        os.environ.setdefault("MUJOCO_GL", rendering.rendering_backend())


def _make_gymnasium(name: str, num_envs: int) -> VectorEnv:
    """A registered Gymnasium environment, if the methods support its spaces."""
    envs: VectorEnv = _registered(
        name,
        gym.make_vec,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        wrappers=[as_vector_or_image],
    )
    observation, action = envs.single_observation_space, envs.single_action_space
    if not (isinstance(observation, spaces.Box) and isinstance(action, ActionSpace)):
        envs.close()
        raise UserError(
            f"{name!r} has observations {observation} and actions {action}: "
            "only Box, Discrete, MultiDiscrete and MultiBinary observations "
            "and Box, Discrete, MultiDiscrete and MultiBinary actions are supported"
        )
    return envs


def as_vector_or_image(env: gym.Env) -> gym.Env:
    """Flatten observations that are neither one-dimensional arrays nor images to float32 vectors.

    A `Discrete` observation becomes a one-hot vector, a `MultiDiscrete` one several of them
    concatenated, and an array of any other shape is flattened. Vectors, images (uint8, two or
    three axes) and observations that are not single arrays are left as they are.
    """
    space = env.observation_space
    if isinstance(space, spaces.Box):
        if is_image(space) or len(space.shape) == 1:
            return env
    elif not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return env
    flat = cast(spaces.Box, spaces.flatten_space(space))
    with np.errstate(over="ignore"):  # a float64 bound may exceed all of float32
        low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    return gym.wrappers.TransformObservation(
        env,
        lambda obs: np.asarray(spaces.flatten(space, obs), dtype=np.float32),
        spaces.Box(low, high, dtype=np.float32),
    )
