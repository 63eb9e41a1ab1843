"""SparseHalfCheetah: observations, rewards, ends, determinism and rendering."""

import warnings
from importlib.resources import files
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

import emi.envs  # noqa: F401 (registers emi/SparseHalfCheetah-v0)
from emi.envs.rendering import rendering_backend
from emi.envs.sparse_half_cheetah import (
    REWARD_MARKERS,
    SparseHalfCheetahEnv,
    SparseHalfCheetahVectorEnv,
    load_model,
    sparse_reward,
)


def actions(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 6))
    return draw.astype(np.float32)


def trajectory(env: SparseHalfCheetahVectorEnv, plan: np.ndarray, seed: int) -> np.ndarray:
    """Observations [time + 1, env, 20]."""
    first, _ = env.reset(seed=seed)
    return np.stack([first, *(env.step(action)[0] for action in plan)])


def test_model_is_gymnasiums_without_its_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs warnings to the working directory
    ours = load_model()
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        path = files("gymnasium") / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
        theirs = mujoco.MjModel.from_xml_path(str(path))
    finally:
        mujoco.set_mju_user_warning(handler)
    assert ours.body_mass.sum() == pytest.approx(14.0, abs=1e-12)
    for name in ("body_mass", "body_inertia", "dof_M0", "dof_invweight0", "body_invweight0"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-13)
    assert ours.stat.meaninertia == pytest.approx(theirs.stat.meaninertia, rel=1e-13)
    np.testing.assert_array_equal(ours.actuator_gear[:, 0], [120, 90, 60, 120, 60, 30])
    assert ours.opt.timestep == 0.01


def test_check_env_finds_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(SparseHalfCheetahEnv(), skip_render_check=True)
        check_env(gymnasium.make("emi/SparseHalfCheetah-v0").unwrapped, skip_render_check=True)


def test_observation_layout() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=3)
    obs = trajectory(env, actions(40, 3), seed=1)[-1]
    assert obs.shape == (3, 20)
    assert obs.dtype == np.float32
    for i in range(3):
        simulation = env.simulation(i)
        np.testing.assert_array_equal(obs[i, 0:8], simulation.qpos[1:9].astype(np.float32))
        np.testing.assert_array_equal(obs[i, 8:17], simulation.qvel.astype(np.float32))
        np.testing.assert_allclose(obs[i, 17:20], simulation.subtree_com[1], atol=1e-6)
        assert obs[i, 18] == 0.0
    env.reset(seed=1)
    env._state[:] = 0.0
    at_rest = [0.0] * 17 + [0.0377678, 0.0, 0.5510276]
    np.testing.assert_allclose(env._observe()[0], at_rest, atol=1e-6)


def test_centre_of_mass_is_mujocos_after_the_step() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=50)
    env.reset(seed=0)
    env._state[:, 1:10] = np.random.default_rng(2).uniform(-4, 4, (50, 9))
    env._state[:, 1] *= 10
    env._observe()
    expected = np.stack([env.simulation(i).subtree_com[1] for i in range(50)])
    np.testing.assert_allclose(env._com, expected[:, [0, 2]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(expected[:, 1], 0.0, atol=1e-12)
    np.testing.assert_array_equal(env.torso_x, env._com[:, 0])


def test_one_action_is_one_simulation_step() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=2)
    env.reset(seed=3)
    for action in actions(25, 2):
        expected = [env.simulation(i) for i in range(2)]
        env.step(action)
        for i, simulation in enumerate(expected):
            simulation.ctrl = action[i]
            mujoco.mj_step(env.model, simulation)
            assert simulation.time == 0.01
            np.testing.assert_array_equal(env._state[i, 1:10], simulation.qpos)
            np.testing.assert_array_equal(env._state[i, 10:19], simulation.qvel)


def test_the_reward_is_1_only_beyond_five_metres() -> None:
    x = np.array([0.0, 4.999999, 5.0, 5.000001, -4.999999, -5.0, -5.000001, 40.0])
    np.testing.assert_array_equal(sparse_reward(x), [0, 0, 0, 1, 0, 0, 1, 1])


@pytest.mark.parametrize("gate", [5.0, -5.0])
def test_reward_belongs_to_the_state_after_the_step(gate: float) -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=1)
    obs, _ = env.reset(seed=0)
    env._state[0, 10] = 2.0  # m/s: the step itself carries the animal 2 cm
    before = env._state.copy()
    action = actions(1, 1)[0]
    env.step(action)
    landed = env.torso_x[0]
    for offset, expected in ((-1e-6, gate < 0), (1e-6, gate > 0)):
        env._state[:] = before
        env._state[0, 1] += gate + offset - landed
        obs, reward, _, _, _ = env.step(action)
        assert env.torso_x[0] == pytest.approx(gate + offset, abs=1e-9)
        assert reward.tolist() == [float(expected)]
        assert obs[0, 17] == np.float32(env.torso_x[0])


