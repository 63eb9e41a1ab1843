"""Environments, made by name.

`make_vec` returns a `gymnasium.vector.VectorEnv` that resets an ended environment within the same
step (`AutoresetMode.SAME_STEP`) and returns the true last observation as `info["final_obs"]`.
Simulators are optional dependencies: an environment's file, which imports its simulator, is
imported when the environment is first made.
"""

import contextlib
import importlib
import inspect
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from emi.envs.foreign import (
    environment_errors,
    import_named,
    require_arguments,
    unknown_argument,
    unknown_argument_of,
)
from emi.envs.positions import SayPosition
from emi.envs.reading import ReadObservation, as_vector_or_image
from emi.envs.table import (
    ANY_ATARI_GAME,
    ENVIRONMENTS,
    FAMILIES,
    GYM_PREFIX,
    Environment,
    default_arguments,
    find_environment,
    package_of,
    split_gym_name,
)
from emi.envs.wrapping import load_wrapper
from emi.errors import UserError, did_you_mean
from emi.images import is_image
from emi.program import install
from emi.spaces import choose_entry, require_actions

for _name, _entry in (ENVIRONMENTS | {"Atari": ANY_ATARI_GAME}).items():
    gym.register(
        id=f"emi/{_name}-v0",
        entry_point=f"emi.envs.{_entry.home}Env",
        vector_entry_point=f"emi.envs.{_entry.home}VectorEnv",
        kwargs=dict(_entry.arguments),
        max_episode_steps=_entry.max_episode_steps,
    )

_MUJOCO = ("gymnasium.envs.mujoco.", "gymnasium_robotics.")  # entry points that use MuJoCo
# They import a module that an argument names, and environments of the old gym are a non-goal.
_OLD_GYM = ("GymV21Environment-v0", "GymV26Environment-v0")
_NOT_THERE = (gym.error.Error, ImportError, SyntaxError)  # what making a `gym:` name can raise
# Arguments of `gym.make` and `gym.make_vec` that are not for the environment.
_NOT_ARGUMENTS = (
    *("id", "render_mode", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers"),
    *("disable_env_checker", "threads"),
)


def make_vec(
    name: str,
    num_envs: int = 1,
    seed: int | None = None,
    threads: int | None = None,
    *,
    env_args: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    observation: str | None = None,
    positions: bool = False,
) -> VectorEnv:
    """Make `num_envs` copies of the environment `name`, stepped together.

    `seed` seeds the environments' random streams, so that a later `reset()` without a seed is
    reproducible too. `threads` bounds the simulator's thread pool (default: the machine's cores);
    it changes the speed, never the result, and has no effect on `gym:` environments, which run in
    the calling thread.

    `env_args` are arguments of the environment's constructor, or `max_episode_steps`. `wrappers`
    (`"package.module:Class"`) are applied to each copy, in this order. `observation` is the key of
    the entry that is read of `Dict` observations; by default all are flattened to one vector.

    With `positions`, a `gym:` environment of a known family (MiniGrid, mazes, numbered states)
    says where the agent is, as `info["position"]`.
    """
    if num_envs < 1:
        raise UserError(f"num_envs must be at least 1, got {num_envs}")
    if threads is not None and threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    entry = known_environment(name)
    if entry is None:
        inner = [SayPosition] if positions else []
        envs = _make_gymnasium(name, num_envs, env_args, wrappers, observation, inner)
    else:
        kind = load_class(name, entry, "VectorEnv")
        own = _own_arguments(name, entry, kind, env_args, wrappers)
        envs = kind(num_envs=num_envs, threads=threads, **entry.arguments, **own)
        _require_no_choice(envs.single_observation_space, observation)
    if seed is not None:
        envs.reset(seed=seed)
        envs.action_space.seed(seed)
    return envs


def make_single(
    name: str,
    render_mode: str | None = None,
    *,
    env_args: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    observation: str | None = None,
) -> gym.Env:
    """Make one copy of the environment `name`, as a `gymnasium.Env` that can be rendered."""
    entry = known_environment(name)
    if entry is None:
        env: gym.Env = _registered(name, gym.make, env_args, render_mode=render_mode)
        with environment_errors(name):
            for wrap in _wrappers(name, wrappers, observation):
                env = wrap(env)
        return env
    kind = load_class(name, entry, "Env")
    own = _own_arguments(name, entry, load_class(name, entry, "VectorEnv"), env_args, wrappers)
    longest = own.pop("max_episode_steps", entry.max_episode_steps)
    env = kind(render_mode=render_mode, **entry.arguments, **own)
    _require_no_choice(env.observation_space, observation)
    return gym.wrappers.TimeLimit(env, longest)


def left_out(envs: VectorEnv) -> tuple[str, ...]:
    """Entries of the observations that are not read because they hold text."""
    first = next(iter(getattr(envs, "envs", ())), None)
    return first.left_out if isinstance(first, ReadObservation) else ()


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


def time_limit(name: str, env_args: Mapping[str, Any] | None = None) -> int | None:
    """The longest episode of an environment in steps; None if there is no limit or no such name."""
    given = (env_args or {}).get("max_episode_steps")
    if given is not None:
        return given if isinstance(given, int) else None
    entry = find_environment(name)
    if entry is not None:
        return entry.max_episode_steps
    if not name.startswith(GYM_PREFIX):
        return None
    try:
        env_id = _register(name)
        stated = gym.spec(env_id).max_episode_steps
        package = package_of(name)
        if stated is not None or package is None or package.time_limit is None:
            return stated
        with contextlib.closing(_registered(name, gym.make, env_args)) as env:
            return int(getattr(env.unwrapped, package.time_limit))
    except (*_NOT_THERE, UserError):
        return None


def observes_images(
    name: str,
    env_args: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    observation: str | None = None,
) -> bool:
    """Whether the observations of an environment are images; creates it to find out."""
    options: Any = {"env_args": env_args, "wrappers": wrappers, "observation": observation}
    with contextlib.closing(make_vec(name, **options)) as envs:
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
        module, _ = split_gym_name(name)
        if ":" in name.removeprefix(GYM_PREFIX) and not all(
            part.isidentifier() for part in module.split(".")
        ):
            raise UserError(f"{name!r} must be gym:ID or gym:package.module:ID")
    return entry


def _own_arguments(
    name: str,
    entry: Environment,
    kind: Any,
    env_args: Mapping[str, Any] | None,
    wrappers: Sequence[str],
) -> dict[str, Any]:
    """The arguments for one of our own environments; UserError if it does not take them."""
    if wrappers:
        listed = name in ENVIRONMENTS
        same = f"{name}-v0" if listed else f"Atari-v0 --env-arg game={entry.arguments['game']}"
        raise UserError(f"wrappers need a gym: environment: use {GYM_PREFIX}emi/{same}")
    given = dict(env_args or {})
    fixed = ("num_envs", "threads", *entry.arguments)
    known = [key for key in inspect.signature(kind).parameters if key not in fixed]
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known, f": it takes {', '.join(known)}")
            raise UserError(f"{name} takes no argument {key!r}{hint}")
    _check_time_limit(given)
    return given


