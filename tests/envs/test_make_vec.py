"""Environments are made by name; a name that cannot be made is one sentence."""

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from emi.cli import main
from emi.envs import make_single, make_vec, rendering, time_limit
from emi.envs.episodes import EpisodicEnv, EpisodicVectorEnv, Outcome
from emi.envs.table import ENVIRONMENTS, FAMILIES, Environment
from emi.errors import UserError
from emi.program import install
from emi.training.presets import preset, resolve
from emi.training.trainer import Trainer, train


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
    assert ENVIRONMENTS[name].about
    assert "\n" not in ENVIRONMENTS[name].about
    env = make_vec(name, num_envs=3, seed=0, threads=1)
    assert env.num_envs == 3
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = env.reset()
    assert obs.shape[0] == 3
    env.close()


@pytest.mark.parametrize(
    "name", ["SparseHalfCheetah", "SwimmerGather", "BoxImage", "gym:Pendulum-v1"]
)
def test_seed_starts_the_streams(name: str) -> None:
    starts = [make_vec(name, num_envs=2, seed=seed).reset()[0] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    samples = [make_vec(name, num_envs=2, seed=3).action_space.sample() for _ in range(2)]
    np.testing.assert_array_equal(samples[0], samples[1])


def test_any_gymnasium_environment() -> None:
    env = make_vec("gym:CartPole-v1", num_envs=2, seed=0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.single_action_space == spaces.Discrete(2)
    for _ in range(200):
        obs, _, terminated, _, info = env.step(np.array([1, 1]))
        if terminated.any():
            break
    assert terminated.any()
    ended = int(np.flatnonzero(terminated)[0])
    assert abs(info["final_obs"][ended][2]) > 0.2  # the pole had fallen
    assert abs(obs[ended][2]) < 0.06  # and stands upright again
    env.close()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("shape", [(52, 52), (52, 52, 3)])
def test_images_are_supported(shape: tuple[int, ...]) -> None:
    register_toy(spaces.Box(0, 255, shape, np.uint8), spaces.Box(-1, 1, (2,)))
    env = make_vec("gym:Toy-v0", num_envs=2, seed=0)
    assert env.single_observation_space.shape == shape
    env.step(np.zeros((2, 2), np.float32))
    _, _, terminated, _, info = env.step(np.zeros((2, 2), np.float32))
    assert terminated.all()
    assert info["final_obs"][0].shape == shape


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [
        ("FrozenLake-v1", spaces.Box(0, 1, (16,)), spaces.Discrete(4)),
        ("FrozenLake8x8-v1", spaces.Box(0, 1, (64,)), spaces.Discrete(4)),
        ("Pendulum-v1", None, spaces.Box(-2, 2, (1,))),
        ("MountainCarContinuous-v0", None, spaces.Box(-1, 1, (1,))),
    ],
)
def test_spaces_of_known_environments(
    name: str, observation: gymnasium.Space | None, action: gymnasium.Space
) -> None:
    env = make_vec(f"gym:{name}", num_envs=2, seed=0)
    own = gymnasium.make(name).observation_space
    assert env.single_observation_space == (own if observation is None else observation)
    assert env.single_action_space == action
    assert env.step(env.action_space.sample())[0] in env.observation_space


def test_numbered_states_are_one_hot_also_at_the_end() -> None:
    env = make_vec("gym:FrozenLake-v1", num_envs=2, seed=0)
    obs, _ = env.reset(seed=0)
    assert obs.dtype == np.float32
    assert obs.tolist() == [[1.0] + [0.0] * 15] * 2  # both at the start
    for _ in range(200):
        obs, _, terminated, _, info = env.step(env.action_space.sample())
        np.testing.assert_array_equal(np.sort(obs), [[0.0] * 15 + [1.0]] * 2)
        if terminated.any():
            break
    ended = int(np.flatnonzero(terminated)[0])
    last = info["final_obs"][ended]
    assert (last.dtype, last.shape, last.sum()) == (np.float32, (16,), 1.0)
    assert last.argmax() in (5, 7, 11, 12, 15)  # a hole or the goal
    assert obs[ended].argmax() == 0


# A sample of each observation space, and the vector it becomes, computed by hand.
@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("space", "sample", "vector"),
    [
        (spaces.Discrete(3, start=5), np.int64(6), [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (
            spaces.Box(-9, 9, (2, 2), np.float64),
            np.array([[1.5, 2.0], [3.0, 4.0]]),
            [1.5, 2.0, 3.0, 4.0],
        ),
        (spaces.Box(-np.inf, np.finfo(np.float64).max, (), np.float64), np.array(0.5), [0.5]),
    ],
)
def test_other_observations_become_vectors(
    space: gymnasium.Space, sample: np.ndarray, vector: list[float]
) -> None:
    space.sample = lambda *args: sample.copy()  # type: ignore[method-assign]
    register_toy(space, spaces.Discrete(2))
    env = make_vec("gym:Toy-v0", num_envs=2, seed=0)
    assert env.single_observation_space.shape == (len(vector),)
    assert env.single_observation_space.dtype == np.float32
    seen = [env.reset()[0], env.step(np.zeros(2, np.int64))[0]]
    info = env.step(np.zeros(2, np.int64))[4]
    for obs in (*seen, np.stack(info["final_obs"])):
        assert obs.dtype == np.float32
        assert obs.tolist() == [vector, vector]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Text(4), spaces.Discrete(2)),
        (spaces.Sequence(spaces.Discrete(2)), spaces.Discrete(2)),
        (spaces.Box(0, 1, (4,)), spaces.Tuple([spaces.Discrete(2)])),
        (spaces.Box(0, 1, (4,)), spaces.Dict({"a": spaces.Discrete(2)})),
        (spaces.Box(0, 1, (4,)), spaces.Text(4)),
    ],
)
def test_unsupported_spaces(observation: gymnasium.Space, action: gymnasium.Space) -> None:
    register_toy(observation, action)
    with pytest.raises(UserError, match=r"^cannot use 'gym:Toy-v0': (the observ|observ|act)"):
        make_vec("gym:Toy-v0")


