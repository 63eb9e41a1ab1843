"""Settings are checked, changed by name and stored as JSON; a mistake gets one sentence."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from emi.agent.trpo import TRPOConfig
from emi.agent.value import ValueConfig
from emi.errors import UserError
from emi.intrinsic.emi import EMIConfig
from emi.intrinsic.rnd import RNDConfig
from emi.settings import Fraction, PositiveInt
from emi.training.config import (
    TrainConfig,
    change,
    differences,
    flatten,
    from_dict,
    modules_of,
    parse_settings,
    read_settings,
    to_dict,
    usable_cores,
)
from emi.training.presets import preset

CHEETAH = preset("SparseHalfCheetah")
TRPO = preset("SparseHalfCheetah", "trpo")


def parsed(words: list[str], config: TrainConfig = CHEETAH) -> TrainConfig:
    return change(config, parse_settings(config, words))


@pytest.mark.parametrize(
    "settings",
    [
        {"trpo": TRPOConfig(max_kl=0.02), "eta": 0.5},
        {"trpo": {"max_kl": 0.02}, "eta": 0.5},
        {"trpo.max_kl": 0.02, "eta": 0.5},
        {"eta": 0.5, "trpo": dataclasses.asdict(TRPOConfig(max_kl=0.02))},
        {"trpo": {"max_kl": 0.9}, "trpo.max_kl": 0.02, "eta": np.float32(0.5)},
        {"env": "SparseHalfCheetah", "method": "emi", "trpo.max_kl": 0.02, "eta": 0.5},
    ],
)
def test_a_group_is_given_as_an_object_a_mapping_or_dotted_keys(settings: dict[str, Any]) -> None:
    changed = change(CHEETAH, settings)
    assert changed == dataclasses.replace(CHEETAH, trpo=TRPOConfig(max_kl=0.02), eta=0.5)
    assert differences(changed, CHEETAH) == ["eta", "trpo.max_kl"]
    assert CHEETAH.eta == 1e-3  # a config is a value


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("steps", 5e6, 5_000_000),
        ("steps", np.int64(7), 7),
        ("seed", 10**30, 10**30),
        ("eta", 1, 1.0),
        ("policy.hidden", [8, 4.0], (8, 4)),
        ("policy.hidden", (), ()),
        ("bootstrap_timeouts", True, True),
        ("intrinsic.kl_target", "state", "state"),
        ("value", {"kind": "network", "hidden": [3]}, ValueConfig("network", hidden=(3,))),
    ],
)
def test_values_get_the_type_of_their_setting(key: str, value: Any, expected: Any) -> None:
    changed: Any = change(CHEETAH, {key: value})
    for name in key.split("."):
        changed = getattr(changed, name)
    assert changed == expected
    assert type(changed) is type(expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"steps": "5"}, "steps must be a whole number, got '5'"),
        ({"steps": None}, "steps must be a whole number, got None"),
        ({"steps": math.inf}, "steps must be a whole number, got inf"),
        ({"steps": math.nan}, "steps must be a whole number, got nan"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"seed": -1}, "seed must be zero or more, got -1"),
        ({"eta": math.nan}, "eta must be zero or more, got nan"),
        ({"eta": math.inf}, "eta must be zero or more, got inf"),
        ({"eta": False}, "eta must be a number, got False"),
        ({"discount": 1.5}, "discount must be in [0, 1], got 1.5"),
        ({"trpo.backtrack_ratio": 0}, "trpo.backtrack_ratio must be in (0, 1], got 0.0"),
        ({"clip_rewards": 1}, "clip_rewards must be true or false, got 1"),
        ({"device": "tpu"}, "device must be one of cpu, cuda, got 'tpu'"),
        ({"value.kind": ["linear"]}, "value.kind must be one of linear, network, got ['linear']"),
        ({"policy.hidden": 8}, "policy.hidden must be a list, got 8"),
        ({"policy.hidden": "8"}, "policy.hidden must be a list, got '8'"),
        ({"policy.hidden": [8, 0]}, "policy.hidden must be positive, got 0"),
        ({"policy": {"hidden": [True]}}, "policy.hidden must be a whole number, got True"),
        ({"trpo": TRPOConfig(max_kl=-1.0)}, "trpo.max_kl must be positive, got -1.0"),
        ({"trpo": 3}, "trpo must be a TRPOConfig, got 3"),
        ({"trpo": None}, "trpo must be a TRPOConfig, got None"),
        ({"trpo": ValueConfig}, "trpo must be a TRPOConfig, got <class "),
        ({"intrinsic": TRPOConfig()}, "intrinsic must be a EMIConfig, got TRPOConfig("),
        ({"nonsense": 1}, "unknown setting 'nonsense': see the keys with --print-config"),
        ({"nonsense": None}, "unknown setting 'nonsense': see the keys with --print-config"),
        ({"max_kl": 1}, "unknown setting 'max_kl': did you mean 'trpo.max_kl'?"),
        ({"trpo.max_k": 1}, "unknown setting 'trpo.max_k': did you mean 'trpo.max_kl'?"),
        ({"trpo": {"max_lk": 1}}, "unknown setting 'trpo.max_lk': did you mean 'trpo.max_kl'?"),
        ({"trpo.max_kl.x": 1}, "unknown setting 'trpo.max_kl.x': did you mean 'trpo.max_kl'?"),
        ({"trpo.max_kl": None}, "trpo.max_kl must be a number, got None"),
        ({"eta.x": 1}, "unknown setting 'eta.x': did you mean 'eta'?"),
        ({"method": "rnd"}, "these settings are for the method 'rnd', not 'emi'"),
        ({"env": "BoxImage"}, "these settings are for the env 'BoxImage', not 'SparseHalfCheetah'"),
        ({"num_envs": 9000}, "num_envs (9000) must not exceed steps_per_iteration (5000)"),
    ],
)
def test_a_mistake_gets_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        change(CHEETAH, settings)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_a_method_without_settings() -> None:
    assert change(TRPO, {"intrinsic": None, "seed": 1}).intrinsic is None
    for given in (RNDConfig(), {}, {"epochs": 2}):
        with pytest.raises(UserError, match=r"^trpo has no settings of its own$"):
            change(TRPO, {"intrinsic": given})
    with pytest.raises(UserError, match=r"^unknown setting 'intrinsic\.epochs'"):
        change(TRPO, {"intrinsic.epochs": 2})


def test_a_config_that_was_built_by_hand_is_checked_as_a_whole() -> None:
    with pytest.raises(UserError, match=r"^steps must be positive, got 0$"):
        change(dataclasses.replace(CHEETAH, steps=0), {})
    with pytest.raises(UserError, match=r"^eta must be a number, got 'much'$"):
        change(TrainConfig("SparseHalfCheetah", "trpo", eta="much"), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("eta=0.5", "eta", 0.5),
        ("steps=5e6", "steps", 5_000_000),
        ("steps=5_000", "steps", 5_000),
        ("bootstrap_timeouts=Yes", "bootstrap_timeouts", True),
        ("bootstrap_timeouts=0", "bootstrap_timeouts", False),
        ("policy.hidden=8,4", "policy.hidden", (8, 4)),
        ("policy.hidden=(8,)", "policy.hidden", (8,)),
        ("policy.hidden=", "policy.hidden", ()),
        ("intrinsic.kl_target=state", "intrinsic.kl_target", "state"),
        ("trpo.slices=16", "trpo.slices", 16),
    ],
)
def test_texts_become_values(word: str, key: str, value: object) -> None:
    found = flatten(parsed([word]))[key]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("eta", "--set takes KEY=VALUE, got 'eta'"),
        ("eta=much", "eta must be a number, got 'much'"),
        ("eta=nan", "eta must be zero or more, got nan"),
        ("steps=1.5", "steps must be a whole number, got '1.5'"),
        ("steps=-5", "steps must be positive, got -5"),
        ("steps=1e400", "steps must be a whole number, got '1e400'"),
        ("bootstrap_timeouts=maybe", "bootstrap_timeouts must be true or false, got 'maybe'"),
        ("value.kind=cubic", "value.kind must be one of linear, network, got 'cubic'"),
        ("policy.hidden=a", "policy.hidden must be a whole number, got 'a'"),
        ("trpo=3", "trpo must be a TRPOConfig, got "),
        ("trpo.max_k=1", "unknown setting 'trpo.max_k': did you mean 'trpo.max_kl'?"),
        ("no.such.key=1", "unknown setting 'no.such.key': see the keys with --print-config"),
        (
            "method=trpo",
            "method cannot be changed with --set: use --method",
        ),
        (
            "env=BoxImage",
            "env cannot be changed with --set: use the argument ENV",
        ),
    ],
)
def test_a_text_that_is_no_value_gets_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        parsed([word])
    assert str(error.value).startswith(sentence)


@dataclass(frozen=True)
class Inner:
    depth: PositiveInt = 2


@dataclass(frozen=True)
class OwnConfig:
    """What a user's own method may have in its config."""

    cells: PositiveInt = 20
    limit: int | None = None
    share: Fraction | None = None
    pair: tuple[int, str] = (1, "a")
    kind: Literal["grid", "hash"] = "grid"
    notes: dict[str, float] = field(default_factory=dict)
    size: Annotated[int, "in metres"] = 3
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit > self.cells:
            raise ValueError("limit must not exceed cells")


