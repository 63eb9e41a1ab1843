"""Presets hold the paper's numbers, and the command of a config gives that config again."""

from __future__ import annotations

import dataclasses
import json

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emi.cli import main
from emi.envs.table import ENVIRONMENTS
from emi.errors import UserError
from emi.intrinsic.contract import find_method
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.ex2 import EX2Config
from emi.intrinsic.icm import ICMConfig
from emi.intrinsic.rnd import RNDConfig
from emi.intrinsic.simhash import SimHashConfig
from emi.intrinsic.table import METHODS
from emi.intrinsic.vime import VIMEConfig
from emi.training.config import TrainConfig, change, flatten, from_dict, to_dict
from emi.training.presets import changed_settings, command_words, preset, resolve

ANY_ENV = [*ENVIRONMENTS, "atari:Pong", "gym:CartPole-v1"]


def test_the_preset_of_emi_is_the_papers() -> None:
    config = preset("SparseHalfCheetah")
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
    config = preset("SparseHalfCheetah", "emi-d")
    assert config.intrinsic is not None
    emi = config.intrinsic
    assert (emi.reward, emi.bandwidth, config.eta) == ("diversity", 5, 0.1)
    assert (emi.lambda_info, emi.lambda_error) == (0.05, 10_000)
    assert (emi.kl_target, emi.kl_weight) == ("action", 0.1)


def test_trpo_has_no_bonus() -> None:
    config = preset("SparseHalfCheetah", "trpo")
    assert config.intrinsic is None
    assert config.eta == 0


def test_the_presets_of_the_baselines_are_their_authors() -> None:
    ex2, icm, rnd, simhash, autoencoded, vime = (
        preset("SparseHalfCheetah", method).intrinsic
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
    found = {m: preset("SparseHalfCheetah", m).eta for m in methods}
    assert found == {"ex2": 1e-4, "icm": 1e-3, "rnd": 0.01, "simhash": 1e-3, "vime": 0.1}


# What differs from SparseHalfCheetah's preset, by environment and method: settings, and η.
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
            "arithmetic": "bfloat16",
            "eta": 1e-3,
        },
        "emi-d": {
            "lambda_error": 100.0,
            "lambda_info": 0.1,
            "kl_weight": 0.5,
            "arithmetic": "bfloat16",
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


@pytest.mark.parametrize(("env", "method"), [(e, m) for e in ELSEWHERE for m in ELSEWHERE[e]])
def test_the_presets_of_the_other_environments(env: str, method: str) -> None:
    here, there = (preset(name, method) for name in ("SparseHalfCheetah", env))
    before, after = (dataclasses.asdict(config.intrinsic) for config in (here, there))
    found = {name: value for name, value in after.items() if value != before[name]}
    assert found | {"eta": there.eta} == ELSEWHERE[env][method]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_preset_for_any_environment(method: str) -> None:
    config = preset("gym:CartPole-v1", method)
    assert type(config.intrinsic) is type(find_method(method).config)


class Camera(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)


def test_an_environment_with_images_gets_the_settings_for_images() -> None:
    gymnasium.register("test/Camera-v0", entry_point=Camera)
    try:
        images, vectors = preset("gym:test/Camera-v0"), preset("gym:CartPole-v1")
    finally:
        del gymnasium.registry["test/Camera-v0"]
    assert (images.value.minibatch, vectors.value.minibatch) == (512, 64)
    assert isinstance(images.intrinsic, EMIConfig)
    assert isinstance(vectors.intrinsic, EMIConfig)
    assert (images.intrinsic.lambda_error, images.intrinsic.kl_target) == (100, "action")
    assert vectors.intrinsic == EMIConfig()


@pytest.mark.parametrize(
    ("limit", "num_envs", "steps"),
    [(None, 10, 5_000), (200, 10, 5_000), (999, 5, 5_000), (7_000, 1, 7_000)],
)
def test_an_iteration_of_any_environment_holds_its_longest_episode(
    limit: int | None, num_envs: int, steps: int
) -> None:
    gymnasium.register("test/Camera-v0", entry_point=Camera, max_episode_steps=limit)
    try:
        config = preset("gym:test/Camera-v0")
    finally:
        del gymnasium.registry["test/Camera-v0"]
    assert (config.num_envs, config.steps_per_iteration) == (num_envs, steps)


def test_the_papers_other_environments() -> None:
    swimmer, game, box = map(preset, ("SwimmerGather", "MontezumaRevenge", "BoxImage"))
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
    other = dataclasses.asdict(preset("atari:Pong")) | {"env": "MontezumaRevenge"}
    assert other == dataclasses.asdict(game)


@pytest.mark.parametrize("env", ANY_ENV)
@pytest.mark.parametrize("method", METHODS)
def test_a_preset_is_valid_and_survives_json(env: str, method: str) -> None:
    config = preset(env, method)
    assert change(config, {}) == config
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    assert changed_settings(config) == []
    assert command_words(config) == ["train", env, "--method", method, "--seed", "0"]


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"^unknown method 'emo': did you mean 'emi'\?$"):
        preset("SparseHalfCheetah", "emo")
    with pytest.raises(UserError, match=r"^unknown method 'zzzz': choose one of emi, emi-d, ex2,"):
        preset("SparseHalfCheetah", "zzzz")
    with pytest.raises(UserError, match=r"did you mean 'SparseHalfCheetah'\?$"):
        preset("SparsHalfCheeta")
    with pytest.raises(UserError, match=r"^an environment is given by its name"):
        preset(gymnasium.make("CartPole-v1"))  # type: ignore[arg-type]


