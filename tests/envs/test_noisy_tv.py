"""NoisyTV: everything but the screen is deterministic, and the screen is lit only while watched."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import emi
from emi.envs.noisy_tv import MOVES, SIDE, WATCH, NoisyTVEnv, NoisyTVVectorEnv

RIGHT, UP, LEFT, DOWN = range(4)


def walk(actions: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Observations [steps, 10] and rewards [steps] of one grid."""
    envs = NoisyTVVectorEnv()
    envs.reset(seed=seed)
    steps = [envs.step(np.array([action])) for action in actions]
    return np.stack([step[0][0] for step in steps]), np.array([step[1][0] for step in steps])


def test_check_env_finds_no_error() -> None:
    check_env(NoisyTVEnv(), skip_render_check=True)


def test_steps_and_walls() -> None:
    obs, _ = walk([RIGHT, UP, UP, LEFT, LEFT, DOWN])
    cells = np.rint((obs[:, :2] + 1) * (SIDE - 1) / 2).astype(int).tolist()
    assert cells == [[1, 0], [1, 1], [1, 2], [0, 2], [0, 2], [0, 1]]
    assert (obs[:, 2:] == 0).all()


def test_the_screen_shows_new_numbers_only_while_it_is_watched() -> None:
    obs, _ = walk([WATCH, WATCH, RIGHT, WATCH, UP])
    screen = obs[:, 2:]
    assert (screen[[2, 4]] == 0).all()
    lit = screen[[0, 1, 3]]
    assert len(np.unique(lit)) == lit.size
    assert np.abs(lit).max() <= 1
    np.testing.assert_array_equal(obs[0, :2], [-1, -1])  # it leaves the agent where it is
    other, _ = walk([WATCH], seed=1)
    assert (other[0, 2:] != screen[0]).all()


def test_the_numbers_are_uniform() -> None:
    obs, _ = walk([WATCH] * 90)
    assert np.mean(obs[:, 2:]) == pytest.approx(0, abs=0.1)  # standard error 0.02
    assert np.var(obs[:, 2:]) == pytest.approx(1 / 3, abs=0.05)


def test_the_goal_ends_the_episode() -> None:
    envs = NoisyTVVectorEnv()
    envs.reset(seed=0)
    for action in [RIGHT] * (SIDE - 1) + [UP] * (SIDE - 2):
        _, reward, terminated, _, _ = envs.step(np.array([action]))
        assert (reward[0], terminated[0]) == (0, False)
    obs, reward, terminated, _, info = envs.step(np.array([UP]))
    assert (reward[0], terminated[0]) == (1, True)
    np.testing.assert_array_equal(info["final_obs"][0], [1, 1] + [0] * 8)
    np.testing.assert_array_equal(obs[0, :2], [-1, -1])  # the next episode has begun


def test_an_episode_has_at_most_100_steps() -> None:
    env = gymnasium.make("emi/NoisyTV-v0")
    env.reset(seed=0)
    ends = [env.step(LEFT)[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]


def test_a_room_does_not_depend_on_the_others() -> None:
    actions = np.random.default_rng(0).integers(0, len(MOVES), (50, 3))
    many, one = emi.make_vec("NoisyTV", 3, seed=4), emi.make_vec("NoisyTV", 1, seed=4)
    for row in actions:
        np.testing.assert_array_equal(many.step(row)[0][:1], one.step(row[:1])[0])


@pytest.mark.parametrize("action", [-1, 5, 0.5])
def test_wrong_actions_are_refused(action: float) -> None:
    envs = NoisyTVVectorEnv()
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="whole numbers from 0 to 4"):
        envs.step(np.array([action]))


def test_the_picture() -> None:
    env = NoisyTVEnv(render_mode="rgb_array")
    env.reset(seed=0)
    dark = env.render()
    env.step(WATCH)
    lit = env.render()
    assert dark is not None
    assert lit is not None
    assert dark.shape == (352, 336, 3)
    np.testing.assert_array_equal(dark[16:], lit[16:])
    assert (dark[:16] != lit[:16]).any()
    assert dark[-1, 0].tolist() == [0, 114, 178]  # the agent, in the lower left corner