def _check_time_limit(env_args: Mapping[str, Any]) -> None:
    longest = env_args.get("max_episode_steps", 1)
    if type(longest) is not int or longest < 1:
        raise UserError(f"max_episode_steps must be a positive whole number, got {longest!r}")


def _require_no_choice(space: gym.Space, observation: str | None) -> None:
    if observation is not None:
        choose_entry(space, observation)


def _register(name: str) -> str:
    """Import what registers a `gym:` name; return its id, without the module."""
    module, env_id = split_gym_name(name)
    package = package_of(name)
    if module:  # as in gym:my_package.envs:MyEnv-v0
        import_named(module, f"cannot make {name!r}")
    elif package is not None and env_id not in gym.registry:
        try:
            # Gymnasium-Robotics prints a notice about some of its environments.
            with contextlib.redirect_stderr(io.StringIO()):
                gym.register_envs(importlib.import_module(package.module))
        except ModuleNotFoundError as error:
            if error.name != package.module:
                raise
            raise UserError(
                f"{name} needs {package.module}, which is not installed: {install(package.extra)}"
            ) from None
    return env_id


def _registered(
    name: str, make: Callable[..., Any], env_args: Mapping[str, Any] | None, **options: Any
) -> Any:
    """What `gym.make` or `gym.make_vec` makes of a `gym:` name; UserError if it cannot."""
    if split_gym_name(name)[1] in _OLD_GYM:
        raise UserError(f"cannot make {name!r}: environments of the old gym are not supported")
    arguments = default_arguments(name) | dict(env_args or {})
    for key in arguments:
        if key in _NOT_ARGUMENTS:
            raise UserError(f"{key!r} is no argument of {name}: emi sets it itself")
    _check_time_limit(arguments)
    with environment_errors(name):
        creator = None
        try:
            env_id = _register(name)
            spec = gym.registry.get(env_id)
            if spec is not None:
                rendered = options.get("render_mode") is not None
                if str(spec.entry_point).startswith(_MUJOCO):
                    _prepare_mujoco(rendered)
                creator = _creator(spec)
            own = {key: value for key, value in arguments.items() if key != "max_episode_steps"}
            if creator is not None:
                require_arguments(name, creator, own)
            return make(env_id, **arguments, **options)
        except _NOT_THERE as error:
            raise UserError(f"cannot make {name!r}: {error}") from error
        except TypeError as error:
            unknown = unknown_argument_of(error, arguments)
            if unknown is None:
                raise
            raise unknown_argument(name, unknown, creator) from error


def _creator(spec: Any) -> Callable[..., Any] | None:
    """The class or function that makes an environment of a Gymnasium spec."""
    if callable(spec.entry_point) or spec.entry_point is None:
        return spec.entry_point
    return load_env_creator(spec.entry_point)


def _prepare_mujoco(rendered: bool) -> None:
    """Silence MuJoCo, and tell Gymnasium which OpenGL works: its own choice needs a window."""
    importlib.import_module("emi.envs.silent_mujoco").silence()
    if rendered:
        rendering = importlib.import_module("emi.envs.rendering")
        os.environ.setdefault("MUJOCO_GL", rendering.rendering_backend())


def _wrappers(
    name: str, wrappers: Sequence[str], observation: str | None
) -> list[Callable[[gym.Env], gym.Env]]:
    """The user's wrappers, then the one through which networks read the observations."""

    def readable(env: gym.Env) -> gym.Env:
        try:
            return as_vector_or_image(env, observation, repr(name))
        except UserError as error:
            raise UserError(f"cannot use {name!r}: {error}") from None

    return [*map(load_wrapper, wrappers), readable]


def _make_gymnasium(
    name: str,
    num_envs: int,
    env_args: Mapping[str, Any] | None,
    wrappers: Sequence[str],
    observation: str | None,
    inner: Sequence[Callable[[gym.Env], gym.Env]],
) -> VectorEnv:
    """A registered Gymnasium environment, if the methods support its spaces."""
    envs: VectorEnv = _registered(
        name,
        gym.make_vec,
        env_args,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        wrappers=[*inner, *_wrappers(name, wrappers, observation)],
    )
    try:
        require_actions(envs.single_action_space)
    except UserError as error:
        envs.close()
        raise UserError(f"cannot use {name!r}: {error}") from None
    return envs
