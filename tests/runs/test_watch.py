"""Videos of a trained agent."""

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from emi.envs import make_single
from emi.envs.rendering import rendering_backend
from emi.errors import UserError
from emi.program import install
from emi.runs import watch as watch_module
from emi.runs.bonus_check import check_bonus
from emi.runs.run import run
from emi.runs.watch import watch
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SIZES = {"steps": 100, "steps_per_iteration": 100, "num_envs": 2, "threads": 1}
CONFIG = resolve("SparseHalfCheetah", settings=SIZES)  # one iteration


def _can_render() -> bool:
    try:
        rendering_backend()
    except RuntimeError:
        return False
    return True


needs_rendering = pytest.mark.skipif(not _can_render(), reason="needs off-screen OpenGL")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(CONFIG, tmp_path_factory.mktemp("trained") / "run").directory.path


def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    trained: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_module, "MAX_STEPS", 2)
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/checkpoints/00000001/state.json").write_text("{}")
    with contextlib.suppress(UserError):  # where nothing can be rendered
        watch(tmp_path / "run", tmp_path / "x.gif")
    watched = capfd.readouterr().err
    check_bonus(tmp_path / "run")
    examined = capfd.readouterr().err
    for said in (watched, examined):
        assert said.startswith("emi: warning: ")
        assert "00000001 is damaged" in said
        assert "using 00000000 instead" in said


# Reading a video back, which only this test does, leaves imageio's pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@needs_rendering
@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
def test_a_video(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import imageio.v3 as imageio

    monkeypatch.setattr(watch_module, "MAX_STEPS", 6)
    episode = watch(trained, tmp_path / "deep" / name)
    assert (episode.steps, episode.total_reward) == (6, 0.0)
    frames = imageio.imread(tmp_path / "deep" / name)
    # 100 frames a second; a GIF, which viewers play at 50 at most, has every second one.
    assert len(frames) == {"video.mp4": 7, "video.gif": 4}[name]
    assert frames[0].std() > 10  # not a blank image
    assert [p.name for p in (tmp_path / "deep").iterdir()] == [name]


def _actions(
    trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **how: object
) -> np.ndarray:
    """Return the actions of an episode; nothing is rendered."""
    taken: list[np.ndarray] = []

    def recording(name: str, render_mode: str, **options: Any) -> gymnasium.Env:
        env = make_single(name, **options)
        step = env.step

        def record(action: np.ndarray) -> object:
            taken.append(action)
            return step(action)

        monkeypatch.setattr(env, "step", record)
        return env

    monkeypatch.setattr(watch_module, "make_single", recording)
    monkeypatch.setattr(watch_module, "frame_of", lambda env, name: np.zeros((4, 4, 3), np.uint8))
    monkeypatch.setattr(watch_module, "MAX_STEPS", 5)
    watch(trained, out, **how)  # type: ignore[arg-type]
    return np.array(taken)


def test_the_seed_decides_the_episode(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def actions(**how: object) -> np.ndarray:
        return _actions(trained, tmp_path / "v.gif", monkeypatch, **how)

    first = actions(seed=1)
    assert first.shape == (5, 6)
    assert np.array_equal(first, actions(seed=1))
    assert not np.array_equal(first, actions(seed=2))
    calm = actions(seed=1, deterministic=True)
    assert np.array_equal(calm, actions(seed=1, deterministic=True))
    # A fresh policy's mean is near 0 and its standard deviation 1.
    assert np.abs(calm).mean() < 0.5 * np.abs(first).mean()


def test_it_shows_how_far_it_is(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    _actions(trained, tmp_path / "v.gif", monkeypatch, show=shown.append)
    assert shown == [f"{steps} steps, return 0" for steps in (1, 2, 3, 4, 5)]


def test_a_name_that_is_too_long_is_one_sentence(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / f"{'x' * 300}.gif"
    with pytest.raises(UserError) as caught:
        _actions(trained, out, monkeypatch)
    assert str(caught.value) == f"cannot write {out}: File name too long"


def test_any_error_of_a_renderer_is_one_sentence(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(env: gymnasium.Env) -> np.ndarray:
        raise mujoco.FatalError("no OpenGL")

    monkeypatch.setattr("emi.envs.sparse_half_cheetah.SparseHalfCheetahEnv.render", broken)
    with pytest.raises(UserError, match="SparseHalfCheetah cannot be rendered: no OpenGL"):
        watch(trained, tmp_path / "video.mp4")


def test_the_trained_policy_acts(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = _actions(trained, tmp_path / "v.gif", monkeypatch, seed=3, deterministic=True)
    obs, _ = gymnasium.make("emi/SparseHalfCheetah-v0").reset(seed=3)
    trainer = Trainer(CONFIG)
    fresh = trainer.policy.mode(obs[None])
    trainer.iterate()
    assert np.array_equal(
        taken[0], trainer.policy.actions.to_env(trainer.policy.mode(obs[None]))[0]
    )
    assert not np.array_equal(trainer.policy.mode(obs[None]), fresh)
    trainer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_discrete_observations_are_preprocessed_as_in_training(tmp_path: Path) -> None:
    class Steps(gymnasium.Env[int, int]):
        """Five squares in a row; the brightness of the image is the number of the square."""

        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
        observation_space = gymnasium.spaces.Discrete(5)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode: str | None = None) -> None:
            self.render_mode, self.square = render_mode, 0

        def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict]:
            super().reset(seed=seed)
            self.square = 0
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
            self.square += 1
            return self.square, 1.0, self.square == 4, False, {}

        def render(self) -> np.ndarray:
            return np.full((32, 32, 3), 50 * self.square, np.uint8)

    gymnasium.register("test/Steps-v0", entry_point=Steps)
    try:
        small = SIZES | {"steps": 20, "steps_per_iteration": 20}
        config = resolve("gym:test/Steps-v0", settings=small)
        trained = run(config, tmp_path / "run").directory.path
        episode = watch(trained, tmp_path / "video.gif")
    finally:
        del gymnasium.registry["test/Steps-v0"]
    assert (episode.steps, episode.total_reward) == (4, 4.0)


def test_other_formats_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a video is \.mp4 or \.gif, not 'film\.avi'"):
        watch(trained, tmp_path / "film.avi")


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        watch(tmp_path, tmp_path / "video.mp4")
    assert not any(tmp_path.iterdir())


def test_no_rendering_is_one_sentence_and_no_file(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_display(env: gymnasium.Env) -> np.ndarray:
        raise RuntimeError("rendering needs an off-screen OpenGL")

    monkeypatch.setattr("emi.envs.sparse_half_cheetah.SparseHalfCheetahEnv.render", no_display)
    with pytest.raises(UserError, match="cannot be rendered: rendering needs an off-screen"):
        watch(trained, tmp_path / "video.mp4")
    assert not any(tmp_path.iterdir())


def test_no_imageio_is_one_sentence(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(UserError) as caught:
        watch(trained, tmp_path / "video.mp4")
    assert str(caught.value) == f"videos need imageio: {install('train')}"
