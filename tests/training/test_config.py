"""Configuration: presets hold the paper's numbers, words become values, mistakes get a sentence."""

from __future__ import annotations

import dataclasses
import json

import gymnasium
import numpy as np
import pytest

from emi.training.config import METHODS, ConfigError, from_dict, resolve, settable, to_dict
from emi.intrinsic import EMIConfig, EX2Config, ICMConfig, RNDConfig, SimHashConfig, VIMEConfig


def test_the_preset_of_emi_is_the_papers() -> None:
    config = resolve("SparseHalfCheetah")
    assert config.intrinsic is not None
    assert (config.steps, config.steps_per_iteration, config.num_envs) == (5_000_000, 5_000, 10)
    assert (config.eta, config.discount, config.gae_lambda) == (0.001, 0.995, 1.0)
    assert not config.bootstrap_timeouts
    assert config.policy.hidden == (64, 32)
    assert config.policy.activation == "tanh"
    assert config.value.kind == "linear"
    assert (config.trpo.max_kl, config.trpo.cg_iterations, config.trpo.damping) == (0.01, 10, 1e-5)
    assert (config.trpo.backtrack_ratio, config.trpo.max_backtracks) == (0.8, 15)
    emi = config.intrinsic
    assert (emi.embedding_dim, emi.lambda_error, emi.lambda_info) == (2, 5, 1)
    assert (emi.learning_rate, emi.minibatch, emi.epochs) == (0.001, 512, 3)
    assert (emi.kl_target, emi.kl_weight, emi.reward) == ("none", 0, "prediction_error")
    assert (emi.state_hidden, emi.state_activation) == ((64, 32), "tanh")
    assert (emi.action_hidden, emi.information_hidden, emi.error_hidden) == (64, (64, 64), 256)
    assert config.iterations == 1000


def test_the_preset_of_emi_d_is_the_supplements() -> None:
    config = resolve("SparseHalfCheetah", "emi-d")
    assert config.intrinsic is not None
    emi = config.intrinsic
    assert (emi.reward, emi.bandwidth, config.eta) == ("diversity", 5, 0.1)
    assert (emi.lambda_info, emi.lambda_error) == (0.05, 10_000)
    assert (emi.kl_target, emi.kl_weight) == ("action", 0.1)


def test_trpo_has_no_bonus() -> None:
    config = resolve("SparseHalfCheetah", "trpo")
    assert config.intrinsic is None
    assert config.eta == 0


def test_the_presets_of_the_baselines_are_their_authors() -> None:
    ex2, icm, rnd, simhash, autoencoded, vime = (
        resolve("SparseHalfCheetah", method).intrinsic
        for method in ("ex2", "icm", "rnd", "simhash", "ae-simhash", "vime")
    )
    assert isinstance(ex2, EX2Config)
    assert (ex2.use_actions, ex2.bonus, ex2.kl_weight) == (True, "neg_log_density", 0.1)
    assert (ex2.hidden, ex2.features, ex2.updates, ex2.first_updates) == (32, 16, 2000, 5000)
    assert (ex2.replay_size, ex2.min_replay, ex2.minibatch) == (250_000, 10_000, 128)
    assert ex2.learning_rate == 1e-4
    assert isinstance(icm, ICMConfig)
    assert (icm.beta, icm.learning_rate, icm.epochs, icm.minibatch) == (0.2, 1e-4, 3, 512)
    assert not icm.stop_gradient
    assert isinstance(rnd, RNDConfig)
    assert (rnd.features, rnd.discount, rnd.learning_rate) == (64, 0.99, 1e-4)
    assert (rnd.epochs, rnd.minibatches) == (4, 4)
    assert isinstance(simhash, SimHashConfig)
    assert (simhash.key_bits, simhash.autoencoder) == (32, False)
    assert isinstance(autoencoded, SimHashConfig)
    assert (autoencoded.autoencoder, autoencoded.ae_every) == (True, 5)
    assert isinstance(vime, VIMEConfig)
    assert (vime.hidden, vime.learning_rate, vime.updates, vime.minibatch) == ((32,), 1e-4, 500, 10)
    assert (vime.prior_sd, vime.likelihood_sd, vime.samples, vime.kl_batches) == (0.5, 5, 10, 5)
    assert (vime.replay_size, vime.min_replay, vime.step_size) == (100_000, 500, 0.01)


def test_the_coefficients_of_the_baselines_are_those_that_the_search_found() -> None:
    methods = ("ex2", "icm", "rnd", "simhash", "vime")
    found = {m: resolve("SparseHalfCheetah", m).eta for m in methods}
    assert found == {"ex2": 1e-4, "icm": 1e-3, "rnd": 0.01, "simhash": 1e-3, "vime": 0.1}


