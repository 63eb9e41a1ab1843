"""CartPoleSwingUp: dynamics, reward, ends, seeding."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import emi.envs  # noqa: F401 (registers emi/CartPoleSwingUp-v0)
from emi.envs.cart_pole_swing_up import (
    CartPoleSwingUpVectorEnv,
    accelerations,
    draw_cart,
)


def energy(state: np.ndarray) -> np.ndarray:
    """Kinetic and potential energy of cart and pole, a uniform rod of length 1; J."""
    _, speed, angle, spin = state.T
    across, up = speed + 0.5 * spin * np.cos(angle), -0.5 * spin * np.sin(angle)
    rod = 0.5 * 0.1 * (across**2 + up**2) + 0.5 * (0.1 / 12) * spin**2
    return 0.5 * speed**2 + rod + 0.1 * 9.8 * 0.5 * np.cos(angle)


def test_accelerations_are_those_of_gymnasium() -> None:
    inner = gymnasium.make("CartPole-v1").unwrapped
    inner.reset(seed=0)
    inner.state = before = np.array([0.1, -0.2, 0.15, 0.3])
    inner.step(1)  # explicit Euler with +10 N
    a, turning = accelerations(before[None], np.array([10.0]))
    np.testing.assert_allclose(inner.state[1], -0.2 + 0.02 * a[0], rtol=1e-9)
    np.testing.assert_allclose(inner.state[3], 0.3 + 0.02 * turning[0], rtol=1e-9)


def test_without_a_force_energy_is_nearly_kept() -> None:
    envs = CartPoleSwingUpVectorEnv(4, max_episode_steps=None)
    envs.reset(seed=0)
    envs._state[:, 2] = [0.5, 1.0, 2.0, 3.0]
    first = energy(envs.state)
    for _ in range(200):
        envs.step(np.zeros((4, 1)))
        np.testing.assert_allclose(energy(envs.state), first, atol=0.05)


def test_the_reward_is_paid_near_the_top_only() -> None:
    envs = CartPoleSwingUpVectorEnv(3)
    envs.reset(seed=0)
    envs._state[:] = [[0, 0, 0.6, 0], [0, 0, 0.7, 0], [0, 0, np.pi, 0]]  # cos 0.83, 0.76, −1
    obs, reward, terminated, _, _ = envs.step(np.zeros((3, 1)))
    assert reward.tolist() == [1.0, 0.0, 0.0]
    assert not terminated.any()
    np.testing.assert_allclose(obs[:, 2] ** 2 + obs[:, 3] ** 2, 1, rtol=1e-6)


def test_leaving_the_track_ends_the_episode_without_a_reward() -> None:
    envs = CartPoleSwingUpVectorEnv(1)
    envs.reset(seed=0)
    envs._state[0] = [2.39, 1.0, 0.0, 0.0]
    obs, reward, terminated, truncated, info = envs.step(np.zeros((1, 1)))
    assert (reward[0], terminated[0], truncated[0]) == (0.0, True, False)
    assert info["final_obs"][0][0] == pytest.approx(2.41)
    assert abs(obs[0, 0]) <= 0.05  # a new episode, with the pole down
    assert obs[0, 2] < -0.99


def test_a_time_limit_and_seeds() -> None:
    ends, paths = [], []
    for n in (1, 3):
        envs = CartPoleSwingUpVectorEnv(n, max_episode_steps=50)
        obs, _ = envs.reset(seed=7)
        path = [obs[0]]
        for t in range(60):
            obs, _, _, truncated, _ = envs.step(np.full((n, 1), np.sin(t)))
            path.append(obs[0])
            ends.append(bool(truncated[0]))
        paths.append(np.stack(path))
    assert [t for t, end in enumerate(ends) if end] == [49, 109]
    assert np.array_equal(*paths)


def test_gymnasium_checks_it_and_it_can_be_drawn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded observations
        env = gymnasium.make("emi/CartPoleSwingUp-v0", render_mode="rgb_array")
        check_env(env.unwrapped, skip_render_check=False)
    picture = draw_cart(np.array([0.0, 0.0, 0.0, 0.0]))
    green = np.argwhere((picture == (0, 158, 115)).all(2))
    assert green[:, 0].mean() < 96  # the pole is above the track
