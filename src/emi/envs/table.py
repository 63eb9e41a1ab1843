"""The table of environments: one entry each; every list and factory is derived from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GYM_PREFIX = "gym:"
ATARI_PREFIX = "atari:"


@dataclass(frozen=True)
class Environment:
    """One environment. Its module has `<Name>VectorEnv` for training and `<Name>Env` to render."""

    about: str
    home: str  # "module:Name" in emi.envs
    max_episode_steps: int
    extra: str | None = None  # extra of emi-rl that installs the simulator
    simulator: str | None = None  # the simulator's import name
    arguments: Mapping[str, Any] = field(default_factory=dict)  # for both classes
    position: Mapping[str, int] = field(default_factory=dict)  # columns of the observation


def _atari(about: str, **arguments: str) -> Environment:
    text = f"{about} (Atari; 4×52×52 images)"
    return Environment(text, "atari:Atari", 4_500, "atari", "ale_py", arguments)


ENVIRONMENTS: dict[str, Environment] = {
    "SparseHalfCheetah": Environment(
        "run more than 5 m from the start (MuJoCo; 20-d vectors, 6-d actions)",
        "sparse_half_cheetah:SparseHalfCheetah",
        500,
        "mujoco",
        "mujoco",
        position={"x of the centre of mass (m)": 17, "height of the centre of mass (m)": 19},
    ),
    "SwimmerGather": Environment(
        "collect apples, avoid bombs (MuJoCo; 33-d vectors, 2-d actions)",
        "swimmer_gather:SwimmerGather",
        500,
        "mujoco",
        "mujoco",
        position={"x of the centre of mass (m)": 10, "y of the centre of mass (m)": 11},
    ),
    # The six games of the paper; `atari:` names any other.
    "Freeway": _atari("lead a chicken across the road", game="Freeway"),
    "Frostbite": _atari("build an igloo on drifting ice floes", game="Frostbite"),
    "Venture": _atari("collect treasures in guarded chambers", game="Venture"),
    "Gravitar": _atari("explore planets with gravity", game="Gravitar"),
    "Solaris": _atari("fly and fight through a star map", game="Solaris"),
    "MontezumaRevenge": _atari("find keys and doors in a tomb", game="MontezumaRevenge"),
    "BoxImage": Environment(
        "a disc in a box without rewards, to study embeddings (1×52×52 images, 2-d actions)",
        "box_image:BoxImage",
        500,
    ),
    "CartPoleSwingUp": Environment(
        "swing a pole up, rewarded only near the top (5-d vectors, 1-d actions)",
        "cart_pole_swing_up:CartPoleSwingUp",
        500,
    ),
    "NoisyTV": Environment(
        "a grid with a television that shows noise (10-d vectors, 5 actions)",
        "noisy_tv:NoisyTV",
        100,
        position={"x": 0, "y": 1},
    ),
    "BoxImageWall": Environment(
        "BoxImage with a wall and a door, to study planning (1×52×52 images, 2-d actions)",
        "box_image:BoxImage",
        500,
        arguments={"wall": True},
    ),
}
ANY_ATARI_GAME = _atari("any game of ale-py")


@dataclass(frozen=True)
class Package:
    """A package that registers environments with Gymnasium when it is imported."""

    about: str
    module: str
    extra: str  # extra of emi-rl that installs it
    prefixes: tuple[str, ...]  # how the ids of its environments begin
    example: str
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by prefix
    time_limit: str | None = None  # the attribute with the time limit, if the id does not state it


# By default, a maze goes on after the goal is reached, and places another goal. Episodes that end
# there have a return that says whether the goal was reached.
_ENDS_AT_GOAL = {"continuing_task": False}
PACKAGES: tuple[Package, ...] = (
    Package(
        "MiniGrid and BabyAI",
        "minigrid",
        "minigrid",
        ("MiniGrid-", "BabyAI-"),
        "MiniGrid-DoorKey-6x6-v0",
        time_limit="max_steps",
    ),
    Package(
        "PointMaze and AntMaze of Gymnasium-Robotics",
        "gymnasium_robotics",
        "robotics",
        ("PointMaze_", "AntMaze_", "AdroitHand", "Fetch", "Hand", "FrankaKitchen-"),
        "PointMaze_UMaze-v3",
        {"PointMaze_": _ENDS_AT_GOAL, "AntMaze_": _ENDS_AT_GOAL},
    ),
)
# Further names that `make_vec` accepts.
FAMILIES: dict[str, str] = {
    f"{ATARI_PREFIX}<Game>": "any other game of ale-py, as in atari:Pong",
    f"{GYM_PREFIX}<id>": "any Gymnasium environment, as in gym:CartPole-v1",
    f"{GYM_PREFIX}<module>:<id>": "your own, as in gym:my_env:MyEnv-v0, registered by my_env.py",
    **{
        f"{GYM_PREFIX}{each.prefixes[0]}…": f"{each.about}, as in {GYM_PREFIX}{each.example}"
        for each in PACKAGES
    },
}


def split_gym_name(name: str) -> tuple[str, str]:
    """The module and the id of a `gym:` name; the module is empty if there is none."""
    module, _, env_id = name.removeprefix(GYM_PREFIX).rpartition(":")
    return module, env_id


def package_of(name: str) -> Package | None:
    """The package that registers a `gym:` name, if it is a known one."""
    if not name.startswith(GYM_PREFIX):
        return None
    module, env_id = split_gym_name(name)
    for package in PACKAGES:
        # In any case, so that Gymnasium can say how the id is spelled.
        prefixes = tuple(prefix.lower() for prefix in package.prefixes)
        if module in ("", package.module) and env_id.lower().startswith(prefixes):
            return package
    return None


def default_arguments(name: str) -> dict[str, Any]:
    """Arguments that an environment is made with unless the user gives others."""
    package = package_of(name)
    _, env_id = split_gym_name(name)
    found = package.arguments.items() if package is not None else ()
    return {
        key: value
        for prefix, arguments in found
        if env_id.startswith(prefix)
        for key, value in arguments.items()
    }


def environment_name(name: str) -> str:
    """The name as the table spells it, if it is there in any case; otherwise as it is given."""
    return next((known for known in ENVIRONMENTS if known.lower() == name.lower()), name)


def find_environment(name: str) -> Environment | None:
    """The entry of a name or of any `atari:` game; None for `gym:` and unknown names."""
    if name.startswith(ATARI_PREFIX):
        game = name.removeprefix(ATARI_PREFIX)
        return _atari("an Atari game", game=game)
    return ENVIRONMENTS.get(name)


def position_columns(name: str) -> Mapping[str, int]:
    """Columns of the observation that say where the agent is, by their names; may be empty."""
    entry = find_environment(name)
    return {} if entry is None else entry.position


def is_atari(name: str) -> bool:
    """Whether the environment is an Atari game."""
    entry = find_environment(name)
    return entry is not None and entry.home == ANY_ATARI_GAME.home