OWN = TrainConfig("SparseHalfCheetah", "own_package:OwnMethod", intrinsic=OwnConfig())


@pytest.mark.parametrize(
    ("settings", "words", "expected"),
    [
        ({"cells": 3.0}, "cells=3", {"cells": 3}),
        ({"limit": 4}, "limit=4", {"limit": 4}),
        ({"limit": None}, "limit=none", {"limit": None}),
        ({"limit": 90, "cells": 95}, None, {"limit": 90, "cells": 95}),
        ({"share": 1}, "share=1", {"share": 1.0}),
        ({"pair": [2, "b"]}, None, {"pair": (2, "b")}),
        ({"kind": "hash"}, "kind=hash", {"kind": "hash"}),
        ({"notes": {"a": 1.5}}, 'notes={"a": 1.5}', {"notes": {"a": 1.5}}),
        ({"size": -3}, "size=-3", {"size": -3}),
        ({"inner": {"depth": 5}}, "inner.depth=5", {"inner": Inner(5)}),
        ({"inner": Inner(5)}, "inner.depth=5e0", {"inner": Inner(5)}),
    ],
)
def test_the_config_of_a_users_method(
    settings: dict[str, Any], words: str | None, expected: dict[str, Any]
) -> None:
    changed = change(OWN, {"intrinsic": settings})
    assert changed.intrinsic == OwnConfig(**expected)
    if words is not None:
        assert parsed([f"intrinsic.{words}"], OWN) == changed
    again = change(OWN, json.loads(json.dumps(to_dict(changed))))
    assert again == changed
    assert differences(again, changed) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cells": 0}, "intrinsic.cells must be positive, got 0"),
        ({"limit": 21}, "intrinsic: limit must not exceed cells"),
        ({"limit": "x"}, "intrinsic.limit must be a whole number, got 'x'"),
        ({"share": 2}, "intrinsic.share must be in (0, 1], got 2.0"),
        ({"kind": "tree"}, "intrinsic.kind must be one of grid, hash, got 'tree'"),
        ({"inner": {"depth": 0}}, "intrinsic.inner.depth must be positive, got 0"),
        ({"inner": {"dept": 1}}, "unknown setting 'intrinsic.inner.dept': did you mean "),
        ({"inner": 1}, "intrinsic.inner must be a Inner, got 1"),
    ],
)
def test_mistakes_in_the_config_of_a_users_method(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        change(OWN, {"intrinsic": settings})
    assert str(error.value).startswith(sentence)


def test_settings_of_a_group_are_changed_together() -> None:
    """A check of several settings in a config does not see one changed without the other."""
    changed = parsed(["intrinsic.limit=90", "seed=3", "intrinsic.cells=95"], OWN)
    assert changed.intrinsic == OwnConfig(limit=90, cells=95)


def test_types_that_cannot_be_read_are_one_sentence() -> None:
    @dataclass(frozen=True)
    class Odd:
        x: NoSuchType = 1  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(UserError, match=r"^cannot read the types in Odd: name 'NoSuchType' is not"):
        change(dataclasses.replace(OWN, intrinsic=Odd()), {})


NEEDED = {
    "env": "SparseHalfCheetah",
    "method": "emi",
    "seed": 0,
    "steps": 5_000_000,
    "steps_per_iteration": 5_000,
    "num_envs": 10,
}


def test_from_dict_takes_the_defaults_of_missing_keys() -> None:
    config = from_dict(NEEDED | {"method": "emi-d", "trpo": {"max_kl": 0.02}})
    assert config == TrainConfig(
        "SparseHalfCheetah",
        "emi-d",
        intrinsic=EMIConfig(reward="diversity"),
        trpo=TRPOConfig(max_kl=0.02),
    )
    assert config.threads == usable_cores() >= 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "a config must be a JSON object"),
        ({}, "a config must name its env"),
        ({"env": "SparseHalfCheetah"}, "a config must name its method"),
        *(
            ({k: v for k, v in NEEDED.items() if k != key}, f"a config must name its {key}")
            for key in NEEDED
        ),
        (NEEDED | {"env": 3}, "env must be text, got 3"),
        (NEEDED | {"env": "a\x00b"}, "env must be a name of at most 200 letters, got 'a\\x00b'"),
        (NEEDED | {"env": "x" * 10**6}, "env must be a name of at most 200 letters, got 'xxx"),
        (NEEDED | {"method": "rdn"}, "unknown method 'rdn': did you mean 'rnd'"),
        (NEEDED | {"method": ""}, "method must be a name of at most 200 letters, got ''"),
        (NEEDED | {"trpo": {"magic": 1}}, "unknown setting 'trpo.magic'"),
        (NEEDED | {"trpo.max_kl": 0.1}, "unknown setting 'trpo.max_kl'"),
        (NEEDED | {"x" * 10**6: 0.1}, "unknown setting 'xxx"),
        (NEEDED | {"method": "icm", "intrinsic": {"lambda_info": 1}}, "unknown setting 'intrin"),
        (NEEDED | {"policy": 5}, "policy must be a PolicyConfig, got 5"),
        (NEEDED | {"policy": [5] * 10**6}, "policy must be a PolicyConfig, got [5, 5, 5, 5, 5, "),
        (NEEDED | {"eta": {}}, "eta must be a number, got {}"),
        (NEEDED | {"eta": 10**400}, "eta is too large: a number of 1329 bits"),
        (NEEDED | {"eta": float("inf")}, "eta must be zero or more, got inf"),
        (NEEDED | {"seed": True}, "seed must be a whole number, got True"),
        (NEEDED | {"seed": 2**128}, "seed must be below 2^128, got a number of 129 bits"),
        (NEEDED | {"steps": 10**30}, "steps is too large: a number of 100 bits"),
        (NEEDED | {"steps": 1e308}, "steps is too large: a number of 1024 bits"),
        (NEEDED | {"trpo": {"slices": 10**30}}, "trpo.slices is too large: a number of 100 bits"),
        (NEEDED | {"threads": 100_000}, "threads must be at most 1024, got 100000"),
        (NEEDED | {"threads": 0}, "threads must be positive, got 0"),
        (
            NEEDED | {"policy": {"hidden": [1] * 10**6}},
            "policy.hidden must have at most 1000 entries, got 1000000",
        ),
        (NEEDED | {"device": "x" * 10**6}, "device must be one of cpu, cuda, got 'xxx"),
    ],
)
def test_from_dict_refuses_what_is_no_config(values: Any, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        from_dict(values)
    assert str(error.value).startswith(sentence)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        ({}, ()),
        ({"env": "gym:CartPole-v1"}, ()),
        ({"env": "gym:emi/BoxImage-v0"}, ()),
        ({"env": "atari:Pong", "method": "trpo"}, ()),
        ({"env": "gym:this_is_no_module:Env-v0"}, ("this_is_no_module",)),
        ({"env": "gym:a:b:Env-v0"}, ("a:b",)),
        ({"method": "this_is_no_module.inside:Class"}, ("this_is_no_module.inside",)),
        ({"env": "gym:a.b:Env-v0", "method": "a.b:Class"}, ("a.b",)),
        ({"env": "gym:a.b:Env-v0", "method": "a.c:Class"}, ("a.b", "a.c")),
    ],
)
def test_a_stored_module_is_imported_only_if_it_is_trusted(
    names: dict[str, str], modules: tuple[str, ...]
) -> None:
    values = NEEDED | names
    assert modules_of(values["env"], values["method"]) == modules  # type: ignore[arg-type]
    for missing in modules:
        trusted = {module for module in modules if module != missing}
        with pytest.raises(UserError, match=rf"names the module {missing}, .* --trust {missing}$"):
            from_dict(values, trusted)
    if not modules or "method" not in names:
        assert from_dict(values, modules).env == values["env"]
    else:
        with pytest.raises(UserError, match=r"^cannot import"):
            from_dict(values, modules)


