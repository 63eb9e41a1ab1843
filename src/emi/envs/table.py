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
    ),
    "SwimmerGather": Environment(
        "collect apples, avoid bombs (MuJoCo; 33-d vectors, 2-d actions)",
        "swimmer_gather:SwimmerGather",
        500,
        "mujoco",
        "mujoco",
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
}
ANY_ATARI_GAME = _atari("any game of ale-py")
# Further names that `make_vec` accepts.
FAMILIES: dict[str, str] = {
    f"{ATARI_PREFIX}<Game>": "any other game of ale-py, as in atari:Pong",
    f"{GYM_PREFIX}<id>": "any Gymnasium environment, as in gym:CartPole-v1 or gym:module:MyEnv-v0",
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


def is_atari(name: str) -> bool:
    """Whether the environment is an Atari game."""
    entry = find_environment(name)
    return entry is not None and entry.home == ANY_ATARI_GAME.home
