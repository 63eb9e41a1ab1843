"""The table of environments: one entry each, from which every list and factory is derived."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GYM_PREFIX = "gym:"
ATARI_PREFIX = "atari:"


@dataclass(frozen=True)
class Environment:
    """One environment of ours: `<home>VectorEnv` for training, `<home>Env` for rendering."""

    about: str
    home: str  # "module:Name" below emi.envs
    max_episode_steps: int
    extra: str | None = None  # of the distribution emi-rl, installs the simulator
    simulator: str | None = None  # import name of the simulator
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of both classes


def _atari(about: str, **arguments: str) -> Environment:
    text = f"{about} (Atari; 4×52×52 images)"
    return Environment(text, "atari:Atari", 4_500, "atari", "ale_py", arguments)


ENVIRONMENTS: dict[str, Environment] = {
    "SparseHalfCheetah": Environment(
        "run 5 m from the start, either way (MuJoCo; 20-d vectors, 6-d actions)",
        "sparse_half_cheetah:SparseHalfCheetah",
        500,
        "mujoco",
        "mujoco",
    ),
    "SwimmerGather": Environment(
        "swim to apples, not to bombs (MuJoCo; 33-d vectors, 2-d actions)",
        "swimmer_gather:SwimmerGather",
        500,
        "mujoco",
        "mujoco",
    ),
    # The six games of the paper; any other is reached by its prefix.
    "Freeway": _atari("lead a chicken across the road", game="Freeway"),
    "Frostbite": _atari("build an igloo on drifting ice", game="Frostbite"),
    "Venture": _atari("take treasures out of guarded rooms", game="Venture"),
    "Gravitar": _atari("land on planets that pull", game="Gravitar"),
    "Solaris": _atari("fly and fight through a star map", game="Solaris"),
    "MontezumaRevenge": _atari("find keys and doors in a tomb", game="MontezumaRevenge"),
    "BoxImage": Environment(
        "a disc in a box, no reward: to look at embeddings (1×52×52 images, 2-d actions)",
        "box_image:BoxImage",
        500,
    ),
}
ANY_ATARI_GAME = _atari("any game of ale-py")
# What else `make_vec` accepts.
FAMILIES: dict[str, str] = {
    f"{ATARI_PREFIX}<Game>": "any other game of ale-py, as in atari:Pong",
    f"{GYM_PREFIX}<id>": "any Gymnasium environment, as in gym:CartPole-v1 or gym:module:MyEnv-v0",
}


def find_environment(name: str) -> Environment | None:
    """The entry of `name`, one for any `atari:` game; None for `gym:` and unknown names."""
    if name.startswith(ATARI_PREFIX):
        game = name.removeprefix(ATARI_PREFIX)
        return _atari("an Atari game", game=game)
    return ENVIRONMENTS.get(name)


def is_atari(name: str) -> bool:
    entry = find_environment(name)
    return entry is not None and entry.home == ANY_ATARI_GAME.home