# What differs from SparseHalfCheetah's preset, by world and method: the config's fields, and η.
ELSEWHERE: dict[str, dict[str, dict[str, object]]] = {
    "SwimmerGather": {
        "emi": {"lambda_error": 1e-3, "eta": 1e-3},
        "ex2": {
            "use_actions": False,
            "kl_weight": 10.0,
            "hidden": 16,
            "features": 8,
            "updates": 1_000,
            "replay_size": 500_000,
            "eta": 1e-4,
        },
        "icm": {"eta": 1e-3},
        "rnd": {"eta": 1e-2},
        "simhash": {"eta": 1e-2},
        "ae-simhash": {"eta": 1e-2},
        "vime": {"updates": 5_000, "replay_size": 1_000_000, "eta": 1e-4},
    },
    "Freeway": {
        "emi": {
            "lambda_error": 100.0,
            "lambda_info": 0.1,
            "kl_target": "action",
            "kl_weight": 0.5,
            "eta": 1e-3,
        },
        "emi-d": {
            "lambda_error": 100.0,
            "lambda_info": 0.1,
            "kl_weight": 0.5,
            "eta": 0.1,
        },
        "ex2": {
            "use_actions": False,
            "bonus": "inverse_sqrt_density",
            "hidden": 64,
            "features": 32,
            "updates": 1_000,
            "replay_size": 60_000,
            "min_replay": 1_000,
            "eta": 1e-4,
        },
        "icm": {"eta": 1e-3},
        "rnd": {"features": 512, "minibatches": 25, "eta": 1e-2},
        "simhash": {"key_bits": 256, "eta": 1e-2},
        "ae-simhash": {"key_bits": 64, "eta": 1e-2},
    },
}


@pytest.mark.parametrize(("world", "method"), [(w, m) for w in ELSEWHERE for m in ELSEWHERE[w]])
def test_the_presets_of_the_other_worlds(world: str, method: str) -> None:
    here, there = (resolve(name, method) for name in ("SparseHalfCheetah", world))
    before, after = (dataclasses.asdict(config.intrinsic) for config in (here, there))
    found = {name: value for name, value in after.items() if value != before[name]}
    assert found | {"eta": there.eta} == ELSEWHERE[world][method]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_preset_for_any_environment(method: str) -> None:
    config = resolve("gym:CartPole-v1", method)
    expected = METHODS[method].config
    assert config.intrinsic is None if expected is None else type(config.intrinsic) is expected


