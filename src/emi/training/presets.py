"""Presets: the default settings of each (environment, method), and how a run differs from them.

The settings of TRPO are the paper's (supplementary tables 1 and 2) and the same for every method. A
method's own settings are those that its authors published for the same kind of task, where there
are any; see the method's file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emi import program
from emi.agent.policy import PolicyConfig
from emi.agent.trpo import TRPOConfig
from emi.agent.value import ValueConfig
from emi.envs import known_environment, observes_images, time_limit
from emi.envs.table import default_arguments, environment_name, is_atari
from emi.errors import UserError
from emi.intrinsic import disagreement
from emi.intrinsic.contract import Factory, find_method, method_of
from emi.intrinsic.disagreement import DisagreementConfig
from emi.intrinsic.emi import EMIConfig
from emi.intrinsic.ex2 import EX2Config
from emi.intrinsic.ngu import NGUConfig
from emi.intrinsic.noveld import NovelDConfig
from emi.intrinsic.rnd import RNDConfig
from emi.intrinsic.simhash import SimHashConfig
from emi.intrinsic.vime import VIMEConfig
from emi.training.config import (
    ENV_OPTIONS,
    TrainConfig,
    change,
    check_method,
    differences,
    flatten,
    parse_settings,
)

Own = Mapping[str, Any]  # settings of methods, by the method's name

# Settings that differ from the defaults of a method. EMI: supplementary section 1. EMI-D:
# supplementary section 2, its KL weight and bandwidth from the authors' trpo_emi_mujoco.py.
_VECTORS: Own = {
    "emi-d": EMIConfig(
        reward="diversity",
        lambda_info=0.05,
        lambda_error=1e4,
        kl_target="action",
        kl_weight=0.1,
        bandwidth=5.0,
    ),
    # The default of 512 is for images and costs several times as much.
    "rnd": RNDConfig(features=64),
    "ngu": NGUConfig(lifelong=RNDConfig(features=64)),
    "disagreement": disagreement.FOR_VECTORS,
    "noveld": NovelDConfig(features=64),
    "ae-simhash": SimHashConfig(autoencoder=True),
}
_SPARSE_HALF_CHEETAH: Own = {
    **_VECTORS,
    "ex2": EX2Config(use_actions=True),  # authors' halfcheetah.py, as are the defaults of EX2Config
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
    arithmetic="bfloat16",  # less than half the time: docs/deviations.md
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
    # The paper's minibatches have 4,096 rows; 25 minibatches of 100,000 steps have 4,000.
    "rnd": RNDConfig(minibatches=25),
    "ngu": NGUConfig(lifelong=RNDConfig(minibatches=25)),
    "disagreement": DisagreementConfig(minibatches=49),  # the authors' have 2,048 rows
    "noveld": NovelDConfig(minibatches=25),
    "simhash": SimHashConfig(key_bits=256),  # Tang et al. (2017), experiments on pixels
    "ae-simhash": SimHashConfig(autoencoder=True, key_bits=64),  # authors' Gravitar script
}
_IMAGES_IN_SMALL_BATCHES: Own = {
    **_IMAGES,
    "rnd": RNDConfig(),
    "ngu": NGUConfig(),
    "disagreement": DisagreementConfig(),
    "noveld": NovelDConfig(),
}
_BOX_IMAGE: Own = {
    **_IMAGES_IN_SMALL_BATCHES,
    "emi": dataclasses.replace(_EMI_IMAGES, lambda_info=0.01),  # supplementary section 7
}

# η. EMI: the paper. EMI-D: the paper's study on SparseHalfCheetah, the only source. AE-SimHash: its
# authors' scripts. The others: a search on SparseHalfCheetah with the same budget for each method,
# results/figures/coefficient_search.md.
_ETA = {
    "emi": 1e-3,
    "emi-d": 0.1,
    "ex2": 1e-4,
    "icm": 1e-3,
    "rnd": 1e-2,
    "simhash": 1e-3,
    "ae-simhash": 1e-2,
    "vime": 0.1,
    "e3b": 1e-2,
    "ngu": 1e-3,
    "pseudo-counts": 1e-3,
    "trpo": 0.0,
    "disagreement": 1e-2,  # not searched: its bonus has the scale of RND's
    "re3": 1e-3,  # not searched: its bonus has the size of ICM's, as have the next two
    "noveld": 1e-3,
    "ride": 1e-3,
    "noise": 1e-3,  # any: before the first reward the step does not depend on it
}
# Exceptions on other tasks: VIME's authors use 1e-4 on SwimmerGather; the authors of SimHash use a
# grid around 0.01 on SwimmerGather, and 0.01 on pixels.
_ETA_SWIMMER_GATHER = {**_ETA, "vime": 1e-4, "simhash": 1e-2}
_ETA_IMAGES = {**_ETA, "simhash": 1e-2}

# Authors' trpo_emi_atari.py.
_IMAGE_VALUE = ValueConfig(kind="network", epochs=3, minibatch=512, arithmetic="bfloat16")
# Ten products with all of H would take ten times as long as the gradient: docs/deviations.md.
_IMAGE_AGENT = {
    "policy": PolicyConfig(arithmetic="bfloat16"),
    "value": _IMAGE_VALUE,
    "trpo": TRPOConfig(fisher_fraction=0.1),
}


class _Preset(NamedTuple):
    """The settings of one environment: those of single methods, and those of all of them."""

    own: Own  # settings of those methods that do not use their defaults here
    eta: Mapping[str, float]
    settings: Mapping[str, Any]  # fields of TrainConfig


_PRESETS = {
    "SparseHalfCheetah": _Preset(_SPARSE_HALF_CHEETAH, _ETA, {}),
    "SwimmerGather": _Preset(
        _SWIMMER_GATHER,
        _ETA_SWIMMER_GATHER,
        {
            "steps": 100_000_000,
            "steps_per_iteration": 50_000,
            "num_envs": 100,
            "value": ValueConfig(kind="network"),
        },
    ),
    "BoxImage": _Preset(_BOX_IMAGE, _ETA_IMAGES, {"steps": 300_000, **_IMAGE_AGENT}),
    "BoxImageWall": _Preset(_BOX_IMAGE, _ETA_IMAGES, {"steps": 300_000, **_IMAGE_AGENT}),
}
_ATARI = _Preset(
    _IMAGES,
    _ETA_IMAGES,
    {
        "steps": 50_000_000,
        "steps_per_iteration": 100_000,
        # Each environment takes 5,000 steps after a reset: enough for an episode of 4,500.
        "num_envs": 20,
        "clip_rewards": True,
        **_IMAGE_AGENT,
    },
)


# Ours: an agent that keeps a rare reward, chosen on SparseHalfCheetah (docs/keeping.md).
_ROBUST: Mapping[str, Any] = {
    "gae_lambda": 0.97,
    "policy": {"init_std": 0.5},
    "streams": {"separate": True, "discount": 0.995, "gae_lambda": 1.0, "episodic": True},
    "keeping": {"stake_power": 1.0, "stake_decay": 0.99, "patience": 5, "min_std": 0.3},
}
_ROBUST_LINEAR = {"value": {"memory": 0.995, "memory_episodes": 20}}  # a network has no such memory
PRESETS: Mapping[str, str] = {
    "paper": "the paper's settings",
    "robust": "ours: keeps a rare reward that was found",
}


def _any_other(env: str, options: Mapping[str, Any]) -> _Preset:
    """Settings of an environment without a preset; creates it to inspect its observations."""
    # Every iteration starts from a reset. If each environment took fewer steps than the time limit,
    # the longest episodes would never finish and would be missing from the reported return.
    longest = time_limit(env, options["env_args"]) or 1
    steps = max(TrainConfig.steps_per_iteration, longest)
    num_envs = min(TrainConfig.num_envs, steps // longest)
    settings: dict[str, Any] = {
        "steps": 1_000_000,
        "steps_per_iteration": steps,
        "num_envs": num_envs,
    }
    if observes_images(env, **options):
        return _Preset(_IMAGES_IN_SMALL_BATCHES, _ETA_IMAGES, settings | _IMAGE_AGENT)
    # Ours: the paper's tasks have entries of similar size, other tasks need not.
    settings |= {"value": ValueConfig(kind="network"), "normalize_observations": True}
    return _Preset(_VECTORS, _ETA, settings)


def preset(
    env: str,
    method: str | Factory = "emi",
    name: str = "paper",
    *,
    env_args: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    observation: str | None = None,
) -> TrainConfig:
    """The paper's settings if it has any, reasonable ones for any other environment.

    The preset "robust" changes the agent so that it keeps a rare reward that it has found. It can
    be used with every method.

    A method of your own, given as `package.module:Class` or as the class itself, has its own
    default settings and the same η as EMI.

    `env_args`, `wrappers` and `observation` are those of `emi.make_vec`.
    """
    own = check_method(method) if isinstance(method, str) else name_of(method)
    found = find_method(own) if isinstance(method, str) else method_of(method)
    if not isinstance(name, str) or name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    if not isinstance(env, str):
        raise UserError(
            f"an environment is given by its name, see '{program.command('envs')}', got {env!r}"
        )
    env = environment_name(env)
    known_environment(env)
    options = _environment_options(env, own, env_args, wrappers, observation)
    chosen = _ATARI if is_atari(env) else _PRESETS.get(env) or _any_other(env, options)
    config = TrainConfig(
        env,
        own,
        **options,
        eta=chosen.eta.get(own, chosen.eta["emi"]),
        intrinsic=chosen.own.get(own, found.config),
        **chosen.settings,
    )
    if name == "paper":
        return config
    linear = _ROBUST_LINEAR if config.value.kind == "linear" else {}
    return change(dataclasses.replace(config, preset="robust"), {**_ROBUST, **linear})


def _environment_options(
    env: str,
    method: str,
    env_args: Mapping[str, Any] | None,
    wrappers: Sequence[str],
    observation: str | None,
) -> dict[str, Any]:
    """The options of an environment, checked, with the arguments that it has by default."""
    given = {
        "env_args": {} if env_args is None else env_args,
        "wrappers": wrappers,
        "observation": observation,
    }
    options = change(TrainConfig(env, method), given).env_options
    return options | {"env_args": default_arguments(env) | options["env_args"]}


def name_of(factory: Factory) -> str:
    """`package.module:Class`, by which a config names a user's method."""
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return f"{getattr(factory, '__module__', type(factory).__module__)}:{name}"