def test_reset_noise() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=1500, threads=1)
    env.reset(seed=0)
    position, velocity = env._state[:, 1:10], env._state[:, 10:19]
    assert position.std() == pytest.approx(0.01, rel=0.03)
    assert velocity.std() == pytest.approx(0.1, rel=0.03)
    assert abs(position.mean()) < 0.0004
    assert abs(velocity.mean()) < 0.004
    correlation = np.corrcoef(env._state[:, 1:19].T) - np.eye(18)
    assert np.abs(correlation).max() < 0.12


def test_horizon_is_500_and_the_last_observation_is_kept() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=2)
    twin = SparseHalfCheetahVectorEnv(num_envs=2, max_episode_steps=None)
    env.reset(seed=5)
    twin.reset(seed=5)
    plan = actions(501, 2)
    for action in plan[:499]:
        _, _, terminated, truncated, info = env.step(action)
        twin.step(action)
        assert not terminated.any()
        assert not truncated.any()
        assert info == {}
    obs, _, terminated, truncated, info = env.step(plan[499])
    last, _, _, never, _ = twin.step(plan[499])
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [True, True]
    assert never.tolist() == [False, False]
    assert info["_final_obs"].tolist() == [True, True]
    np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
    fresh, _ = twin.reset()
    np.testing.assert_array_equal(obs, fresh)
    assert np.abs(obs[:, :8]).max() < 0.06  # at rest but for the reset noise
    following, _, _, truncated, info = env.step(plan[500])
    np.testing.assert_array_equal(following, twin.step(plan[500])[0])
    assert not truncated.any()
    assert info == {}


def test_every_environment_has_its_own_time_limit() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=3, max_episode_steps=8)
    before, _ = env.reset(seed=0)
    ends = []
    plan = actions(16, 3)
    for t, action in enumerate(plan):
        if t == 3:
            after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
            np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
            assert not np.array_equal(after[1], before[1])
        before, _, _, truncated, info = env.step(action)
        ends += [(t, i) for i in np.flatnonzero(truncated)]
        if truncated.any():
            np.testing.assert_array_equal(info["_final_obs"], truncated)
            present = [last is not None for last in info["final_obs"]]
            assert present == truncated.tolist()
    assert ends == [(7, 0), (7, 2), (10, 1), (15, 0), (15, 2)]


def test_the_seed_decides_everything() -> None:
    plan = actions(60, 4)
    env = SparseHalfCheetahVectorEnv(num_envs=4, max_episode_steps=25)
    first = trajectory(env, plan, seed=7)
    env.step(actions(1, 4, seed=9)[0])  # what happened before the reset leaves no trace
    np.testing.assert_array_equal(trajectory(env, plan, seed=7), first)
    again = SparseHalfCheetahVectorEnv(num_envs=4, max_episode_steps=25)
    np.testing.assert_array_equal(trajectory(again, plan, seed=7), first)
    assert not np.array_equal(trajectory(env, plan, seed=8), first)
    starts = first[0]
    assert len(np.unique(starts, axis=0)) == 4  # every environment has its own stream


def test_threads_do_not_matter() -> None:
    plan = actions(60, 32)
    inline = SparseHalfCheetahVectorEnv(num_envs=32, threads=1)
    pooled = SparseHalfCheetahVectorEnv(num_envs=32, threads=2)
    assert inline._rollout.nthread == 0
    assert pooled._rollout.nthread == 2
    np.testing.assert_array_equal(
        trajectory(pooled, plan, seed=0), trajectory(inline, plan, seed=0)
    )
    pooled.close()
    pooled.close()


def test_small_batches_stay_in_the_calling_thread() -> None:
    assert SparseHalfCheetahVectorEnv(num_envs=31, threads=8)._rollout.nthread == 0
    assert SparseHalfCheetahVectorEnv(num_envs=64, threads=8)._rollout.nthread == 4


def test_an_environment_does_not_depend_on_the_others() -> None:
    plan = actions(80, 33)
    many = trajectory(SparseHalfCheetahVectorEnv(num_envs=33), plan, seed=0)
    few = trajectory(SparseHalfCheetahVectorEnv(num_envs=2), plan[:, :2], seed=0)
    np.testing.assert_array_equal(many[:, :2], few)