def test_a_method_of_ones_own_has_its_defaults_and_the_eta_of_emi() -> None:
    by_name = preset("SparseHalfCheetah", "emi.intrinsic.rnd:RND")
    assert (by_name.intrinsic, by_name.eta) == (RNDConfig(), 1e-3)
    by_class = preset("SwimmerGather", EMI)
    assert by_class.method == "emi.intrinsic.emi:EMI"
    assert (by_class.intrinsic, by_class.eta) == (EMIConfig(), 1e-3)
    assert by_class.steps == preset("SwimmerGather").steps


def test_settings_and_then_words_change_the_preset() -> None:
    config = resolve("SparseHalfCheetah", "rnd", {"eta": 0.5, "seed": 3}, ["eta=0.25", "steps=5e6"])
    assert (config.eta, config.seed, config.steps) == (0.25, 3, 5_000_000)
    assert changed_settings(config) == ["eta", "seed"]


def test_the_command_of_a_config() -> None:
    config = resolve(
        "SwimmerGather",
        "emi-d",
        {"seed": 4, "steps": 600, "threads": 93, "device": "cuda", "clip_rewards": True},
        ["policy.hidden=8", "intrinsic.state_hidden=4,2", "intrinsic.lambda_info=1e-7"],
    )
    assert command_words(config) == [
        *("train", "SwimmerGather", "--method", "emi-d", "--seed", "4", "--steps", "600"),
        *("--threads", "93", "--device", "cuda", "--set", "clip_rewards=true"),
        *("intrinsic.lambda_info=1e-07", "intrinsic.state_hidden=4,2", "policy.hidden=8"),
    ]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> TrainConfig:
    """The config that the command line makes of its arguments."""
    capsys.readouterr()
    assert main([*words, "--print-config"]) == 0
    return from_dict(json.loads(capsys.readouterr().out))


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    """Presets with some settings changed, each to another value of its type and range."""
    config = preset(draw(st.sampled_from(ANY_ENV)), draw(st.sampled_from(list(METHODS))))
    values = flatten(config)
    for key in draw(st.lists(st.sampled_from(sorted(values)), unique=True, max_size=6)):
        if isinstance(values[key], bool):
            config = change(config, {key: draw(st.booleans())})
        elif isinstance(values[key], float):
            # In (0, 1], which every range of a float allows.
            config = change(config, {key: draw(st.floats(0, 1, exclude_min=True))})
        elif key == "wrappers":
            continue  # text, which is an option of its own
        elif isinstance(values[key], tuple):
            sizes = st.lists(st.integers(1, 10**9), max_size=3)
            config = change(config, {key: tuple(draw(sizes))})
        elif isinstance(values[key], int) and key not in ("num_envs", "steps_per_iteration"):
            most = 1024 if key == "threads" else 10**12
            config = change(config, {key: draw(st.integers(1, most))})
    return config


@given(configs())
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_command_of_a_config_gives_it_again(
    capsys: pytest.CaptureFixture[str], config: TrainConfig
) -> None:
    assert printed(command_words(config), capsys) == config


@pytest.mark.parametrize("env", ANY_ENV)
@pytest.mark.parametrize("method", METHODS)
def test_the_preset_robust_works_with_every_method_and_environment(env: str, method: str) -> None:
    config, paper = preset(env, method, "robust"), preset(env, method)
    assert change(config, {}) == config
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    assert changed_settings(config) == []
    words = ["train", env, "--method", method, "--preset", "robust", "--seed", "0"]
    assert command_words(config) == words
    # The bonus, its coefficient, the budget and the trust region are the paper's.
    assert (config.eta, config.intrinsic, config.trpo) == (paper.eta, paper.intrinsic, paper.trpo)
    assert (config.steps, config.steps_per_iteration) == (paper.steps, paper.steps_per_iteration)
    assert (config.value.memory > 0) == (paper.value.kind == "linear")


def test_the_settings_of_the_preset_robust() -> None:
    config, paper = preset("SparseHalfCheetah", name="robust"), preset("SparseHalfCheetah")
    robust, before = flatten(config), flatten(paper)
    assert {key: value for key, value in robust.items() if value != before[key]} == {
        "preset": "robust",
        "gae_lambda": 0.97,
        "policy.init_std": 0.5,
        "value.memory": 0.995,
        "value.memory_episodes": 20,
        "streams.separate": True,
        "streams.discount": 0.995,
        "streams.gae_lambda": 1.0,
        "streams.episodic": True,
        "keeping.stake_power": 1.0,
        "keeping.patience": 5,
        "keeping.min_std": 0.3,
    }


def test_a_preset_by_its_name() -> None:
    robust = preset("SparseHalfCheetah", "rnd", "robust")
    assert resolve("SparseHalfCheetah", "rnd", {"preset": "robust"}) == robust
    assert resolve("SparseHalfCheetah", "rnd", name="robust") == robust
    changed = resolve("SparseHalfCheetah", "rnd", {"eta": 0.5}, ["keeping.patience=9"], "robust")
    assert changed_settings(changed) == ["eta", "keeping.patience"]
    assert resolve("SparseHalfCheetah", "rnd", to_dict(changed)) == changed
    with pytest.raises(UserError, match=r"^unknown preset 'robus': choose one of paper, robust$"):
        preset("SparseHalfCheetah", name="robus")
    with pytest.raises(
        UserError, match=r"^these settings are for the preset 'robust', not 'paper'"
    ):
        resolve("SparseHalfCheetah", "rnd", {"preset": "robust"}, name="paper")
    with pytest.raises(UserError, match="preset cannot be changed with --set"):
        resolve("SparseHalfCheetah", words=["preset=robust"])