def test_a_tuple_becomes_a_vector() -> None:
    """The sum of the player's cards (32), the dealer's card (11), a usable ace (2)."""
    env = make_vec("gym:Blackjack-v1", num_envs=2, seed=0)
    assert env.single_observation_space == spaces.Box(0, 1, (45,))
    own = gymnasium.make("Blackjack-v1")
    (player, dealer, ace), _ = own.reset(seed=3)
    seen = env.reset(seed=3)[0][0]
    assert np.flatnonzero(seen).tolist() == [player, 32 + dealer, 43 + ace]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Discrete(4), spaces.Discrete(3, start=2)),
        (spaces.Discrete(4), spaces.Box(-np.inf, np.inf, (2,))),
        (spaces.MultiDiscrete([2, 3]), spaces.Box(np.float32([-3, 0]), np.float32([5, np.inf]))),
        (spaces.Box(-1, 1, (2, 3)), spaces.Box(-1, 1, (2, 2))),
        (spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Discrete(2)),
        (spaces.Discrete(4), spaces.MultiDiscrete([2, 3], start=[1, -1])),
        (spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.MultiBinary(2)),
    ],
)
def test_supported_spaces_can_be_trained_on(
    observation: gymnasium.Space, action: gymnasium.Space
) -> None:
    register_toy(observation, action)
    sizes = {"steps_per_iteration": 24, "num_envs": 2, "intrinsic.minibatch": 8, "threads": 1}
    trainer = Trainer(resolve("gym:Toy-v0", "emi", sizes))
    try:
        reports = [trainer.iterate().metrics for _ in range(2)]
    finally:
        trainer.close()
    assert [report["episodes"] for report in reports] == [12, 12]
    assert all(np.isfinite(report["kl"]) and report["bonus_mean"] > 0 for report in reports)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SparseHalfChetah", "did you mean 'SparseHalfCheetah'?"),
        ("SPARSEHALFCHEETAH", "did you mean 'SparseHalfCheetah'?"),
        ("CartPole-v1", "did you mean 'gym:CartPole-v1'?"),
        ("NoSuchEnv", f"choose one of {', '.join([*ENVIRONMENTS, *FAMILIES])}"),
    ],
)
def test_unknown_name(name: str, message: str) -> None:
    with pytest.raises(ValueError, match="unknown environment") as caught:
        make_vec(name)
    assert str(caught.value) == f"unknown environment {name!r}: {message}"


@pytest.mark.parametrize(
    "name", ["gym:a:b:Env-v0", "gym::Env-v0", "gym:.near:Env-v0", "gym:a b:Env-v0"]
)
def test_a_gym_name_with_a_wrong_module(name: str) -> None:
    with pytest.raises(UserError, match=r"must be gym:ID or gym:package\.module:ID") as caught:
        make_vec(name)
    assert str(caught.value).startswith(f"{name!r} must be")


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
        make_vec(name)


