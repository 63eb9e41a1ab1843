"""The settings of a run: frozen dataclasses, changed by name, stored as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from emi.agent.policy import PolicyConfig
from emi.agent.streams import StreamsConfig
from emi.agent.trpo import TRPOConfig
from emi.agent.value import ValueConfig
from emi.envs.table import GYM_PREFIX, split_gym_name
from emi.envs.wrapping import parse_wrapper
from emi.errors import UserError, did_you_mean
from emi.intrinsic.contract import find_method
from emi.intrinsic.table import METHODS
from emi.settings import (
    FractionOrZero,
    NotNegativeFloat,
    NotNegativeInt,
    PositiveInt,
    Seed,
    Threads,
    whole_number,
)
from emi.training.keeping import KeepingConfig
from emi.untrusted_file import read_json

REQUIRED = ("env", "method", "seed", "steps", "steps_per_iteration", "num_envs")
ENV_OPTIONS = ("env_args", "wrappers", "observation")
CONFIG_BYTES = 1_000_000
_MOST = 2**63 - 1  # the largest whole number that a setting can have
_ENTRIES = 1_000  # the most entries of a list
_NAME = 200  # the most letters of an environment or a method
_ARGUMENTS = 100_000  # the most letters of an environment's arguments, as JSON


def usable_cores() -> int:
    """Cores this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a training run; `emi.preset` gives one, `emi.train` takes one."""

    env: str
    """environment, one of `emi envs`"""
    method: str
    """exploration method, one of `emi methods`, or `package.module:Class`"""
    env_args: dict[str, Any] = field(default_factory=dict)
    """arguments of the environment's constructor, JSON values"""
    wrappers: tuple[str, ...] = ()
    """wrappers of the environment, `package.module:Class` or `package.module:Class{"key": 1}`"""
    observation: str | None = None
    """the entry of `Dict` observations that is read; None: all, as one vector"""
    seed: Seed = 0
    """decides everything random in the run"""
    steps: PositiveInt = 5_000_000
    """total environment steps"""
    steps_per_iteration: PositiveInt = 5_000
    """environment steps per policy update"""
    num_envs: PositiveInt = 10
    """environments stepped together"""
    eta: NotNegativeFloat = 1e-3
    """η, coefficient of the bonus"""
    reward: Literal["environment", "none"] = "environment"
    """none: the policy learns from the bonus alone, to explore for a model (docs/planning.md)"""
    clip_rewards: bool = False
    """clamp rewards to [−1, 1] for learning, before the bonus is added"""
    discount: FractionOrZero = 0.995
    """γ"""
    gae_lambda: FractionOrZero = 1.0
    """λ of generalised advantage estimation"""
    bootstrap_timeouts: bool = False
    """value after a time-out: predicted if true, 0 as in the paper if false"""
    threads: Threads = field(default_factory=usable_cores)
    """CPU threads, by default all usable cores; with the same number, a run repeats bit for bit"""
    normalize_observations: bool = False
    """the method reads vectors in units of their running standard deviation (ours; paper: no)"""
    normalize_bonus: bool = False
    """divide the bonus by the running standard deviation of its discounted sums, so that η does not
    depend on the units of the method, see `emi.NormalizeReward` (ours; paper: no)"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the networks are"""
    coverage: bool = False
    """record the visited states in visits.safetensors; changes nothing else"""
    coverage_axes: tuple[NotNegativeInt, ...] = ()
    """columns of the observation that span the map; empty: the position, or the widest two"""
    preset: Literal["paper", "robust"] = "paper"
    """the preset that these settings started from; a name, which changes nothing by itself"""
    intrinsic: Any = None
    """settings of the method, an instance of its config class; None if it has none"""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    trpo: TRPOConfig = field(default_factory=TRPOConfig)
    streams: StreamsConfig = field(default_factory=StreamsConfig)
    keeping: KeepingConfig = field(default_factory=KeepingConfig)

    @property
    def env_options(self) -> dict[str, Any]:
        """The options of `emi.make_vec` that belong to the environment."""
        return {name: getattr(self, name) for name in ENV_OPTIONS}

    @property
    def modules(self) -> tuple[str, ...]:
        """The user's modules that this config imports."""
        return modules_of(self.env, self.method, self.wrappers)

    @property
    def iterations(self) -> int:
        """Iterations that cover `steps`; the last one may exceed them."""
        return -(-self.steps // self.steps_per_iteration)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Nested dicts of plain values, ready for JSON."""
    return dataclasses.asdict(config)


def from_dict(values: Any, trusted: Collection[str] = ()) -> TrainConfig:
    """Build a config from the result of `to_dict`, also after JSON; every value is checked.

    UserError if it names a module that is not in `trusted`. The keys in `REQUIRED` must be there:
    a default would make it another run. Other missing keys get their defaults: that of a setting
    added later is the behaviour before it.
    """
    if not isinstance(values, Mapping):
        raise UserError("a config must be a JSON object")
    for key in REQUIRED:
        if key not in values:
            raise UserError(f"a config must name its {key}")
    for key in values:
        if "." in key:
            raise UserError(f"unknown setting {_shown(key)}")
    env, method = values["env"], values["method"]
    require_trusted(env, method, values.get("wrappers", ()), trusted)
    found = find_method(check_method(method)).config
    name = values.get("preset", "paper")
    return change(TrainConfig(env, method, preset=name, intrinsic=found), values)


def modules_of(env: str, method: str, wrappers: Sequence[str] = ()) -> tuple[str, ...]:
    """The user's modules that an environment, a method and wrappers import by their names."""
    named = split_gym_name(env)[0] if env.startswith(GYM_PREFIX) else ""
    own, colon, _ = method.partition(":")
    modules = [named, own if colon else "", *(parse_wrapper(text).module for text in wrappers)]
    return tuple(dict.fromkeys(module for module in modules if module))


def require_trusted(
    env: Any, method: Any, wrappers: Any, trusted: Collection[str], source: str = "it"
) -> None:
    """Raise UserError if a stored environment, method or wrapper imports a module not `trusted`.

    Importing a module runs it, and a config can come from anyone.
    """
    names = _checked_name(env, "env"), _checked_name(method, "method")
    for module in modules_of(*names, _checked(wrappers, tuple[str, ...], "wrappers")):
        if module not in trusted:
            raise UserError(
                f"{source} names the module {module}, which emi would import and run: "
                f"if you trust that module, add --trust {module}"
            )


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file: a whole config, or a part of one."""
    try:
        settings = read_json(path, CONFIG_BYTES)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} must hold a JSON object of settings")
    return settings


def check_method(method: str) -> str:
    """Return the name in `emi methods`, given in any case, or a user's own `module:Class`."""
    if ":" in method:
        return method
    if method.lower() not in METHODS:
        hint = did_you_mean(method, METHODS, f": choose one of {', '.join(METHODS)}")
        raise UserError(f"unknown method {method!r}{hint}")
    return method.lower()


def change(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """`config` with some settings changed; all of them are checked for type and range.

    Keys are names of settings. The settings of a group are given as a config object
    (`trpo=TRPOConfig(max_kl=0.02)`), as a mapping (`trpo={"max_kl": 0.02}`) or by a dotted key
    (`{"trpo.max_kl": 0.02}`). The environment, the method and the name of the preset cannot be
    changed, because other settings belong to them.
    """
    for key in ("env", "method", "preset"):
        own = _checked_name(getattr(config, key), key)
        if settings.get(key, own) != own:
            raise UserError(
                f"these settings are for the {key} {_shown(settings[key])}, not {own!r}"
            )
    if config.intrinsic is None and settings.get("intrinsic") is not None:
        raise UserError(f"{config.method} has no settings of its own")
    config = _changed(config, settings)
    for wrapper in config.wrappers:
        parse_wrapper(_checked_text(wrapper, "wrappers"))
    if config.observation is not None:
        _checked_name(config.observation, "observation")
    config = dataclasses.replace(config, env_args=_checked_arguments(config.env_args))
    if config.num_envs > config.steps_per_iteration:
        raise UserError(
            f"num_envs ({config.num_envs}) must not exceed steps_per_iteration "
            f"({config.steps_per_iteration})"
        )
    return config


def _changed(group: Any, settings: Mapping[str, Any], prefix: str = "") -> Any:
    """A config or a group of its settings with some of them changed, and all of them checked."""
    hints = _types_of(group)
    values = {entry.name: getattr(group, entry.name) for entry in _fields(group)}
    nested: dict[str, dict[str, Any]] = {name: {} for name in values}
    for key, value in settings.items():
        name, _, inner = key.partition(".")
        old = values.get(name)
        if name not in values or (inner and not dataclasses.is_dataclass(old)):
            known = [f"{prefix}{name}" for name in flatten(group)]
            hint = did_you_mean(
                f"{prefix}{key}"[:_NAME], known, ": see the keys with --print-config"
            )
            raise UserError(f"unknown setting {_shown(prefix + key)}{hint}")
        if dataclasses.is_dataclass(old) and (inner or isinstance(value, Mapping)):
            nested[name] |= {inner: value} if inner else value
        elif dataclasses.is_dataclass(old) and type(value) is not type(old):
            raise UserError(f"{prefix}{name} must be a {type(old).__name__}, got {_shown(value)}")
        else:
            values[name] = value
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            values[name] = _changed(value, nested[name], f"{prefix}{name}.")
        else:
            values[name] = _checked(value, hints[name], f"{prefix}{name}")
    try:
        return dataclasses.replace(group, **values)
    except ValueError as error:  # of a check in a user's own config
        raise UserError(f"{prefix.rstrip('.')}: {error}") from None


def _fields(group: Any) -> list[dataclasses.Field[Any]]:
    return [entry for entry in dataclasses.fields(group) if entry.init]


def _types_of(group: Any) -> dict[str, Any]:
    """The annotated types of a config's fields, with their ranges."""
    try:
        return get_type_hints(type(group), include_extras=True)
    except NameError as error:
        raise UserError(f"cannot read the types in {type(group).__name__}: {error}") from None


# The ranges of `emi.settings`, written so that NaN fails every comparison.
_RANGES: dict[str, Callable[[Any], bool]] = {
    "positive": lambda value: 0 < value < float("inf"),
    "zero or more": lambda value: 0 <= value < float("inf"),
    "in (0, 1]": lambda value: 0 < value <= 1,
    "in [0, 1]": lambda value: 0 <= value <= 1,
    "below 2^128": lambda value: value < 2**128,
    "at most 1024": lambda value: value <= 1024,
}
_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _checked(value: Any, hint: Any, key: str) -> Any:
    """Convert `value` to the annotated type (lists to tuples, 5e6 to int); UserError if it fails.

    Other types occur only in users' own configs, which check their values themselves.
    """
    kind, ranges = _unwrapped(hint)
    number = isinstance(value, Real) and not isinstance(value, bool)
    if value is None and NoneType in get_args(hint):
        return None
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key} must be a list, got {_shown(value)}")
        if len(value) > _ENTRIES:
            raise UserError(f"{key} must have at most {_ENTRIES} entries, got {len(value)}")
        first, *others = get_args(kind)
        return tuple(_checked(part, first if others == [...] else Any, key) for part in value)
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = ", ".join(map(str, get_args(kind)))
        raise UserError(f"{key} must be one of {choices}, got {_shown(value)}")
    if kind is float and number:
        try:
            value = float(value)
        except OverflowError:
            raise UserError(f"{key} is too large: {_shown(value)}") from None
    elif kind is int and number and value == value // 1:
        value = int(value)
    elif kind in _TYPES and not (kind in (bool, str) and isinstance(value, kind)):
        raise UserError(f"{key} must be {_TYPES[kind]}, got {_shown(value)}")
    for name in ranges:
        if not _RANGES[name](value):
            raise UserError(f"{key} must be {name}, got {_shown(value)}")
    if kind is int and abs(value) > _MOST and "below 2^128" not in ranges:
        raise UserError(f"{key} is too large: {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} must be finite, got {value}")  # JSON has no other numbers
    return value


def _checked_name(value: Any, key: str) -> str:
    """The name of an environment or method; UserError if it is not a line of text."""
    if not isinstance(value, str):
        raise UserError(f"{key} must be text, got {_shown(value)}")
    if not value.isprintable() or not 0 < len(value) <= _NAME:
        raise UserError(f"{key} must be a name of at most {_NAME} letters, got {_shown(value)}")
    return value


def _checked_text(value: str, key: str) -> str:
    if len(value) > _ARGUMENTS:
        raise UserError(f"{key} must have at most {_ARGUMENTS} letters, got {len(value)}")
    return value


def _checked_arguments(value: Any) -> dict[str, Any]:
    """The arguments of an environment as JSON gives them back, so that a stored config is equal."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UserError(f"env_args must map names to values, got {_shown(value)}")
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"env_args must be values of JSON: {error}") from None
    found: dict[str, Any] = json.loads(_checked_text(text, "env_args"))
    return found


def _shown(value: Any) -> str:
    """A value for a sentence, cut to its beginning."""
    if isinstance(value, int) and abs(value) > _MOST:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write very long ones
    text = reprlib.repr(value) if isinstance(value, list | tuple | dict) else repr(value)
    return text if len(text) <= _NAME else f"{text[:_NAME]}…"


def _unwrapped(hint: Any) -> tuple[Any, list[str]]:
    """A type without `Annotated` and `| None`, and the ranges that it declares."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, [note for note in notes if isinstance(note, str) and note in _RANGES]
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) in (Union, UnionType) and len(kinds) == 1:
        return _unwrapped(kinds[0])
    return hint, []


