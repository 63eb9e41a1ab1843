"""The hyper-parameters of a run: one preset for each (environment, method).

TRPO's are the paper's (supplementary tables 1 and 2), for every method the same. A method's own are
those of its authors where they published any for such a task, see the method's file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from emi.agent.value import ValueConfig
from emi.envs import observes_images, time_limit, unknown_name
from emi.envs.table import GYM_PREFIX, is_atari
from emi.errors import UserError
from emi.intrinsic.contract import Factory, find_method, method_of
from emi.intrinsic.emi import EMIConfig
from emi.intrinsic.ex2 import EX2Config
from emi.intrinsic.rnd import RNDConfig
from emi.intrinsic.simhash import SimHashConfig
from emi.intrinsic.vime import VIMEConfig
from emi.training.config import (
    TrainConfig,
    change,
    check_method,
    differences,
    parse_settings,
    value_at,
)

Own = Mapping[str, Any]

# Where a method is given something else than its own defaults. EMI: supplementary section 1; EMI-D:
# section 2, its KL weight and bandwidth from the authors' trpo_emi_mujoco.py.
_VECTORS: Own = {
    "emi-d": EMIConfig(
        reward="diversity",
        lambda_info=0.05,
        lambda_error=1e4,
        kl_target="action",
        kl_weight=0.1,
        bandwidth=5.0,
    ),
    # 512 are made for images, and cost several times as much.
    "rnd": RNDConfig(features=64),
    "ae-simhash": SimHashConfig(autoencoder=True),
}
_SPARSE_HALF_CHEETAH: Own = {
    **_VECTORS,
    "ex2": EX2Config(use_actions=True),  # authors' halfcheetah.py, and its other numbers
}
_SWIMMER_GATHER: Own = {
    **_VECTORS,
    "emi": EMIConfig(lambda_error=1e-3),
    # Authors' swimmergather.py.
    "ex2": EX2Config(kl_weight=10.0, hidden=16, features=8, updates=1_000, replay_size=500_000),
    # Authors' run_trpo_expl.py.
    "vime": VIMEConfig(updates=5_000, replay_size=1_000_000),
}
_EMI_IMAGES = EMIConfig(
    lambda_error=100.0,
    lambda_info=0.1,
    kl_target="action",
    kl_weight=0.5,  # authors' trpo_emi_atari.py; not in the paper
)
_IMAGES: Own = {
    "emi": _EMI_IMAGES,
    "emi-d": dataclasses.replace(_EMI_IMAGES, reward="diversity"),
    # Authors' atari.py.
    "ex2": EX2Config(
        bonus="inverse_sqrt_density",
        hidden=64,
        features=32,
        updates=1_000,
        replay_size=60_000,
        min_replay=1_000,
    ),
    # The paper's minibatches have 4,096 rows; 25 of 100,000 steps have 4,000.
    "rnd": RNDConfig(minibatches=25),
    "simhash": SimHashConfig(key_bits=256),  # #Exploration, on pixels
    "ae-simhash": SimHashConfig(autoencoder=True, key_bits=64),  # authors' Gravitar script
}
_IMAGES_IN_SMALL_BATCHES: Own = {**_IMAGES, "rnd": RNDConfig()}
_BOX_IMAGE: Own = {
    **_IMAGES_IN_SMALL_BATCHES,
    "emi": dataclasses.replace(_EMI_IMAGES, lambda_info=0.01),  # supplementary section 7
}

# η. EMI's from the paper; EMI-D's from the paper's study on SparseHalfCheetah, for want of another;
# AE-SimHash's from its authors' scripts; the others' from a search on SparseHalfCheetah with the
# same budget for each, results/figures/coefficient_search.md.
_ETA = {
    "emi": 1e-3,
    "emi-d": 0.1,
    "ex2": 1e-4,
    "icm": 1e-3,
    "rnd": 1e-2,
    "simhash": 1e-3,
    "ae-simhash": 1e-2,
    "vime": 0.1,
    "trpo": 0.0,
}
# Elsewhere the authors of VIME and, on pixels, #Exploration have others, and the latter a grid
# around 0.01 for SwimmerGather; those of EX2 have the one found here.
_ETA_SWIMMER_GATHER = {**_ETA, "vime": 1e-4, "simhash": 1e-2}
_ETA_IMAGES = {**_ETA, "simhash": 1e-2}

# Authors' trpo_emi_atari.py.
_IMAGE_VALUE = ValueConfig(kind="network", epochs=3, minibatch=512)


def preset(env: str, method: str | Factory = "emi") -> TrainConfig:
    """The paper's settings where it has them, sensible ones for any other environment.

    A method of your own, given as `package.module:Class` or as the class itself, has its own
    default settings and the same η as EMI.
    """
    name = check_method(method) if isinstance(method, str) else name_of(method)
    found = find_method(name) if isinstance(method, str) else method_of(method)
    config = TrainConfig(env=env, method=name)
    eta = _ETA
    if env == "SparseHalfCheetah":
        own = _SPARSE_HALF_CHEETAH
    elif env == "SwimmerGather":
        own, eta = _SWIMMER_GATHER, _ETA_SWIMMER_GATHER
        config = dataclasses.replace(
            config,
            steps=100_000_000,
            steps_per_iteration=50_000,
            num_envs=100,
            value=ValueConfig(kind="network"),
        )
    elif is_atari(env):
        own, eta = _IMAGES, _ETA_IMAGES
        config = dataclasses.replace(
            config,
            steps=50_000_000,
            steps_per_iteration=100_000,
            # An iteration starts from a reset: 5,000 steps each hold an episode of 4,500.
            num_envs=20,
            clip_rewards=True,
            value=_IMAGE_VALUE,
        )
    elif env == "BoxImage":
        own, eta = _BOX_IMAGE, _ETA_IMAGES
        config = dataclasses.replace(config, steps=300_000, value=_IMAGE_VALUE)
    elif env.startswith(GYM_PREFIX):
        images = observes_images(env)
        own, eta = (_IMAGES_IN_SMALL_BATCHES, _ETA_IMAGES) if images else (_VECTORS, _ETA)
        value = _IMAGE_VALUE if images else ValueConfig(kind="network")
        config = _whole_episodes(dataclasses.replace(config, steps=1_000_000, value=value))
    else:
        raise UserError(unknown_name(env))
    return dataclasses.replace(
        config, intrinsic=own.get(name, found.config), eta=eta.get(name, eta["emi"])
    )


def name_of(factory: Factory) -> str:
    """`package.module:Class`, by which a config names a user's method."""
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return f"{getattr(factory, '__module__', type(factory).__module__)}:{name}"


