"""Atari games: observations, rewards, ends, determinism and rendering."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TimeLimit

from emi.envs import atari, make_vec
from emi.envs.atari import AtariEnv, AtariVectorEnv, rom_of
from emi.errors import UserError
from emi.program import install

# Loading a game takes a tenth of a second for each environment: tests share a few.


@pytest.fixture(scope="module")
def three_freeways() -> Iterator[AtariVectorEnv]:
    env = AtariVectorEnv("Freeway", num_envs=3, threads=2)
    yield env
    env.close()


@pytest.fixture(scope="module")
def two_runners() -> Iterator[AtariVectorEnv]:
    """Without actions a game of Road Runner is soon over, which tests of ends need."""
    env = AtariVectorEnv("RoadRunner", num_envs=2, threads=2)
    yield env
    env.close()


class Emulator:
    """A game played frame by frame, independent of the code under test."""

    def __init__(self, rom: str) -> None:
        self.game = ale_py.ALEInterface()
        self.game.setFloat("repeat_action_probability", 0.0)
        self.game.loadROM(ale_py.roms.get_rom_path(rom))
        self.game.reset_game()
        self.actions = self.game.getMinimalActionSet()

    def play(self, action: int) -> tuple[list[np.ndarray], int]:
        """The four frames of an action in grey, and their points."""
        frames, points = [], 0
        for _ in range(4):
            points += self.game.act(self.actions[action])
            frames.append(self.game.getScreenGrayscale())
        return frames, points


def shrunk(image: np.ndarray) -> np.ndarray:
    """An image [height, width] downsampled to [52, 52] by area averaging."""
    down, across = (overlaps(size) for size in image.shape)
    result: np.ndarray = np.einsum("jx,ix->ij", across, np.einsum("iy,yx->ix", down, image / 1.0))
    return result


def overlaps(size: int) -> np.ndarray:
    """Weights [52, size] of the `size` input pixels in each of the 52 output pixels."""
    pixel, cell = np.arange(size), np.arange(52)[:, None] * (size / 52)
    end = np.minimum(pixel + 1, cell + size / 52)
    shares: np.ndarray = np.maximum(end - np.maximum(pixel, cell), 0) / (size / 52)
    return shares


def play(env: AtariVectorEnv, plan: np.ndarray, seed: int | None = None) -> np.ndarray:
    """Observations [time + 1, env, 4, 52, 52] of a plan of actions [time, env]."""
    first, _ = env.reset(seed=seed)
    return np.stack([first, *(env.step(actions)[0] for actions in plan)])


def test_spaces_and_start(three_freeways: AtariVectorEnv) -> None:
    env = three_freeways
    assert env.single_observation_space == gymnasium.spaces.Box(0, 255, (4, 52, 52), np.uint8)
    assert env.single_action_space == gymnasium.spaces.Discrete(3)  # stay, up, down
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, info = env.reset()
    assert env.observation_space.contains(obs)
    assert info == {}
    assert not obs[:, :3].any()  # there are no earlier frames yet
    assert np.ptp(obs[0, 3]) > 100
    np.testing.assert_array_equal(obs[1:], obs[:1].repeat(2, axis=0))


def test_check_env_finds_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(AtariEnv("Freeway"), skip_render_check=True)


def test_frames_and_points_are_those_of_the_game() -> None:
    """Four frames per action; the maximum of the last two, grey, downsampled, stacked."""
    env, emulator = AtariVectorEnv("Asterix"), Emulator("asterix")
    assert env.single_action_space == gymnasium.spaces.Discrete(9)
    before, _ = env.reset()
    screen = emulator.game.getScreenGrayscale()
    np.testing.assert_allclose(before[0, 3], shrunk(screen), atol=0.51, rtol=0)
    rewards = []
    for action in (2, 2, 2, 2, 2, 2, 6, 4, 7, 1, 0, 8):
        obs, reward, terminated, truncated, info = env.step(np.array([action]))
        frames, points = emulator.play(action)
        brighter = np.maximum(frames[2], frames[3])
        np.testing.assert_allclose(obs[0, 3], shrunk(brighter), atol=0.51, rtol=0)
        np.testing.assert_array_equal(obs[0, :3], before[0, 1:])
        assert reward.dtype == np.float64
        assert reward.tolist() == [points]
        assert (terminated.tolist(), truncated.tolist(), info) == ([False], [False], {})
        rewards.append(points)
        before = obs
    assert rewards[:7] == [0, 0, 0, 0, 0, 50, 0]  # raw points, not clipped to 1


def test_game_over_ends_one_environment(two_runners: AtariVectorEnv) -> None:
    env = two_runners
    start, _ = env.reset(seed=0)
    before = start
    for _ in range(67):
        before, _, terminated, truncated, _ = env.step(np.array([3, 2]))
        assert not (terminated | truncated).any()
    env._ages[0] = 4499
    obs, _, terminated, truncated, info = env.step(np.array([3, 2]))
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, False]  # terminated, hence not truncated
    assert info["_final_obs"].tolist() == [True, False]
    assert info["_final_info"].tolist() == [True, False]
    assert info["final_info"] == {}
    assert info["final_obs"][1] is None
    np.testing.assert_array_equal(info["final_obs"][0][:3], before[0, 1:])
    np.testing.assert_array_equal(obs[0], start[0])
    np.testing.assert_array_equal(obs[1, :3], before[1, 1:])
    assert env._ages.tolist() == [0, 68]


def test_an_episode_is_truncated_after_4500_steps(three_freeways: AtariVectorEnv) -> None:
    env = three_freeways
    start, _ = env.reset()
    up = np.ones(3, dtype=np.int64)
    for _ in range(5):
        env.step(up)
    env._ages[:] = [4498, 4499, 5]
    obs, _, terminated, truncated, info = env.step(up)
    assert terminated.tolist() == [False, False, False]
    assert truncated.tolist() == [False, True, False]
    assert info["_final_obs"].tolist() == [False, True, False]
    assert info["_final_info"].tolist() == [False, True, False]
    # The others have played the same and continue; so would the one that ended.
    np.testing.assert_array_equal(info["final_obs"][1], obs[0])
    np.testing.assert_array_equal(obs[1], start[1])
    following, _, terminated, truncated, info = env.step(up)
    assert not terminated.any()
    assert truncated.tolist() == [True, False, False]
    np.testing.assert_array_equal(info["final_obs"][0], following[2])
    np.testing.assert_array_equal(following[1, :3], start[1, 1:])  # the game continues
    assert env._ages.tolist() == [0, 1, 7]


def test_only_masked_environments_are_reset(three_freeways: AtariVectorEnv) -> None:
    env = three_freeways
    start, _ = env.reset()
    for _ in range(4):
        before = env.step(np.ones(3, dtype=np.int64))[0]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(after[1], start[1])
    assert env._ages.tolist() == [4, 0, 4]
    none, _ = env.reset(options={"reset_mask": np.zeros(3, dtype=np.bool_)})
    np.testing.assert_array_equal(none, after)
    for mask in (np.array([True]), np.array([1, 0, 0])):
        with pytest.raises(ValueError, match=r"one boolean per environment \(3\)"):
            env.reset(options={"reset_mask": mask})


def test_a_seed_removes_traces_of_earlier_episodes() -> None:
    """Solaris starts differently after another episode, unless it is loaded again."""
    env = AtariVectorEnv("Solaris")
    plan = np.random.default_rng(0).integers(18, size=(60, 1))
    first = play(env, plan)
    assert not np.array_equal(play(env, plan), first)
    np.testing.assert_array_equal(play(env, plan, seed=0), first)
    np.testing.assert_array_equal(play(env, plan, seed=2**40), first)
    single = AtariEnv("Solaris", render_mode="rgb_array")
    pictures = []
    for seed in (None, 7):
        start, _ = single.reset(seed=seed)
        np.testing.assert_array_equal(
            np.stack([start, *(single.step(action)[0] for action in plan[:, 0])]), first[:, 0]
        )
        pictures.append(single.render())
    np.testing.assert_array_equal(pictures[0], pictures[1])


def test_a_single_environment_equals_the_first_of_a_vector(two_runners: AtariVectorEnv) -> None:
    """Also across the end of an episode, with other threads and another second environment."""
    single = AtariEnv("RoadRunner", render_mode="rgb_array")
    emulator = Emulator("road_runner")
    plan = np.random.default_rng(2).integers(18, size=(200, 2))
    obs, _ = single.reset(seed=11)
    np.testing.assert_array_equal(obs, two_runners.reset(seed=5)[0][0])
    ends = []
    for t, actions in enumerate(plan):
        obs, reward, terminated, truncated, info = single.step(actions[0])
        batch, rewards, *_, infos = two_runners.step(actions)
        emulator.play(actions[0])
        assert info == {}
        assert reward == rewards[0]
        np.testing.assert_array_equal(single.render(), emulator.game.getScreenRGB())
        if terminated:
            ends.append(t)
            np.testing.assert_array_equal(obs, infos["final_obs"][0])
            with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
                single.step(0)
            obs, _ = single.reset()
            emulator.game.reset_game()
        assert not truncated
        np.testing.assert_array_equal(obs, batch[0])
    assert ends == [143]
    single.close()
    single.close()


def test_a_single_environment_ends_at_the_time_limit() -> None:
    env = TimeLimit(AtariEnv("Freeway"), 3)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)
    for _ in range(2):
        env.reset()
        assert [env.step(1)[2:4] for _ in range(3)] == [(False, t == 2) for t in range(3)]
    assert env.render() is None
    env.reset()
    with pytest.raises(ValueError, match=r"Discrete\(3\), got 3"):
        env.step(3)


def test_the_frame_is_the_screen_in_colour(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="render_mode"):
        AtariEnv("Freeway", render_mode="human")
    env = AtariEnv("Freeway", render_mode="rgb_array")
    env.reset()
    picture = env.render()
    assert picture is not None
    assert capfd.readouterr().err == ""  # ale-py prints its version by default
    assert picture.shape == (210, 160, 3)
    assert picture.dtype == np.uint8
    assert np.ptp(picture, axis=2).max() > 50  # not grey
    copy = picture.copy()
    env.step(1)
    following = env.render()
    assert following is not None
    assert not np.array_equal(following, copy)
    np.testing.assert_array_equal(picture, copy)
    assert env.metadata["render_fps"] == 15


def test_returned_arrays_are_copies(three_freeways: AtariVectorEnv) -> None:
    env = three_freeways
    up = np.ones(3, dtype=np.int64)
    first, _ = env.reset()
    obs, reward, terminated, truncated, _ = env.step(up)
    env._ages[:] = 4499
    last = env.step(up)[4]["final_obs"][0]
    kept = (first, obs, reward, terminated, truncated, last)
    copies = [array.copy() for array in kept]
    for _ in range(3):
        env.step(up)
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0], r"shape \(3,\), got \(2,\)"),
        ([[0], [0], [0]], r"shape \(3,\), got \(3, 1\)"),
        ([0.0, 1.0, np.nan], "whole numbers, got float64"),
        ([0, 1, 3], r"from 0 to 2, got \[0, 1, 3\]"),
        ([-1, 1, 2], r"from 0 to 2, got \[-1, 1, 2\]"),
    ],
)
def test_wrong_actions_are_refused(
    three_freeways: AtariVectorEnv, actions: list[float], message: str
) -> None:
    three_freeways.reset()
    with pytest.raises(ValueError, match=message):
        three_freeways.step(np.array(actions))
    three_freeways.step(np.array([0, 1, 2], dtype=np.uint8))  # ale-py itself refuses this type


def test_reset_is_required_first() -> None:
    env = AtariVectorEnv("Freeway", num_envs=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.array([0]))
    with pytest.raises(gymnasium.error.ResetNeeded, match="all environments"):
        env.reset(options={"reset_mask": np.array([False])})


def test_other_vector_environments_still_declare_no_autoreset_mode(
    three_freeways: AtariVectorEnv,
) -> None:
    """Otherwise a rollout would rely on a mode that was never declared."""
    assert three_freeways.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert "autoreset_mode" not in VectorEnv.metadata


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
@pytest.mark.parametrize(("num_envs", "threads"), [(1, 2), (2, 1)])
def test_threads_end_with_the_environment(num_envs: int, threads: int) -> None:
    """Threads are compared by id, because threads of other tests may end meanwhile."""
    before = set(os.listdir("/proc/self/task"))
    env = AtariVectorEnv("Freeway", num_envs, threads)
    own = set(os.listdir("/proc/self/task")) - before
    assert len(own) == 1  # a game is played in one thread
    env.close()
    assert not own & set(os.listdir("/proc/self/task"))
    env.close()


def test_names_are_those_of_gymnasium() -> None:
    assert {
        game: rom_of(game)
        for game in ("Freeway", "Frostbite", "Venture", "Gravitar", "Solaris", "MontezumaRevenge")
    } == {
        "Freeway": "freeway",
        "Frostbite": "frostbite",
        "Venture": "venture",
        "Gravitar": "gravitar",
        "Solaris": "solaris",
        "MontezumaRevenge": "montezuma_revenge",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atari:pong", "unknown Atari game 'pong': did you mean 'Pong'?"),
        ("atari:ROADRUNNER", "did you mean 'RoadRunner'?"),
        ("atari:MontezumasRevenge", "did you mean 'MontezumaRevenge'?"),
        ("atari:space_invaders", "did you mean 'SpaceInvaders'?"),
        ("atari:Xyzzyx", "unknown Atari game 'Xyzzyx' in ale-py"),
    ],
)
def test_unknown_game(name: str, message: str) -> None:
    with pytest.raises(ValueError, match="unknown Atari game") as caught:
        make_vec(name)
    assert str(caught.value).endswith(message)


def test_missing_ale_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, atari.__name__)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # import treats None as "not installed"
    for name in ("Freeway", "atari:Pong"):
        with pytest.raises(UserError) as caught:
            make_vec(name)
        assert str(caught.value) == (
            f"{name} needs ale_py, which is not installed: {install('atari')}"
        )
