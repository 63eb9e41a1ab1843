"""From a name to a vector environment, and one sentence where there is none."""

import subprocess
import sys
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from emi.envs import ENVIRONMENTS, FAMILIES, make_env, rendering


class Toy(gymnasium.Env):
    """Ends after two steps; its spaces are whatever a test needs."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: object) -> tuple:
        self.steps += 1
        return self.observation_space.sample(), 0.0, self.steps == 2, False, {}


@pytest.fixture
def toy() -> Iterator[None]:
    gymnasium.register(id="Toy-v0", entry_point=Toy)
    yield
    del gymnasium.registry["Toy-v0"]


def register_toy(observation: gymnasium.Space, action: gymnasium.Space) -> None:
    gymnasium.registry["Toy-v0"].kwargs = {
        "observation_space": observation,
        "action_space": action,
    }


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_every_name_makes_an_environment(name: str) -> None:
    assert ENVIRONMENTS[name]
    assert "\n" not in ENVIRONMENTS[name]
    env = make_env(name, num_envs=3, seed=0, threads=1)
    assert env.num_envs == 3
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = env.reset()
    assert obs.shape[0] == 3
    env.close()


@pytest.mark.parametrize("name", ["SparseHalfCheetah", "gym:Pendulum-v1"])
def test_seed_starts_the_streams(name: str) -> None:
    starts = [make_env(name, num_envs=2, seed=seed).reset()[0] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    samples = [make_env(name, num_envs=2, seed=3).action_space.sample() for _ in range(2)]
    np.testing.assert_array_equal(samples[0], samples[1])


def test_any_gymnasium_environment() -> None:
    env = make_env("gym:CartPole-v1", num_envs=2, seed=0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.single_action_space == spaces.Discrete(2)
    for _ in range(200):
        obs, _, terminated, _, info = env.step(np.array([1, 1]))
        if terminated.any():
            break
    assert terminated.any()
    ended = int(np.flatnonzero(terminated)[0])
    assert abs(info["final_obs"][ended][2]) > 0.2  # the pole had fallen
    assert abs(obs[ended][2]) < 0.06  # and stands again
    env.close()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("shape", [(52, 52), (52, 52, 3)])
def test_images_are_supported(shape: tuple[int, ...]) -> None:
    register_toy(spaces.Box(0, 255, shape, np.uint8), spaces.Box(-1, 1, (2,)))
    env = make_env("gym:Toy-v0", num_envs=2, seed=0)
    assert env.single_observation_space.shape == shape
    env.step(np.zeros((2, 2), np.float32))
    _, _, terminated, _, info = env.step(np.zeros((2, 2), np.float32))
    assert terminated.all()
    assert info["final_obs"][0].shape == shape


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Discrete(5), spaces.Discrete(2)),
        (spaces.Dict({"a": spaces.Box(0, 1, (2,))}), spaces.Discrete(2)),
        (spaces.Box(0, 1, (8, 8, 3)), spaces.Discrete(2)),
        (spaces.Box(0, 1, (4,)), spaces.MultiDiscrete([2, 2])),
    ],
)
def test_unsupported_spaces(observation: gymnasium.Space, action: gymnasium.Space) -> None:
    register_toy(observation, action)
    supported = (
        r"^'gym:Toy-v0' has observations .* and actions .*: supported are Box observations "
        r"\(vectors or uint8 images\) and Box or Discrete actions\.$"
    )
    with pytest.raises(ValueError, match=supported):
        make_env("gym:Toy-v0")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SparseHalfChetah", "did you mean 'SparseHalfCheetah'?"),
        ("SPARSEHALFCHEETAH", "did you mean 'SparseHalfCheetah'?"),
        ("CartPole-v1", "did you mean 'gym:CartPole-v1'?"),
        ("NoSuchEnv", f"choose one of {', '.join([*ENVIRONMENTS, *FAMILIES])}."),
    ],
)
def test_unknown_name(name: str, message: str) -> None:
    with pytest.raises(ValueError, match="unknown environment") as caught:
        make_env(name)
    assert str(caught.value) == f"unknown environment {name!r}: {message}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gym:CartPol-v1", "CartPole"),
        ("gym:CartPole-v9", "v1"),
        ("gym:no_module:X-v0", "no_module"),
    ],
)
def test_unknown_gymnasium_environment(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"cannot make '{name}'.*{hint}"):
        make_env(name)


def test_numbers_must_be_positive() -> None:
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        make_env("SparseHalfCheetah", num_envs=0)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        make_env("SparseHalfCheetah", threads=0)


def test_missing_mujoco_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "emi.envs.sparse_half_cheetah", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # what import takes for "not installed"
    with pytest.raises(ModuleNotFoundError) as caught:
        make_env("SparseHalfCheetah")
    assert str(caught.value) == "SparseHalfCheetah needs MuJoCo: pip install 'emi-rl[mujoco]'"


def test_importing_the_names_does_not_import_the_simulator() -> None:
    code = "import sys, emi.envs; sys.exit('mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_opengl_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_candidates", lambda: ["no_such_backend"])
    rendering._backend.cache_clear()
    with pytest.raises(RuntimeError) as caught:
        rendering.rendering_backend()
    rendering._backend.cache_clear()
    assert str(caught.value).startswith("rendering needs an off-screen OpenGL: apt-get install")
    assert "no_such_backend" in str(caught.value)