class Camera(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(0, 255, (24, 24, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)


def test_any_environment_with_images_gets_what_images_need() -> None:
    gymnasium.register("test/Camera-v0", entry_point=Camera)
    try:
        seen, read = resolve("gym:test/Camera-v0"), resolve("gym:CartPole-v1")
    finally:
        del gymnasium.registry["test/Camera-v0"]
    assert (seen.value.minibatch, read.value.minibatch) == (512, 64)
    assert isinstance(seen.intrinsic, EMIConfig)
    assert isinstance(read.intrinsic, EMIConfig)
    assert (seen.intrinsic.lambda_error, seen.intrinsic.kl_target) == (100, "action")
    assert read.intrinsic == EMIConfig()


@pytest.mark.parametrize(
    ("limit", "num_envs", "steps"),
    [(None, 10, 5_000), (200, 10, 5_000), (999, 5, 5_000), (7_000, 1, 7_000)],
)
def test_an_iteration_of_any_environment_holds_its_longest_episode(
    limit: int | None, num_envs: int, steps: int
) -> None:
    gymnasium.register("test/Camera-v0", entry_point=Camera, max_episode_steps=limit)
    try:
        config = resolve("gym:test/Camera-v0")
    finally:
        del gymnasium.registry["test/Camera-v0"]
    assert (config.num_envs, config.steps_per_iteration) == (num_envs, steps)


def test_the_papers_other_worlds() -> None:
    swimmer, game, box = map(resolve, ("SwimmerGather", "MontezumaRevenge", "BoxImage"))
    # Supplementary tables 1 and 2, and the captions of table 1.
    assert (swimmer.steps, swimmer.steps_per_iteration, swimmer.num_envs) == (10**8, 50_000, 100)
    assert (game.steps, game.steps_per_iteration, game.num_envs) == (5 * 10**7, 100_000, 20)
    assert (swimmer.clip_rewards, game.clip_rewards) == (False, True)
    assert [c.value.kind for c in (swimmer, game, box)] == ["network"] * 3
    assert (swimmer.value.hidden, swimmer.value.activation) == ((32,), "relu")
    weights = [
        (c.intrinsic.lambda_error, c.intrinsic.lambda_info, c.intrinsic.kl_target, c.eta)
        for c in (swimmer, game, box)
        if isinstance(c.intrinsic, EMIConfig)
    ]
    assert weights == [
        (0.001, 1, "none", 0.001),
        (100, 0.1, "action", 0.001),
        (100, 0.01, "action", 0.001),
    ]
    other = dataclasses.asdict(resolve("atari:Pong")) | {"env": "MontezumaRevenge"}
    assert other == dataclasses.asdict(game)


def test_a_config_of_an_unknown_method_is_refused() -> None:
    values = to_dict(resolve("SparseHalfCheetah", "rnd"))
    with pytest.raises(ConfigError, match="unknown method 'rdn': did you mean 'rnd'"):
        from_dict(values | {"method": "rdn"})
    with pytest.raises(ConfigError, match=r"unknown setting intrinsic\.\w+ in config.json"):
        from_dict(values | {"method": "icm"})


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("eta=0.5", "eta", 0.5),
        ("steps=5e6", "steps", 5_000_000),
        ("steps=5_000", "steps", 5_000),
        ("bootstrap_timeouts=true", "bootstrap_timeouts", True),
        ("policy.hidden=8,4", "policy.hidden", (8, 4)),
        ("policy.hidden=(8,)", "policy.hidden", (8,)),
        ("intrinsic.kl_target=state", "intrinsic.kl_target", "state"),
        ("trpo.slices=16", "trpo.slices", 16),
    ],
)
def test_words_become_values(word: str, path: str, value: object) -> None:
    found: object = resolve("SparseHalfCheetah", overrides=[word])
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("method", METHODS)
def test_a_config_survives_json(method: str) -> None:
    config = resolve("SparseHalfCheetah", method, overrides=["policy.hidden=7,5"])
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("trpo.max_kl=-1", "trpo.max_kl must be positive, got -1.0"),
        ("trpo.max_kl=nan", "trpo.max_kl must be positive, got nan"),
        ("nonsense=1", "unknown setting 'nonsense': see the keys with --print-config"),
        ("trpo.max_k=1", "unknown setting 'trpo.max_k': did you mean 'trpo.max_kl'?"),
        ("discount=1.5", "discount must be in [0, 1], got 1.5"),
        ("trpo.backtrack_ratio=0", "trpo.backtrack_ratio must be in (0, 1], got 0.0"),
        ("eta=much", "eta must be a number, got 'much'"),
        ("steps=1.5", "steps must be a whole number, got '1.5'"),
        ("steps=0", "steps must be positive, got 0"),
        ("steps=-5", "steps must be positive, got -5"),
        ("steps=1e400", "steps must be a whole number, got '1e400'"),
        ("seed=-1", "seed must be zero or more, got -1"),
        ("bootstrap_timeouts=maybe", "bootstrap_timeouts must be true or false, got 'maybe'"),
        ("value.kind=cubic", "value.kind must be one of linear, network, got 'cubic'"),
        ("eta", "--set takes KEY=VALUE, got 'eta'"),
        ("method=trpo", "method is not set with --set: name it on the command line"),
        ("num_envs=9000", "num_envs (9000) must not exceed steps_per_iteration (5000)"),
        ("policy.hidden=0", "policy.hidden must be positive, got 0"),
        ("intrinsic.lambda_info=-1", "intrinsic.lambda_info must be zero or more, got -1.0"),
        ("device=tpu", "device must be cpu or cuda, got 'tpu'"),
    ],
)
def test_mistakes_get_a_sentence(word: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve("SparseHalfCheetah", overrides=[word])
    assert str(error.value) == sentence


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown method 'emo': did you mean 'emi'\?"):
        resolve("SparseHalfCheetah", "emo")
    with pytest.raises(ConfigError, match=r"did you mean 'SparseHalfCheetah'\?"):
        resolve("SparsHalfCheeta")


def test_every_settable_key_can_be_set_to_its_own_value() -> None:
    config = resolve("SparseHalfCheetah")
    words = []
    for key in settable(config):
        value: object = config
        for name in key.split("."):
            value = getattr(value, name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"{key}={text}")
    assert len(words) > 40
    assert resolve("SparseHalfCheetah", overrides=words) == config


def test_a_config_file_with_an_unknown_key_is_refused() -> None:
    values = to_dict(resolve("SparseHalfCheetah"))
    values["trpo"]["magic"] = 1
    with pytest.raises(ConfigError, match=r"unknown setting trpo\.magic in config\.json"):
        from_dict(values)
