"""The settings of a run: frozen dataclasses, changed by name, stored as JSON."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from emi.agent.policy import PolicyConfig
from emi.agent.trpo import TRPOConfig
from emi.agent.value import ValueConfig
from emi.errors import UserError
from emi.intrinsic.contract import find_method
from emi.intrinsic.table import METHODS
from emi.settings import FractionOrZero, NotNegativeFloat, NotNegativeInt, PositiveInt


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
    seed: NotNegativeInt = 0
    """decides everything random in the run"""
    steps: PositiveInt = 5_000_000
    """total environment steps"""
    steps_per_iteration: PositiveInt = 5_000
    """environment steps per policy update"""
    num_envs: PositiveInt = 10
    """environments stepped together"""
    eta: NotNegativeFloat = 1e-3
    """η, coefficient of the bonus"""
    clip_rewards: bool = False
    """clamp rewards to [−1, 1] for learning, before the bonus is added"""
    discount: FractionOrZero = 0.995
    """γ"""
    gae_lambda: FractionOrZero = 1.0
    """λ of generalised advantage estimation"""
    bootstrap_timeouts: bool = False
    """value after a time-out: predicted if true, 0 as in the paper if false"""
    threads: PositiveInt = field(default_factory=usable_cores)
    """CPU threads, by default all usable cores; runs repeat bit for bit at equal threads"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the networks are"""
    intrinsic: Any = None
    """settings of the method, an instance of its config class; None if it has none"""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    trpo: TRPOConfig = field(default_factory=TRPOConfig)

    @property
    def iterations(self) -> int:
        """Iterations that cover `steps`; the last one may exceed them."""
        return -(-self.steps // self.steps_per_iteration)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Nested dicts of plain values, ready for JSON."""
    return dataclasses.asdict(config)


def from_dict(values: Any) -> TrainConfig:
    """The inverse of `to_dict`, also after JSON; checks everything. A missing key has its default.

    A setting that was added in a later version defaults to the behaviour before it.
    """
    if not isinstance(values, Mapping):
        raise UserError("a config is a JSON object")
    env, method = (_check_name(values, key) for key in ("env", "method"))
    default = TrainConfig(env, method, intrinsic=find_method(check_method(method)).config)
    return change(default, {key: v for key, v in values.items() if key not in ("env", "method")})


def _check_name(values: Mapping[str, Any], key: str) -> str:
    if not isinstance(values.get(key), str):
        raise UserError(f"a config must name its {key}")
    return str(values[key])


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`: did you mean 'eta'?`, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def check_method(method: str) -> str:
    """Return the name if `emi methods` lists it or it is `module:Class`; UserError otherwise."""
    if method not in METHODS and ":" not in method:
        hint = did_you_mean(method, list(METHODS)) or f": choose one of {', '.join(METHODS)}"
        raise UserError(f"unknown method {method!r}{hint}")
    return method


def change(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """`config` with some settings changed, checked against their types and ranges.

    Keys are names of settings. The settings of a group are given as a config object
    (`trpo=TRPOConfig(max_kl=0.02)`), as a mapping (`trpo={"max_kl": 0.02}`) or by a dotted key
    (`{"trpo.max_kl": 0.02}`).
    """
    known = settable(config)
    for key, value in _flattened(config, settings):
        if key not in known:
            hint = did_you_mean(key, known) or ": see the keys with --print-config"
            raise UserError(f"unknown setting {key!r}{hint}")
        group, _, name = key.rpartition(".")
        owner: Any = getattr(config, group) if group else config
        typed = _typed(value, get_type_hints(type(owner), include_extras=True)[name], key)
        changed: Any = dataclasses.replace(owner, **{name: typed})
        config = dataclasses.replace(config, **{group: changed}) if group else changed
    validate(config)
    return config


def _flattened(config: TrainConfig, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings by dotted key, in the order given."""
    for key, value in settings.items():
        group = getattr(config, key, None)
        if value is None and group is None:  # a method without settings
            continue
        if not dataclasses.is_dataclass(group):
            yield key, value
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if type(value) is not type(group):
                raise UserError(f"{key} must be a {type(group).__name__}, got {value!r}")
            value = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
        if not isinstance(value, Mapping):
            raise UserError(f"{key} is a group of settings, got {value!r}")
        yield from ((f"{key}.{name}", inner) for name, inner in value.items())


def settable(config: TrainConfig) -> list[str]:
    """Every dotted key that can be changed in this config."""
    keys = []
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            keys += [f"{entry.name}.{inner.name}" for inner in dataclasses.fields(value)]
        elif entry.name not in ("env", "method", "intrinsic"):
            keys.append(entry.name)
    return keys


def parse_settings(config: TrainConfig, words: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts of a command line to settings, each read as the type of its key."""
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--set takes KEY=VALUE, got {word!r}")
        if key in ("env", "method"):
            raise UserError(f"{key} is not set with --set: name it on the command line")
        group, _, name = key.rpartition(".")
        owner = getattr(config, group, None) if group else config
        hints = get_type_hints(type(owner)) if dataclasses.is_dataclass(owner) else {}
        settings[key] = _parsed(text, hints[name], key) if name in hints else text
    return settings


def _parsed(text: str, kind: Any, key: str) -> Any:
    """Text as a value of the annotated type; text that is no such value is left to `_typed`."""
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
        return tuple(_parsed(part, get_args(kind)[0], key) for part in parts)
    if kind is bool:
        values = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        return values.get(text.lower(), text)
    if kind in (int, float):
        try:
            # 5e6 and 5_000_000 are how people write large step counts.
            return float(text) if kind is float or "e" in text.lower() else int(text)
        except ValueError:
            return text
    return text


def _typed(value: Any, hint: Any, key: str) -> Any:
    """`value` as the annotated type: JSON's lists become tuples, 5e6 an int; UserError if not."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_typed(part, get_args(hint)[0], key) for part in value)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UserError(f"{key} must be one of {', '.join(get_args(hint))}, got {value!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int and number and float(value).is_integer():
        return int(value)
    if hint is float and number:
        return float(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if get_origin(hint) is not tuple and hint not in names:
        return value  # a type of a user's own config, which checks it itself
    raise UserError(f"{key} must be {names.get(hint, 'a list')}, got {value!r}")


def validate(config: TrainConfig) -> None:
    """Raise UserError for the first value that is out of range."""
    _check_ranges(config, "")
    if config.num_envs > config.steps_per_iteration:
        raise UserError(
            f"num_envs ({config.num_envs}) must not exceed steps_per_iteration "
            f"({config.steps_per_iteration})"
        )


# Written so that NaN fails every comparison.
_ALLOWED: dict[str, Callable[[float], bool]] = {
    "positive": lambda value: 0 < value < float("inf"),
    "zero or more": lambda value: 0 <= value < float("inf"),
    "in (0, 1]": lambda value: 0 < value <= 1,
    "in [0, 1]": lambda value: 0 <= value <= 1,
}


def _check_ranges(group: Any, where: str) -> None:
    """Check every number against the range that its field declares (see `emi.settings`)."""
    for name, hint in get_type_hints(type(group), include_extras=True).items():
        value = getattr(group, name)
        if dataclasses.is_dataclass(value):
            _check_ranges(value, f"{name}.")
        values = value if isinstance(value, tuple) else (value,)
        inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
        if get_origin(inner) is not Annotated:
            continue
        allowed = get_args(inner)[1]
        for number in values:
            if not _ALLOWED[allowed](number):
                raise UserError(f"{where}{name} must be {allowed}, got {number}")


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """Dotted keys of the settings in which two configs differ, `env` and `method` among them."""
    left, right = dict(_dotted(to_dict(a))), dict(_dotted(to_dict(b)))
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def value_at(config: TrainConfig, key: str) -> Any:
    """The setting of a dotted key."""
    return functools.reduce(getattr, key.split("."), config)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