def resolve(
    env: str,
    method: str | Factory = "emi",
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    name: str | None = None,
) -> TrainConfig:
    """The preset of (env, method), changed by `settings` and then by the strings `words`.

    `settings` has the format of `config.change`, `words` that of `--set`. The preset is `name`, or
    else the one that `settings` name, or else the paper's.
    """
    settings = dict(settings or {})
    for key, spelled in (("env", environment_name), ("method", check_method)):
        if isinstance(settings.get(key), str):
            settings[key] = spelled(settings[key])
    options = {key: settings.pop(key) for key in ENV_OPTIONS if settings.get(key) is not None}
    chosen = preset(env, method, name or settings.get("preset", "paper"), **options)
    config = change(chosen, settings)
    return change(config, parse_settings(config, words))


def changed_settings(config: TrainConfig) -> list[str]:
    """Dotted keys of the settings in which `config` differs from its preset."""
    same = preset(config.env, config.method, config.preset, **config.env_options)
    unchanged: dict[str, Any] = {"env_args": default_arguments(config.env)}
    unchanged |= {"wrappers": (), "observation": None}
    return differences(config, dataclasses.replace(same, **unchanged))


def command_words(config: TrainConfig) -> list[str]:
    """The arguments of `emi` that train this config, as a person would type them."""
    words = ["train", config.env, "--method", config.method]
    if config.preset != "paper":
        words += ["--preset", config.preset]
    options = ("seed", "steps", "threads", "device")
    values, changed = flatten(config), changed_settings(config)
    defaults = default_arguments(config.env)
    for key, value in config.env_args.items():
        if key not in defaults or defaults[key] != value:
            words += ["--env-arg", f"{key}={json.dumps(value)}"]
    for wrapper in config.wrappers:
        words += ["--wrapper", wrapper]
    if config.observation is not None:
        words += ["--observation", config.observation]
    changed = [key for key in changed if key.partition(".")[0] not in ENV_OPTIONS]
    for key in options:
        if key in changed or key == "seed":
            words += [f"--{key}", str(values[key])]
    settings = [f"{key}={_as_text(values[key])}" for key in changed if key not in options]
    return words + (["--set", *settings] if settings else [])


def _as_text(value: Any) -> str:
    """A value as `parse_settings` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(_as_text, value))
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
