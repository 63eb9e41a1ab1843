"""The estimate of a run's memory, compared with numbers computed by hand."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import emi
from emi.envs import make_vec
from emi.errors import UserError
from emi.images import FrameStack, is_image
from emi.intrinsic.table import METHODS
from emi.nets import Conv, Pixels
from emi.training import trainer
from emi.training.config import TrainConfig
from emi.training.memory import (
    action_size,
    as_text,
    convolution_weights,
    dense_weights,
    machine_memory,
    memory_of,
    require_memory,
    stored_observation,
    trunk_weights,
)
from emi.training.presets import preset, resolve
from emi.training.trainer import Trainer

VECTOR = spaces.Box(-1, 1, (20,))
FRAMES = FrameStack(spaces.Box(0, 255, (4, 52, 52), np.uint8), 4)
IMAGE = spaces.Box(0, 255, (1, 52, 52), np.uint8)
MOTORS = spaces.Box(-1, 1, (6,))
BUTTONS = spaces.Discrete(3)


def cheetah(method: str = "trpo", **settings: Any) -> TrainConfig:
    return resolve("SparseHalfCheetah", method, {"threads": 1, **settings})


def test_observations_as_they_are_stored() -> None:
    assert stored_observation(VECTOR) == 80  # float32
    assert stored_observation(IMAGE) == 2_704  # uint8
    assert stored_observation(FRAMES) == 2_704 + 4 * 8  # the newest frame, and the places of four
    assert stored_observation(spaces.Box(0, 255, (52, 52, 3), np.uint8)) == 8_112


def test_weights() -> None:
    assert dense_weights([20, 64, 32, 12]) == 21 * 64 + 65 * 32 + 33 * 12
    assert trunk_weights(VECTOR, [64, 32, 12]) == 21 * 64 + 65 * 32 + 33 * 12
    # 52 → 12 → 5: 16 filters of 4×8×8, 32 of 16×4×4, then 256 units.
    convolved = (4 * 64 + 1) * 16 + (16 * 16 + 1) * 32
    assert convolution_weights(Pixels(FRAMES), (Conv(16, 8, 4), Conv(32, 4, 2))) == (
        convolved,
        800,
    )
    assert trunk_weights(FRAMES, [64, 32, 3]) == convolved + 801 * 256 + 257 * 3


def test_actions_as_vectors() -> None:
    assert action_size(MOTORS) == 6
    assert action_size(BUTTONS) == 3
    assert action_size(spaces.MultiDiscrete([[2, 3], [4, 5]])) == 14
    assert action_size(spaces.MultiBinary((2, 3))) == 12  # two choices for each bit


def test_the_batch_and_the_simulators() -> None:
    found = memory_of(cheetah(num_envs=10, steps_per_iteration=5_000), VECTOR, MOTORS)
    # 501 rows of ten environments: 150 + 80 + 2·24 bytes, and twice 44 features in float64.
    assert found["steps_per_iteration"] == 5_010 * (278 + 704) + 24 * 44**2
    assert found["num_envs"] == 10 * (20_000 + 80)
    twice = memory_of(cheetah(num_envs=10, threads=2), VECTOR, MOTORS)
    assert twice["steps_per_iteration"] - found["steps_per_iteration"] == 5_010 * 278


def test_atari_counts_frames_once() -> None:
    found = memory_of(resolve("Freeway", "trpo", {"threads": 1}), FRAMES, BUTTONS)
    assert found["steps_per_iteration"] == 100_020 * (150 + 2_736 + 24)
    assert found["num_envs"] == 20 * (1_500_000 + 4 * 10_816)


@pytest.mark.parametrize(
    ("method", "settings", "key", "size"),
    [
        # Twice its size, because it grows by doubling; never more rows than the run has steps.
        ("ex2", {"replay_size": 10**9}, "replay_size", 2 * 5_005_010 * 4 * 26),
        ("ex2", {"replay_size": 250_000}, "replay_size", 2 * 250_000 * 4 * 26),
        ("vime", {"replay_size": 100_000}, "replay_size", 2 * 100_000 * 4 * 46),
        ("vime", {"samples": 10**6}, "samples", 500 * 10**6 * (32 + 20) * 4),
        ("simhash", {"key_bits": 32}, "key_bits", 8 * 32 * 26 + 24 * 999_983),
        ("ae-simhash", {"ae_pool": 100_000}, "ae_pool", 2 * 100_000 * 4 * 20),
        ("re3", {"pool_size": 10_000}, "pool_size", 4 * (2 * 10_000 * 20 + 2**22)),
        ("ride", {"steps": 5_000}, "steps", 2 * 10 * 40_000),
        # Ten matrices of doubles three times, φ of the batch, and the inverse model.
        (
            "e3b",
            {"width": 100},
            "width",
            3 * 8 * 10 * 100**2 + 5_010 * 16 * 100 + 16 * (201 * 256 + 257 * 6),
        ),
    ],
)
def test_memories_of_methods(method: str, settings: dict[str, Any], key: str, size: int) -> None:
    config = cheetah(method, steps=5_000_000, steps_per_iteration=5_000, intrinsic=settings)
    assert memory_of(config, VECTOR, MOTORS)[f"intrinsic.{key}"] == size


WIDE = 10**6


@pytest.mark.parametrize(
    ("method", "settings", "key"),
    [
        ("emi", {"state_hidden": (WIDE, WIDE)}, "intrinsic.state_hidden"),
        ("emi", {"information_hidden": (WIDE, WIDE)}, "intrinsic.information_hidden"),
        ("emi", {"error_hidden": 10**9}, "intrinsic.error_hidden"),
        ("icm", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("rnd", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("rnd", {"features": WIDE}, "intrinsic.features"),
        ("ex2", {"hidden": WIDE}, "intrinsic.hidden"),
        ("vime", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("simhash", {"key_bits": 10**9}, "intrinsic.key_bits"),
        ("ae-simhash", {"ae_vector_hidden": (WIDE, WIDE)}, "intrinsic.ae_vector_hidden"),
        ("disagreement", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("disagreement", {"units": WIDE}, "intrinsic.units"),
        ("re3", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("re3", {"features": 10**8}, "intrinsic.features"),
        ("noveld", {"features": WIDE}, "intrinsic.features"),
        ("noveld", {"steps": 10**11}, "intrinsic.steps"),
        ("ride", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("ride", {"steps": 10**11}, "intrinsic.steps"),
        ("e3b", {"width": 20_000}, "intrinsic.width"),
        ("pseudo-counts", {"hidden": (WIDE, WIDE)}, "intrinsic.hidden"),
        ("ngu", {"lifelong": {"features": WIDE}}, "intrinsic.lifelong.features"),
    ],
)
def test_wide_networks_are_refused(method: str, settings: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=rf"^{key}=.* needs about .* GB, this machine has 24 GB:"):
        require_memory(cheetah(method, intrinsic=settings), VECTOR, MOTORS, 24 * 10**9)


def test_the_sentence() -> None:
    config = cheetah(num_envs=10**8, steps_per_iteration=10**8)
    with pytest.raises(UserError) as caught:
        require_memory(config, VECTOR, MOTORS, 24 * 10**9)
    assert str(caught.value) == (
        "num_envs=100000000 needs about 2,205 GB, this machine has 24 GB: "
        "lower num_envs or steps_per_iteration"
    )
    with pytest.raises(
        UserError, match=r"^steps_per_iteration=1000000000 needs about 982 GB, .*: "
    ):
        require_memory(cheetah(steps_per_iteration=10**9), VECTOR, MOTORS, 24 * 10**9)
    with pytest.raises(UserError, match=r"^policy\.hidden=\(1000000, 1000000\) needs about 40,"):
        require_memory(cheetah(policy={"hidden": (WIDE, WIDE)}), VECTOR, MOTORS, 24 * 10**9)


def test_sizes_as_text() -> None:
    assert [as_text(n) for n in (999_999, 2_704_000, 48_000_000_000)] == [
        "999,999 bytes",
        "3 MB",
        "48 GB",
    ]


SPACES: dict[str, tuple[gymnasium.Space, gymnasium.Space]] = {
    "SparseHalfCheetah": (VECTOR, MOTORS),
    "SwimmerGather": (spaces.Box(-1, 1, (33,)), spaces.Box(-1, 1, (2,))),
    "Freeway": (FRAMES, BUTTONS),
    "BoxImage": (IMAGE, spaces.Box(-1, 1, (2,))),
}


@pytest.mark.parametrize(
    ("env", "method"),
    [
        (env, method)
        for env, (observed, _) in SPACES.items()
        for method in METHODS
        if method != "vime" or not is_image(observed)
    ],
)
def test_every_preset_fits_into_a_small_machine(env: str, method: str) -> None:
    require_memory(preset(env, method), *SPACES[env], 2 * 10**9)


def test_the_machine_has_memory() -> None:
    assert 10**8 < machine_memory() < 10**14


def test_nothing_is_allocated_before_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(name: str, num_envs: int = 1, **options: Any) -> Any:
        made.append(num_envs)
        return make_vec(name, num_envs, **options)

    monkeypatch.setattr(trainer, "make_vec", counted)
    config = cheetah(num_envs=10**9, steps_per_iteration=10**9)
    with pytest.raises(UserError, match=r"^num_envs=1000000000 needs about"):
        Trainer(config)
    with pytest.raises(UserError, match=r"^num_envs=1000000000 needs about"):
        next(emi.train(config))
    assert made == [1, 1]


def test_the_command_line() -> None:
    words = ["train", "gym:CartPole-v1", "--set", "num_envs=1e9", "steps_per_iteration=1e9"]
    done = subprocess.run(
        [sys.executable, "-m", "emi", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("emi: num_envs=1000000000 needs about 20,")