def test_numbers_must_be_positive() -> None:
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        make_vec("SparseHalfCheetah", num_envs=0)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        make_vec("SparseHalfCheetah", threads=0)


def test_missing_mujoco_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "emi.envs.sparse_half_cheetah", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # import treats None as "not installed"
    for make in (make_vec, make_single):
        with pytest.raises(UserError) as caught:
            make("SparseHalfCheetah")
        assert str(caught.value) == (
            f"SparseHalfCheetah needs mujoco, which is not installed: {install('mujoco')}"
        )


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


def test_triton_is_loaded_before_opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(rendering, "importlib", types.SimpleNamespace(import_module=loaded.append))
    monkeypatch.setattr(rendering, "_working_context_class", loaded.append)
    monkeypatch.setattr(rendering, "_candidates", lambda: ["egl"])
    rendering._backend.cache_clear()
    rendering.rendering_backend()
    rendering._backend.cache_clear()
    assert loaded == ["triton", "egl"]


@pytest.mark.parametrize("name", ["SparseHalfCheetah", "SwimmerGather", "BoxImage", "Freeway"])
@pytest.mark.parametrize("steps", [3, 600])
def test_gymnasium_may_shorten_and_lengthen_episodes(name: str, steps: int) -> None:
    """600 is beyond the 500 steps of the first three environments."""
    env = gymnasium.make(f"emi/{name}-v0", max_episode_steps=steps)
    env.reset(seed=0)
    idle = env.action_space.sample() * 0
    ends = [any(env.step(idle)[2:4]) for _ in range(steps)]
    assert ends.index(True) == steps - 1
    env.close()


class Corridor(gymnasium.Env):
    """One step to the right per action 1; reward 1 at cell 3, where the episode ends."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.cell = render_mode, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action: int) -> tuple:
        self.cell = min(self.cell + int(action), 3)
        return self.cell, float(self.cell == 3), self.cell == 3, False, {}


MODULE = """
import gymnasium
from test_make_vec import Corridor

gymnasium.register("Corridor-v0", Corridor, max_episode_steps=70)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an environment that importing a user's module registers."""
    package = tmp_path / "corridor_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "envs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield "gym:corridor_package.envs:Corridor-v0"
    gymnasium.registry.pop("Corridor-v0", None)
    for name in ("corridor_package", "corridor_package.envs"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("first", [make_vec, make_single, time_limit, preset])
def test_the_module_of_a_gymnasium_name_is_imported_first(own_module: str, first: Any) -> None:
    assert "Corridor-v0" not in gymnasium.registry
    first(own_module)
    assert "Corridor-v0" in gymnasium.registry
    assert time_limit(own_module) == 70
    envs, single = make_vec(own_module, num_envs=2), make_single(own_module)
    assert envs.single_observation_space == single.observation_space == spaces.Box(0, 1, (4,))
    assert single.reset(seed=0)[0].tolist() == [1, 0, 0, 0]
    assert single.step(1)[0].tolist() == [0, 1, 0, 0]
    # 5,000 steps of 10 environments hold episodes of 70 steps.
    assert (preset(own_module).num_envs, preset(own_module).steps_per_iteration) == (10, 5_000)


@pytest.mark.parametrize("make", [make_vec, make_single])
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "No module named 'corridor_package.other'"),
        ("import gymnasium.no_such_module", "No module named 'gymnasium.no_such_module'"),
        ("from gymnasium import no_such_name", "cannot import name 'no_such_name'"),
        ("def broken(:", "invalid syntax"),
        ("", "Environment `Nowhere` doesn't exist"),
    ],
)
def test_a_module_that_cannot_be_used_is_one_sentence(
    own_module: str, tmp_path: Path, make: Any, source: str | None, sentence: str
) -> None:
    if source is not None:
        (tmp_path / "corridor_package" / "other.py").write_text(source)
    name = "gym:corridor_package.other:Nowhere-v0"
    assert time_limit(name) is None
    with pytest.raises(UserError) as caught:
        make(name)
    assert str(caught.value).startswith(f"cannot make '{name}': ")
    assert sentence in str(caught.value)
    sys.modules.pop("corridor_package.other", None)