def test_a_single_environment_equals_the_first_of_a_vector() -> None:
    env, many = SparseHalfCheetahEnv(), SparseHalfCheetahVectorEnv(num_envs=10)
    single = TimeLimit(env, 500)
    obs, _ = single.reset(seed=11)
    np.testing.assert_array_equal(obs, many.reset(seed=11)[0][0])
    for t, action in enumerate(actions(520, 10)):
        obs, reward, terminated, truncated, info = single.step(action[0])
        assert info == {}
        assert (terminated, truncated) == (False, t == 499)
        batch, rewards, _, _, infos = many.step(action)
        assert reward == rewards[0]
        if truncated:
            np.testing.assert_array_equal(obs, infos["final_obs"][0])
            obs, _ = single.reset()
        np.testing.assert_array_equal(obs, batch[0])
    assert env.torso_x == many.torso_x[0]


def test_registered_environments_end_once_at_500() -> None:
    env = gymnasium.make("emi/SparseHalfCheetah-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(6, np.float32))[3] for _ in range(500)]
    assert ends == [False] * 499 + [True]
    many = gymnasium.make_vec("emi/SparseHalfCheetah-v0", num_envs=3)
    assert isinstance(many, SparseHalfCheetahVectorEnv)
    assert many.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert many.num_envs == 3
    many.reset(seed=0)
    ends = [many.step(np.zeros((3, 6)))[3].all() for _ in range(500)]
    assert ends == [False] * 499 + [True]


@pytest.mark.parametrize("size", [1.5, 1e3, 1e12, np.inf])
def test_actions_are_clipped(size: float) -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=2)
    signs = np.sign(actions(1, 2)[0])
    outcomes = []
    for scale in (1.0, size, 0.99):
        env.reset(seed=0)
        outcomes.append(env.step(scale * signs)[0])
    np.testing.assert_array_equal(outcomes[1], outcomes[0])
    assert not np.array_equal(outcomes[2], outcomes[0])


def test_wrong_actions_are_refused() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.zeros((2, 6)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="got NaN"):
        env.step(np.full((2, 6), np.nan))
    with pytest.raises(ValueError, match=r"shape \(2, 6\), got \(6,\)"):
        env.step(np.zeros(6))
    with pytest.raises(ValueError, match=r"reset_mask needs one boolean per environment \(2\)"):
        env.reset(options={"reset_mask": np.array([True])})


def test_returned_arrays_are_copies() -> None:
    env = SparseHalfCheetahVectorEnv(num_envs=2)
    kept = [env.reset(seed=0)[0], *env.step(np.zeros((2, 6)))[:4]]
    copies = [array.copy() for array in kept]
    env.step(np.ones((2, 6)))
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    x = env.torso_x
    x += 100
    assert np.abs(env.torso_x).max() < 1


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_diverged_simulation_is_returned_as_it_is(
    poison: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs the instability to the working directory
    env = SparseHalfCheetahVectorEnv(num_envs=3)
    env.reset(seed=0)
    env._state[1, 5] = poison
    obs, _, _, _, _ = env.step(np.zeros((3, 6)))
    assert np.isfinite(obs).all(axis=1).tolist() == [True, False, True]


def test_markers_are_at_the_boundary_of_the_reward() -> None:
    nearest = [abs(marker.centre[0]) - marker.half_size[0] for marker in REWARD_MARKERS]
    assert nearest == pytest.approx([4.98, 5.0, 4.98, 5.0])  # a gate of 4 cm, ground behind it
    assert [np.sign(marker.centre[0]) for marker in REWARD_MARKERS] == [-1, -1, 1, 1]


def test_the_frame_shows_the_boundary_of_the_reward() -> None:
    try:
        rendering_backend()
    except RuntimeError as error:
        pytest.skip(str(error))
    with pytest.raises(ValueError, match="render_mode"):
        SparseHalfCheetahEnv(render_mode="human")
    env = SparseHalfCheetahEnv(render_mode="rgb_array")
    env.reset(seed=0)

    frame = env.render()
    assert frame.shape == (384, 640, 3)
    assert frame.dtype == np.uint8
    assert np.ptp(frame[0]) < 20  # the sky is above
    assert np.ptp(frame[-1]) > 100  # and the chequered floor below

    def green_pixels() -> int:
        frame = env.render()
        red, green, blue = frame.astype(int).transpose(2, 0, 1)
        return int(((green > red + 60) & (green > blue + 60)).sum())

    assert green_pixels() == 0
    env._envs._state[0, 1] = 4.5
    assert green_pixels() > 5000
    env._envs._state[0, 1] = -20.0
    assert green_pixels() > 15000
    env.close()
    env.close()
