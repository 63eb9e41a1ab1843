"""What a run is: frozen dataclasses, resolved once from preset and command line, kept as JSON."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from emi.agent.policy import PolicyConfig
from emi.agent.trpo import TRPOConfig
from emi.agent.value import ValueConfig
from emi.data import FractionOrZero, NotNegativeFloat, NotNegativeInt, PositiveInt
from emi.experiment.provenance import usable_cores
from emi.intrinsic import (
    EMIConfig,
    EX2Config,
    ICMConfig,
    IntrinsicConfig,
    RNDConfig,
    SimHashConfig,
    VIMEConfig,
)


class MethodInfo(NamedTuple):
    about: str
    config: type[IntrinsicConfig] | None  # what `TrainConfig.intrinsic` is


METHODS = {
    "emi": MethodInfo("EMI: prediction error in a linear embedding (Kim et al., 2019)", EMIConfig),
    "emi-d": MethodInfo(
        "EMI-D: EMI's embedding, paid for diversity (Kim et al., 2019, supplement)", EMIConfig
    ),
    "ex2": MethodInfo("EX2: how easily a state is told from the past (Fu et al., 2017)", EX2Config),
    "icm": MethodInfo("ICM: prediction error in inverse features (Pathak et al., 2017)", ICMConfig),
    "rnd": MethodInfo("RND: error in predicting a random network (Burda et al., 2019)", RNDConfig),
    "simhash": MethodInfo("SimHash: counts of hashed states (Tang et al., 2017)", SimHashConfig),
    "ae-simhash": MethodInfo(
        "AE-SimHash: counts of hashed autoencoder codes (Tang et al., 2017)", SimHashConfig
    ),
    "vime": MethodInfo(
        "VIME: what a transition teaches a Bayesian dynamics net (Houthooft et al., 2016)",
        VIMEConfig,
    ),
    "trpo": MethodInfo("no bonus: plain TRPO (Schulman et al., 2015)", None),
}


class ConfigError(ValueError):
    """A sentence that tells the user what to change."""


@dataclass(frozen=True)
class TrainConfig:
    env: str
    """environment, one of `emi envs`"""
    method: str
    """exploration method, one of `emi methods`"""
    seed: NotNegativeInt = 0
    """decides everything random in the run"""
    steps: PositiveInt = 5_000_000
    """environment steps in all"""
    steps_per_iteration: PositiveInt = 5_000
    """environment steps per policy update"""
    num_envs: PositiveInt = 10
    """environments stepped side by side"""
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
    threads: PositiveInt = 1
    """CPU threads; part of what decides the bits of a run"""
    device: str = "cpu"
    """where networks live: cpu or cuda"""
    intrinsic: IntrinsicConfig | None = None
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    trpo: TRPOConfig = field(default_factory=TRPOConfig)

    @property
    def iterations(self) -> int:
        """Iterations that cover `steps`; the last one may go beyond them."""
        return -(-self.steps // self.steps_per_iteration)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(values: dict[str, Any]) -> TrainConfig:
    """The inverse of `to_dict`, also after a passage through JSON; checks what it reads."""
    check_method(values["method"])
    config = _build(TrainConfig, values, "")
    validate(config)
    return config


def did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def check_method(method: str) -> None:
    """Raise ConfigError for a name that `emi methods` does not list."""
    if method not in METHODS:
        hint = did_you_mean(method, list(METHODS)) or f": choose one of {', '.join(METHODS)}"
        raise ConfigError(f"unknown method {method!r}{hint}")


def resolve(
    env: str,
    method: str = "emi",
    *,
    steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    overrides: Sequence[str] = (),
) -> TrainConfig:
    """The preset of (env, method), changed by the arguments and then by `key=value` overrides."""
    from emi.experiment.presets import preset

    check_method(method)
    config = dataclasses.replace(
        preset(env, method),
        seed=seed,
        threads=threads if threads is not None else usable_cores(),
        device=device,
    )
    if steps is not None:
        config = dataclasses.replace(config, steps=steps)
    for override in overrides:
        config = _override(config, override)
    validate(config)
    return config


def validate(config: TrainConfig) -> None:
    """Raise ConfigError for the first value that cannot be meant."""
    _check_ranges(config, "")
    if config.device not in ("cpu", "cuda"):
        raise ConfigError(f"device must be cpu or cuda, got {config.device!r}")
    if config.num_envs > config.steps_per_iteration:
        raise ConfigError(
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
    """Hold every number against the range that its field declares (see `emi.data`)."""
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
                raise ConfigError(f"{where}{name} must be {allowed}, got {number}")


def _override(config: TrainConfig, word: str) -> TrainConfig:
    key, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"--set takes KEY=VALUE, got {word!r}")
    if key in ("env", "method"):
        raise ConfigError(f"{key} is not set with --set: name it on the command line")
    path = key.split(".")
    known = settable(config)
    if key not in known:
        hint = did_you_mean(key, known) or ": see the keys with --print-config"
        raise ConfigError(f"unknown setting {key!r}{hint}")
    group: Any = getattr(config, path[0]) if len(path) == 2 else config
    value = parse(text, get_type_hints(type(group))[path[-1]], key)
    changed: Any = dataclasses.replace(group, **{path[-1]: value})
    return changed if len(path) == 1 else dataclasses.replace(config, **{path[0]: changed})


def settable(config: TrainConfig) -> list[str]:
    """Every key that --set takes for this config."""
    keys = []
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            keys += [f"{entry.name}.{inner.name}" for inner in dataclasses.fields(value)]
        elif entry.name not in ("env", "method", "intrinsic"):
            keys.append(entry.name)
    return keys


def parse(text: str, kind: Any, key: str) -> Any:
    """The text of a command line as a value of the annotated type."""
    origin = get_origin(kind)
    if origin is Literal:
        if text in get_args(kind):
            return text
        choices = ", ".join(get_args(kind))
        raise ConfigError(f"{key} must be one of {choices}, got {text!r}")
    if origin is tuple:
        parts = [part for part in text.strip("()").split(",") if part.strip()]
        return tuple(parse(part.strip(), get_args(kind)[0], key) for part in parts)
    if kind is bool:
        values = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        if text.lower() in values:
            return values[text.lower()]
        raise ConfigError(f"{key} must be true or false, got {text!r}")
    if kind is str:
        return text
    try:
        if kind is int:
            # 5e6 and 5_000_000 are how people write large step counts.
            number = float(text) if "e" in text.lower() else int(text)
            if number != int(number):
                raise ValueError
            return int(number)
        return float(text)
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{key} must be {what}, got {text!r}") from None


def _build(kind: Any, values: Any, where: str) -> Any:
    """A dataclass from nested dicts; tuples come back from JSON's lists."""
    hints = get_type_hints(kind)
    unknown = set(values) - set(hints)
    if unknown:
        raise ConfigError(f"unknown setting {where}{sorted(unknown)[0]} in config.json")
    built = {}
    for name, value in values.items():
        hint = METHODS[values["method"]].config if name == "intrinsic" else hints[name]
        if dataclasses.is_dataclass(hint) and value is not None:
            value = _build(hint, value, f"{where}{name}.")
        elif get_origin(hint) is tuple:
            value = tuple(value)
        built[name] = value
    return kind(**built)