def resolve(
    env: str,
    method: str | Factory = "emi",
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
) -> TrainConfig:
    """The preset of (env, method), changed by `settings` and then by `KEY=VALUE` texts.

    `settings` are as `config.change` takes them, `words` as `--set` does.
    """
    config = change(preset(env, method), settings or {})
    return change(config, parse_settings(config, words))


def changed_settings(config: TrainConfig) -> list[str]:
    """Dotted keys of the settings in which `config` differs from its preset."""
    return differences(config, preset(config.env, config.method))


def command_words(config: TrainConfig) -> list[str]:
    """The arguments of `emi` that train this config, as a person would type them."""
    words = ["train", config.env, "--method", config.method]
    own = ("seed", "steps", "threads", "device")  # options of their own
    changed = changed_settings(config)
    for key in own:
        if key in changed or key == "seed":
            words += [f"--{key}", str(value_at(config, key))]
    settings = [f"{key}={_as_text(value_at(config, key))}" for key in changed if key not in own]
    return words + (["--set", *settings] if settings else [])


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _whole_episodes(config: TrainConfig) -> TrainConfig:
    """So few environments that the longest episode fits into the steps that each of them takes.

    An iteration starts from a reset: with fewer steps an episode that runs into its time limit
    never ends, and the reported return is that of the others.
    """
    longest = time_limit(config.env) or 1
    steps = max(config.steps_per_iteration, longest)
    num_envs = min(config.num_envs, steps // longest)
    return dataclasses.replace(config, steps_per_iteration=steps, num_envs=num_envs)