@pytest.mark.parametrize(
    "name", [*ENVIRONMENTS, "atari:Pong", "gym:CartPole-v1", "gym:Pendulum-v1"]
)
def test_a_single_environment_has_the_spaces_of_the_vector_and_its_time_limit(name: str) -> None:
    envs, single = make_vec(name), make_single(name)
    assert single.observation_space == envs.single_observation_space
    assert single.action_space == envs.single_action_space
    limits = {"CartPole": 500, "Pendulum": 200, "NoisyTV": 100}
    atari = (
        name == "atari:Pong" or ENVIRONMENTS.get(name, ENVIRONMENTS["BoxImage"]).extra == "atari"
    )
    expected = next((n for key, n in limits.items() if key in name), 4_500 if atari else 500)
    assert time_limit(name) == expected
    envs.close()
    single.close()


def test_an_unknown_name_has_no_time_limit_and_no_single_environment() -> None:
    assert time_limit("NoSuchEnv") is None
    assert time_limit("gym:NoSuchEnv-v0") is None
    with pytest.raises(UserError, match="unknown environment 'NoSuchEnv'"):
        make_single("NoSuchEnv")


class LineVectorEnv(EpisodicVectorEnv):
    """Positions on a line, moved by the actions; no reward."""

    def __init__(self, num_envs: int = 1, threads: int | None = None, length: float = 1.0) -> None:
        box = spaces.Box(-length, length, (1,), np.float32)
        super().__init__(num_envs, box, spaces.Box(-1, 1, (1,), np.float32), 40)
        self.length, self.position = length, np.zeros((num_envs, 1))

    def _start(self, index: int, stream: np.random.Generator) -> None:
        self.position[index] = stream.uniform(-0.1, 0.1)

    def _advance(self, actions: np.ndarray) -> Outcome:
        self.position = np.clip(self.position + actions, -self.length, self.length)
        zeros = np.zeros(self.num_envs)
        return Outcome(self._observe(), zeros, zeros.astype(bool), {})

    def _observe(self) -> np.ndarray:
        return self.position.astype(np.float32)


class LineEnv(EpisodicEnv):
    def __init__(self, render_mode: str | None = None, length: float = 1.0) -> None:
        super().__init__(LineVectorEnv(length=length), render_mode)


def test_a_new_environment_needs_its_file_and_its_entry_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = types.ModuleType("emi.envs.line")
    module.LineVectorEnv, module.LineEnv = LineVectorEnv, LineEnv  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "emi.envs.line", module)
    entry = Environment("a line", "line:Line", 40, arguments={"length": 9.0})
    monkeypatch.setitem(ENVIRONMENTS, "Line", entry)

    assert time_limit("Line") == 40
    assert make_vec("Line", num_envs=3).single_observation_space.high == 9.0
    single = make_single("Line")
    single.reset(seed=0)
    assert [single.step(np.ones(1))[3] for _ in range(40)].index(True) == 39
    assert main(["envs"]) == 0
    assert any(
        line.split() == ["Line", "a", "line"] for line in capsys.readouterr().out.split("\n")
    )
    with pytest.raises(UserError, match="did you mean 'Line'"):
        make_vec("Lime")
    config = preset("Line")
    assert (config.steps_per_iteration, config.num_envs) == (5_000, 10)
    (report,) = train("Line", steps=90, steps_per_iteration=90, num_envs=2, threads=1)
    assert report.metrics["episodes"] == 2
    assert report.metrics["bonus_mean"] > 0


def test_a_backend_that_fails_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its libraries would prevent the next one from working in the same process."""
    loaded: list[str] = []
    monkeypatch.setattr(rendering, "_candidates", lambda: ["no_such_backend", "other"])
    monkeypatch.setattr(rendering, "_working_context_class", loaded.append)
    elsewhere = rendering._tried_elsewhere
    assert elsewhere("no_such_backend").startswith("ModuleNotFoundError: No module named 'mujoco.")
    monkeypatch.setattr(
        rendering, "_tried_elsewhere", lambda name: "" if name == "other" else elsewhere(name)
    )
    rendering._backend.cache_clear()
    assert rendering.rendering_backend() == "other"
    rendering._backend.cache_clear()
    assert loaded == ["other"]


def test_gymnasium_renders_mujoco_with_the_backend_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendering, "rendering_backend", lambda: "osmesa")
    monkeypatch.setenv("MUJOCO_GL", "restored at the end")
    monkeypatch.delenv("MUJOCO_GL")
    make_vec("gym:HalfCheetah-v5").close()
    assert "MUJOCO_GL" not in os.environ
    make_single("gym:HalfCheetah-v5", render_mode="rgb_array").close()
    assert os.environ["MUJOCO_GL"] == "osmesa"