def test_flatten_gives_every_setting_its_dotted_key() -> None:
    settings = flatten(CHEETAH)
    assert settings["env"] == "SparseHalfCheetah"
    assert settings["trpo.max_kl"] == 0.01
    assert settings["intrinsic.minibatch"] == 512
    assert len(settings) > 40
    assert "trpo" not in settings
    assert flatten(TRPO)["intrinsic"] is None
    assert {"env": "SparseHalfCheetah", "method": "emi"}.items() <= settings.items()
    assert change(CHEETAH, settings) == CHEETAH


def test_differences_name_env_method_and_settings_of_either_method() -> None:
    rnd = preset("BoxImage", "rnd")
    found = differences(TRPO, rnd)
    assert {"env", "method", "eta", "steps", "intrinsic.features"} <= set(found)
    assert found == differences(rnd, TRPO) == sorted(found)
    assert differences(rnd, rnd) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "there is no file settings.json"),
        ("{", "settings.json is not JSON: "),
        ("[1]", "settings.json must hold a JSON object of settings"),
        ("[" * 100_000, "settings.json is nested too deeply"),
        ('{"eta": 1, "eta": 2}', "settings.json is not JSON: the key 'eta' occurs twice"),
        ("[" + " " * 10**6, "settings.json is too large: it may have 1,000,000 bytes at most"),
    ],
)
def test_a_file_without_settings_is_one_sentence(
    text: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("settings.json").write_text(text)
    with pytest.raises(UserError) as error:
        read_settings(Path("settings.json"))
    assert str(error.value).startswith(sentence)