# Settings that decide which preset a run has, or which environment. They have options of their own.
_OPTIONS = {
    "env": "the argument ENV",
    "method": "--method",
    "preset": "--preset",
    "env_args": "--env-arg",
    "wrappers": "--wrapper",
    "observation": "--observation",
}


def parse_argument(word: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE` of `--env-arg`; the value is JSON where it can be, otherwise text.

    >>> parse_argument("size=8"), parse_argument("slippery=true"), parse_argument("map=small")
    (('size', 8), ('slippery', True), ('map', 'small'))
    """
    key, equals, text = word.partition("=")
    if not equals or not key.isidentifier():
        raise UserError(f"--env-arg takes KEY=VALUE, got {word!r}")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def parse_settings(config: TrainConfig, words: Sequence[str]) -> dict[str, Any]:
    """Convert `KEY=VALUE` arguments to settings; each value is parsed as the type of its key."""
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--set takes KEY=VALUE, got {word!r}")
        option = _OPTIONS.get(key.partition(".")[0])
        if option is not None:
            raise UserError(f"{key} cannot be changed with --set: use {option}")
        *path, name = key.split(".")
        group: Any = config
        for part in path:
            group = getattr(group, part, None)
        hints = _types_of(group) if dataclasses.is_dataclass(group) else {}
        settings[key] = _parsed(text, hints[name]) if name in hints else text
    return settings


def _parsed(text: str, hint: Any) -> Any:
    """Text as a value of the annotated type; text that is no such value is left to `_checked`."""
    kind, _ = _unwrapped(hint)
    if NoneType in get_args(hint) and text.lower() == "none":
        return None
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
        return tuple(_parsed(part, get_args(kind)[0]) for part in parts)
    if kind is bool:
        values = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        return values.get(text.lower(), text)
    try:
        if kind in (int, float):
            return float(text) if kind is float else whole_number(text)
        return text if kind is str or get_origin(kind) is Literal else json.loads(text)
    except ValueError:
        return text


def flatten(group: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a config by its dotted key, as in `trpo.max_kl`."""
    settings: dict[str, Any] = {}
    for entry in _fields(group):
        key, value = f"{prefix}{entry.name}", getattr(group, entry.name)
        if dataclasses.is_dataclass(value):
            settings |= flatten(value, f"{key}.")
        elif key == "env_args":
            settings |= {f"{key}.{name}": part for name, part in value.items()}
        else:
            settings[key] = value
    return settings


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """Dotted keys of the settings in which two configs differ, `env` and `method` among them."""
    left, right = flatten(a), flatten(b)
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
