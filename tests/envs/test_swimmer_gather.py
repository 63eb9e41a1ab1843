"""SwimmerGather: observations, rewards, objects, ends, determinism and rendering."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

import emi.envs  # noqa: F401 (registers emi/SwimmerGather-v0)
from emi.envs.rendering import rendering_backend
from emi.envs.swimmer_gather import (
    WALLS,
    SwimmerGatherEnv,
    SwimmerGatherVectorEnv,
    centre_of_mass,
    sensor_readings,
    within_reach,
)

Points = Sequence[Sequence[float]]


def actions(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 2))
    return draw.astype(np.float32)


def trajectory(env: SwimmerGatherVectorEnv, plan: np.ndarray, seed: int) -> np.ndarray:
    """Observations [time + 1, env, 33]."""
    first, _ = env.reset(seed=seed)
    return np.stack([first, *(env.step(action)[0] for action in plan)])


def fill(objects: np.ndarray, left: np.ndarray, apples: Points, bombs: Points) -> None:
    """Write only these objects to the positions [16, 2] and the mask [16] of one environment."""
    left[:] = False
    for first, points in ((0, apples), (8, bombs)):
        for slot, point in enumerate(points, start=first):
            objects[slot], left[slot] = point, True


def place(env: SwimmerGatherVectorEnv, index: int, apples: Points, bombs: Points) -> None:
    """Give one environment only these objects."""
    fill(env._objects[index], env._left[index], apples, bombs)


def see(apples: Points, bombs: Points = (), heading: float = 0.0) -> tuple[list, list]:
    """Readings of apples and of bombs as seen from the origin."""
    objects, left = np.zeros((1, 16, 2)), np.zeros((1, 16), dtype=np.bool_)
    fill(objects[0], left[0], apples, bombs)
    readings = sensor_readings(objects, left, np.zeros((1, 2)), np.array([heading]))
    assert readings.shape == (1, 20)
    return readings[0, :10].tolist(), readings[0, 10:].tolist()


def at(degrees: float, distance: float = 3.0) -> list[float]:
    return [
        distance * math.cos(math.radians(degrees)),
        distance * math.sin(math.radians(degrees)),
    ]


def elapsed(env: SwimmerGatherVectorEnv) -> list[int]:
    """Steps since the start of each episode of at most 500."""
    return (500 - (env._deadlines - env._clock)).tolist()


def let_pass(env: SwimmerGatherVectorEnv, steps: int | Sequence[int]) -> None:
    """Set the steps since the start of each episode of at most 500."""
    env._deadlines[:] = env._clock + 500 - np.array(steps)
    env._next_deadline = int(env._deadlines.min())


def landing(env: SwimmerGatherVectorEnv, action: np.ndarray) -> np.ndarray:
    """The centres of mass [n, 2] after the action; the environment is not changed."""
    state, left, com = env._state.copy(), env._left.copy(), env._com.copy()
    env._left[:] = False
    env.advance(action)
    landed = env._com.copy()
    env._state[:], env._left[:], env._com[:] = state, left, com
    return landed


# The model.


def test_the_numbers_of_the_model() -> None:
    model = SwimmerGatherVectorEnv().model
    assert (model.opt.timestep, model.opt.density, model.opt.viscosity) == (0.001, 4000.0, 0.1)
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    for off in ("WARMSTART", "CONTACT", "AUTORESET"):
        assert model.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{off}")
    capsule = 1000 * math.pi * (0.1**2 * 1 + 4 / 3 * 0.1**3)  # kg
    np.testing.assert_allclose(model.body_mass, [0, capsule, capsule, capsule], rtol=1e-12)
    np.testing.assert_array_equal(model.body_pos, [[0] * 3, [0] * 3, [0.5, 0, 0], [-1, 0, 0]])
    np.testing.assert_allclose(model.body_ipos[1:, 0], [1.0, -0.5, -0.5], atol=1e-12)
    links = [model.geom(name) for name in ("torso", "mid", "back")]
    assert [link.size[:2].tolist() for link in links] == [[0.1, 0.5]] * 3
    slide, hinge = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
    assert model.jnt_type.tolist() == [slide, slide, hinge, hinge, hinge]
    np.testing.assert_array_equal(model.jnt_axis[:3], np.eye(3))
    np.testing.assert_array_equal(model.jnt_axis[3:], [[0, 0, 1]] * 2)
    assert not model.jnt_pos.any()
    assert model.jnt_limited.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(model.jnt_range[3:], np.radians([[-100, 100]] * 2))
    assert not np.concatenate([model.dof_damping, model.dof_armature, model.jnt_stiffness]).any()


def test_full_action_is_a_torque_of_50() -> None:
    env = SwimmerGatherVectorEnv()
    env.reset(seed=0)
    simulation = env.simulation(0)
    simulation.ctrl = env._controls[0, 0] = [1.0, -0.5]
    mujoco.mj_forward(env.model, simulation)
    np.testing.assert_allclose(simulation.qfrc_actuator, [0, 0, 0, 50, -25])


def test_one_action_is_held_for_50_simulation_steps() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    env.reset(seed=3)
    for action in actions(6, 2):
        expected = [env.simulation(i) for i in range(2)]
        env.step(action)
        for i, simulation in enumerate(expected):
            simulation.ctrl = action[i]
            for _ in range(50):
                mujoco.mj_step(env.model, simulation)
            assert simulation.time == pytest.approx(0.05)
            np.testing.assert_array_equal(env._state[i, 1:6], simulation.qpos)
            np.testing.assert_array_equal(env._state[i, 6:11], simulation.qvel)


def test_nothing_collides() -> None:
    env = SwimmerGatherVectorEnv()
    env.reset(seed=0)
    env._state[0, 1:6] = [6.5, 0, 0, 1.7, 1.7]  # folded up, on a wall
    assert env.simulation(0).ncon == 0


def test_observation_layout() -> None:
    env = SwimmerGatherVectorEnv(num_envs=3)
    obs = trajectory(env, actions(10, 3), seed=1)[-1]
    assert obs.shape == (3, 33)
    assert obs.dtype == np.float32
    for i in range(3):
        simulation = env.simulation(i)
        np.testing.assert_array_equal(obs[i, 0:5], simulation.qpos.astype(np.float32))
        np.testing.assert_array_equal(obs[i, 5:10], simulation.qvel.astype(np.float32))
        np.testing.assert_allclose(obs[i, 10:13], simulation.subtree_com[1], atol=1e-6)
        assert obs[i, 12] == 0.0
    readings = sensor_readings(env._objects, env._left, env._com, env._state[:, 3])
    np.testing.assert_array_equal(obs[:, 13:], readings.astype(np.float32))
    space = env.single_observation_space
    assert isinstance(space, spaces.Box)
    assert space.low.tolist() == [-1e10] * 13 + [0] * 20
    assert space.high.tolist() == [1e10] * 13 + [1] * 20
    assert env.observation_space.contains(obs)


def test_centre_of_mass_is_mujocos() -> None:
    env = SwimmerGatherVectorEnv(num_envs=50)
    env._state[:, 1:6] = np.random.default_rng(2).uniform(-4, 4, (50, 5))
    expected = np.stack([env.simulation(i).subtree_com[1] for i in range(50)])
    np.testing.assert_allclose(centre_of_mass(env._state), expected[:, :2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(expected[:, 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(centre_of_mass(np.zeros((1, 11))), [[0, 0]], atol=1e-15)


def test_reset_and_step_show_the_centre_of_mass_of_their_own_state() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs[:, 10:12], centre_of_mass(env._state).astype(np.float32))
    env._state[:, 6] = 3.0  # m/s: the step itself carries the animal some centimetres
    obs, _, _, _, _ = env.step(np.zeros((2, 2)))
    np.testing.assert_array_equal(obs[:, 10:12], centre_of_mass(env._state).astype(np.float32))


# Objects: positions, sensor readings, catching and rewards.


def test_object_placement() -> None:
    env = SwimmerGatherVectorEnv(num_envs=700, threads=1)
    env.reset(seed=0)
    objects = env._objects.astype(int)
    np.testing.assert_array_equal(env._objects, objects)
    assert env._left.all()
    assert set(objects.ravel().tolist()) == {-6, -4, -2, 0, 2, 4}
    cells = objects[..., 0] * 100 + objects[..., 1]
    assert all(len(set(row)) == 16 for row in cells.tolist())
    # Every slot takes each of the 35 cells except the origin equally often: 700 / 35 times.
    values, counts = np.unique(cells, return_counts=True)
    assert len(values) == 35
    assert 0 not in values
    expected = 700 * 16 / 35
    assert np.abs(counts - expected).max() < 4.5 * math.sqrt(expected)
    for slot in (0, 7, 8, 15):
        counts = np.unique(cells[:, slot], return_counts=True)[1]
        assert len(counts) == 35
        assert np.square(counts - 20).sum() / 20 < 75  # χ²₃₄: p < 10⁻⁴ beyond


def test_objects_are_drawn_again_at_every_reset() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2, max_episode_steps=1)
    env.reset(seed=0)
    layouts = [env._objects.copy()]
    env.step(np.zeros((2, 2)))  # ends
    layouts.append(env._objects.copy())
    env.reset()
    layouts.append(env._objects.copy())
    drawn = {layout.tobytes() for pair in layouts for layout in pair}
    assert len(drawn) == 6
    env.reset(seed=0)
    np.testing.assert_array_equal(env._objects, layouts[0])


@pytest.mark.parametrize("slot", range(10))
def test_bins_run_from_right_to_left(slot: int) -> None:
    expected = [0.0] * 10
    expected[slot] = 0.5
    for offset in (-8.9, 0.0, 8.9):
        direction = -81 + 18 * slot + offset
        apples, bombs = see([at(direction)])
        assert apples == pytest.approx(expected)
        assert bombs == [0.0] * 10
        apples, bombs = see([], [at(direction)])
        assert apples == [0.0] * 10
        assert bombs == pytest.approx(expected)


def test_edges_of_the_view() -> None:
    def seen_in(point: Sequence[float], heading: float = 0.0) -> list[int]:
        return np.flatnonzero(see([point], heading=heading)[0]).tolist()

    assert seen_in([3.0, 0.0]) == [5]
    assert seen_in([0.0, -3.0]) == [0]  # exactly to the right
    assert seen_in([0.0, 3.0]) == [9]  # exactly to the left
    assert seen_in(at(-90.1)) == []
    assert seen_in(at(90.1)) == []
    for behind in ([-3.0, 0.0], [-3.0, -0.0], at(135), at(-135)):
        assert seen_in(behind) == []
    assert seen_in([-3.0, 0.0], heading=math.pi) == [5]
    assert seen_in([-3.0, -1e-9], heading=math.pi - 1e-6) == [5]


@pytest.mark.parametrize("turn", [0.3, -2.0, math.pi, 7.0, -40.0])
def test_the_view_turns_with_the_heading(turn: float) -> None:
    draw = np.random.default_rng(4)
    bearings, distances = draw.uniform(-2, 2, 16), draw.uniform(1, 7, 16)
    ahead = np.stack([np.cos(bearings), np.sin(bearings)], axis=1) * distances[:, None]
    angles = bearings + turn
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1) * distances[:, None]
    expected = see(ahead[:8].tolist(), ahead[8:].tolist())
    assert np.count_nonzero(expected) >= 5
    found = see(turned[:8].tolist(), turned[8:].tolist(), heading=turn)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_nearest_of_a_kind_hides_the_others() -> None:
    for order in ([2.4, 4.8, 1.2], [1.2, 2.4, 4.8], [4.8, 2.4, 1.2]):
        points = [at(5 + i, distance) for i, distance in enumerate(order)]
        apples, bombs = see(points, [at(6, 3.6)])
        assert apples[5] == pytest.approx(0.8)
        assert bombs[5] == pytest.approx(0.4)  # an apple in front does not hide a bomb
        assert np.count_nonzero(apples + bombs) == 2


def test_sensor_range() -> None:
    for distance, expected in ((1.0, 5 / 6), (5.9, 1 - 5.9 / 6), (6.0, 0), (6.1, 0), (9.0, 0)):
        assert see([at(3, distance)])[0][5] == pytest.approx(expected, abs=1e-12)


def test_readings_are_taken_from_the_centre_of_mass() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    env.reset(seed=0)
    for i in range(2):
        place(env, i, [(5.0 + i, 2.0)], [])
    com, heading = np.array([[2.0, 2.0], [4.0, 2.0]]), np.array([0.0, math.pi / 2 - 0.1])
    readings = sensor_readings(env._objects, env._left, com, heading)
    assert [np.flatnonzero(row).tolist() for row in readings] == [[5], [0]]
    assert readings.max(axis=1).tolist() == pytest.approx([1 / 2, 2 / 3])


def test_reach_is_strictly_nearer_than_one() -> None:
    com = np.array([[2.0, -3.0]])
    objects = com[:, None] + [[[0, 0], [0.999, 0], [1, 0], [0, -1], [0, 1.001], [0.8, 0.7]]]
    assert within_reach(objects, com).tolist() == [[True, True, False, False, False, False]]


def test_catching_belongs_to_the_state_after_the_step() -> None:
    env = SwimmerGatherVectorEnv()
    action = actions(1, 1)[0]
    for distance, caught in ((0.999, True), (1.001, False)):
        for direction in (0, 180):
            env.reset(seed=0)
            env._state[0, 6] = 4.0
            target = landing(env, action)[0] + at(direction, distance)
            place(env, 0, [target], [(-6, -6)])
            _, reward, _, _, info = env.step(action)
            assert reward.tolist() == [float(caught)]
            assert info["apples"].tolist() == [caught]
            assert env._left[0, 0] == (not caught)


def test_the_rewards() -> None:
    env = SwimmerGatherVectorEnv(num_envs=5)
    env.reset(seed=0)
    near, far = [(0.3, 0.0), (0.0, 0.4), (-0.5, 0.0)], [(4.0, 4.0), (-4.0, 4.0)]
    place(env, 0, near[:1], far)
    place(env, 1, far, near[:1])
    place(env, 2, near + far, near[:2])
    place(env, 3, far[:1] + near[:1] + far[1:], near)
    place(env, 4, far, far)
    _, reward, terminated, truncated, info = env.step(np.zeros((5, 2)))
    assert reward.tolist() == [1, -1, 1, -2, 0]
    assert reward.dtype == np.float64
    assert info["apples"].tolist() == [1, 0, 3, 1, 0]
    assert info["bombs"].tolist() == [0, 1, 2, 3, 0]
    assert not terminated.any()
    assert not truncated.any()
    assert env._left.sum(axis=1).tolist() == [2, 2, 2, 2, 4]
    assert np.flatnonzero(env._left[3]).tolist() == [0, 2]
    _, reward, _, _, info = env.step(np.zeros((5, 2)))  # an object is rewarded once
    assert reward.tolist() == [0] * 5
    assert not info["apples"].any()
    assert not info["bombs"].any()


def test_a_caught_object_gives_no_reading() -> None:
    env = SwimmerGatherVectorEnv()
    env.reset(seed=0)
    place(env, 0, [(0.5, 0.1), (0.5, 3.0)], [])
    assert env._observe()[0, 13:23].max() > 0.9
    obs, reward, _, _, _ = env.step(np.zeros((1, 2)))
    assert reward.tolist() == [1.0]
    assert 0.4 < obs[0, 13:].max() < 0.6
    assert np.count_nonzero(obs[0, 13:]) == 1


# Episodes.


def test_check_env_finds_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(SwimmerGatherEnv(), skip_render_check=True)


def test_reset_noise() -> None:
    env = SwimmerGatherVectorEnv(num_envs=1500, threads=1)
    env.reset(seed=0)
    assert not env._state[:, 0].any()
    position, velocity = env._state[:, 1:6], env._state[:, 6:11]
    assert position.std() == pytest.approx(0.01, rel=0.04)
    assert velocity.std() == pytest.approx(0.1, rel=0.04)
    assert abs(position.mean()) < 0.0005
    assert abs(velocity.mean()) < 0.005
    correlation = np.corrcoef(env._state[:, 1:].T) - np.eye(10)
    assert np.abs(correlation).max() < 0.12


def test_the_last_object_ends_the_episode() -> None:
    env = SwimmerGatherVectorEnv(num_envs=3)
    env.reset(seed=0)
    place(env, 0, [], [(0.2, 0.0)])
    place(env, 1, [(0.2, 0.0)], [(4, 0)])
    let_pass(env, [499, 3, 4])  # the last object terminates even at the time limit
    before = env._objects.copy()
    obs, reward, terminated, truncated, info = env.step(np.zeros((3, 2)))
    assert terminated.tolist() == [True, False, False]
    assert truncated.tolist() == [False, False, False]
    assert reward[:2].tolist() == [-1, 1]
    assert info["_final_obs"].tolist() == [True, False, False]
    assert info["_final_info"].tolist() == [True, False, False]
    assert info["final_info"]["bombs"][0] == info["bombs"][0] == 1
    assert info["final_info"]["apples"][0] == info["apples"][0] == 0
    assert [last is None for last in info["final_obs"]] == [False, True, True]
    assert not info["final_obs"][0][13:].any()  # no object is left
    assert obs[0, 13:].any()
    np.testing.assert_array_equal(obs[0, 0:5], env._state[0, 1:6].astype(np.float32))
    assert not np.array_equal(obs[0, :13], info["final_obs"][0][:13])
    assert env._left.sum(axis=1).tolist() == [16, 1, 16]
    assert elapsed(env) == [0, 4, 5]
    assert not np.array_equal(env._objects[0], before[0])
    np.testing.assert_array_equal(env._objects[1:], before[1:])


def test_horizon_is_500_and_the_last_observation_is_kept() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    twin = SwimmerGatherVectorEnv(num_envs=2, max_episode_steps=10**6)
    env.reset(seed=5)
    twin.reset(seed=5)
    let_pass(env, 480)
    plan = actions(21, 2)
    for action in plan[:19]:
        _, _, terminated, truncated, info = env.step(action)
        twin.step(action)
        assert not (terminated | truncated).any()
        assert set(info) == {"apples", "bombs"}
    obs, _, terminated, truncated, info = env.step(plan[19])
    last, _, _, never, _ = twin.step(plan[19])
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [True, True]
    assert never.tolist() == [False, False]
    assert info["_final_obs"].tolist() == [True, True]
    np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
    fresh, _ = twin.reset()
    np.testing.assert_array_equal(obs, fresh)
    assert np.abs(obs[:, :5]).max() < 0.06  # at rest except for the reset noise
    assert not env._state[:, 0].any()  # the time of the simulation
    following, _, _, truncated, info = env.step(plan[20])
    np.testing.assert_array_equal(following, twin.step(plan[20])[0])
    assert not truncated.any()
    assert set(info) == {"apples", "bombs"}


def test_every_environment_has_its_own_time_limit() -> None:
    env = SwimmerGatherVectorEnv(num_envs=3, max_episode_steps=8)
    before, _ = env.reset(seed=0)
    ends = []
    for t, action in enumerate(actions(16, 3)):
        if t == 3:
            after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
            np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
            assert not np.array_equal(after[1], before[1])
        before, _, _, truncated, info = env.step(action)
        ends += [(t, int(i)) for i in np.flatnonzero(truncated)]
        if truncated.any():
            np.testing.assert_array_equal(info["_final_obs"], truncated)
            present = [last is not None for last in info["final_obs"]]
            assert present == truncated.tolist()
    assert ends == [(7, 0), (7, 2), (10, 1), (15, 0), (15, 2)]


def test_the_seed_decides_everything() -> None:
    plan = actions(20, 4)
    env = SwimmerGatherVectorEnv(num_envs=4, max_episode_steps=8)
    first = trajectory(env, plan, seed=7)
    env.step(actions(1, 4, seed=9)[0])  # steps before the reset have no effect
    np.testing.assert_array_equal(trajectory(env, plan, seed=7), first)
    again = SwimmerGatherVectorEnv(num_envs=4, max_episode_steps=8)
    np.testing.assert_array_equal(trajectory(again, plan, seed=7), first)
    assert not np.array_equal(trajectory(env, plan, seed=8), first)
    assert len(np.unique(first[0], axis=0)) == 4  # every environment has its own stream


def test_threads_do_not_matter() -> None:
    plan = actions(30, 7)
    inline = SwimmerGatherVectorEnv(num_envs=7, threads=1, max_episode_steps=20)
    pooled = SwimmerGatherVectorEnv(num_envs=7, threads=3, max_episode_steps=20)
    assert inline._rollout.nthread == 0
    assert pooled._rollout.nthread == 3
    expected = trajectory(inline, plan, seed=0)
    np.testing.assert_array_equal(trajectory(pooled, plan, seed=0), expected)
    pooled.close()
    pooled.close()


def test_no_more_threads_than_environments() -> None:
    assert SwimmerGatherVectorEnv(num_envs=1, threads=8)._rollout.nthread == 0
    assert SwimmerGatherVectorEnv(num_envs=3, threads=8)._rollout.nthread == 3
    assert SwimmerGatherVectorEnv(num_envs=64, threads=8)._rollout.nthread == 8


def test_an_environment_does_not_depend_on_the_others() -> None:
    plan = actions(30, 17)
    many = trajectory(SwimmerGatherVectorEnv(num_envs=17, max_episode_steps=20), plan, seed=0)
    few = SwimmerGatherVectorEnv(num_envs=2, max_episode_steps=20)
    np.testing.assert_array_equal(many[:, :2], trajectory(few, plan[:, :2], seed=0))


def test_joint_limits_leave_no_trace_in_scratch_memory() -> None:
    """One environment pushes against its joint limits, where a solver could start warm."""
    both, alone = SwimmerGatherVectorEnv(num_envs=2, threads=1), SwimmerGatherVectorEnv()
    both.reset(seed=0)
    alone.reset(seed=0)
    push = np.array([[1.0, 1.0], [-1.0, -1.0]])
    for _ in range(40):
        both.step(push)
        alone.step(push[:1])
    assert np.abs(both._state[:, 4:6]).max(axis=1) == pytest.approx(np.radians(100), abs=0.05)
    np.testing.assert_array_equal(both._state[0], alone._state[0])


def test_a_single_environment_equals_the_first_of_a_vector() -> None:
    own = SwimmerGatherEnv()
    single = TimeLimit(own, 12)
    many = SwimmerGatherVectorEnv(num_envs=5, max_episode_steps=12)
    obs, _ = single.reset(seed=11)
    np.testing.assert_array_equal(obs, many.reset(seed=11)[0][0])
    ends = []
    for t, action in enumerate(actions(40, 5)):
        for played in (own._envs, many):
            if t == 2:
                place(played, 0, [(0.1, 0)], [(0.2, 0), (0.4, 0), (4, 4)])
            if t == 5:
                place(played, 0, [], [(0.1, 0)])
        obs, reward, terminated, truncated, info = single.step(action[0])
        batch, rewards, terminations, truncations, infos = many.step(action)
        assert reward == rewards[0]
        assert (terminated, truncated) == (terminations[0], truncations[0])
        assert info == {"apples": infos["apples"][0], "bombs": infos["bombs"][0]}
        assert {type(value) for value in info.values()} == {int}
        if t == 2:
            assert (reward, info) == (-1.0, {"apples": 1, "bombs": 2})
        if terminated or truncated:
            ends.append((t, terminated, truncated))
            np.testing.assert_array_equal(obs, infos["final_obs"][0])
            obs, _ = single.reset()
        np.testing.assert_array_equal(obs, batch[0])
    assert ends == [(5, True, False), (17, False, True), (29, False, True)]


def test_a_single_environment_ends_with_the_last_object() -> None:
    env = SwimmerGatherEnv()
    env.reset(seed=0)
    place(env._envs, 0, [], [(0, 0)])
    assert env.step(np.zeros(2))[1:4] == (-1.0, True, False)


def test_registered_environments_last_500_steps() -> None:
    env = gymnasium.make("emi/SwimmerGather-v0")
    assert isinstance(env.unwrapped, SwimmerGatherEnv)
    env.reset(seed=0)
    env.unwrapped._envs._left[:, 1:] = False  # one apple, far away
    env.unwrapped._envs._objects[:] = -6.0
    assert [env.step(np.zeros(2, np.float32))[3] for _ in range(500)] == [False] * 499 + [True]
    many = gymnasium.make_vec("emi/SwimmerGather-v0", num_envs=3)
    assert isinstance(many, SwimmerGatherVectorEnv)
    assert many.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert many.num_envs == 3
    many.reset(seed=0)
    let_pass(many, 498)
    assert [many.step(np.zeros((3, 2)))[3].all() for _ in range(3)] == [False, True, False]


# Input and output.


@pytest.mark.parametrize("size", [1.5, 1e3, 1e12, np.inf])
def test_actions_are_clipped(size: float) -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    signs = np.sign(actions(1, 2)[0])
    outcomes = []
    for scale in (1.0, size, 0.99):
        env.reset(seed=0)
        outcomes.append(env.step(scale * signs)[0])
    np.testing.assert_array_equal(outcomes[1], outcomes[0])
    assert not np.array_equal(outcomes[2], outcomes[0])


def test_wrong_actions_are_refused() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.zeros((2, 2)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="got NaN"):
        env.step(np.array([[0.0, 0.0], [0.0, np.nan]]))
    with pytest.raises(ValueError, match=r"shape \(2, 2\), got \(2,\)"):
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"reset_mask needs one boolean per environment \(2\)"):
        env.reset(options={"reset_mask": np.array([True])})


def test_returned_arrays_are_copies() -> None:
    env = SwimmerGatherVectorEnv(num_envs=2, max_episode_steps=2)
    kept: list[np.ndarray] = [env.reset(seed=0)[0]]
    for _ in range(2):
        obs, reward, terminated, truncated, info = env.step(np.zeros((2, 2)))
        kept += [obs, reward, terminated, truncated, info["apples"], info["bombs"]]
    kept += [info["_final_obs"], *info["final_obs"], *info["final_info"].values()]
    copies = [array.copy() for array in kept]
    for i in range(2):
        place(env, i, [(0, 0)], [(0.1, 0)])
    env.step(np.ones((2, 2)))
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e200])
def test_a_diverged_simulation_is_returned_as_it_is(
    poison: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs the instability to the working directory
    env = SwimmerGatherVectorEnv(num_envs=3)
    env.reset(seed=0)
    env._state[1, 1] = poison
    obs, reward, _, _, _ = env.step(np.zeros((3, 2)))
    assert np.isfinite(obs).all(axis=1).tolist() == [True, False, True]
    assert not reward.any()


# Rendering.


def test_walls_mark_the_arena() -> None:
    inner, outer = set(), set()
    for wall in WALLS:
        across = 0 if wall.centre[0] else 1
        inner.add(abs(wall.centre[across]) - wall.half_size[across])
        outer.add(wall.half_size[1 - across])
    assert (inner, outer) == ({6.5}, {7.5})
    assert {(np.sign(wall.centre[0]), np.sign(wall.centre[1])) for wall in WALLS} == {
        (-1, 0),
        (1, 0),
        (0, -1),
        (0, 1),
    }


def test_frame_shows_the_objects_where_they_are() -> None:
    try:
        rendering_backend()
    except RuntimeError as error:
        pytest.skip(str(error))
    with pytest.raises(ValueError, match="render_mode"):
        SwimmerGatherEnv(render_mode="human")
    assert SwimmerGatherEnv().render() is None
    env = SwimmerGatherEnv(render_mode="rgb_array")
    env.reset(seed=0)
    place(env._envs, 0, [(-6, -6)], [(4, 4)])

    def blobs() -> list[tuple[int, float, float]]:
        """Area in pixels and centre (x, y) in metres of what is green, red and yellow."""
        frame = env.render()
        assert frame is not None
        assert frame.shape == (480, 480, 3)
        assert frame.dtype == np.uint8
        red, green, blue = frame.astype(float).transpose(2, 0, 1)
        metre = 240 / (18.5 * math.tan(math.radians(22.5)))  # in pixels, on the ground
        found = []
        for shown in (
            (green > red + 80) & (green > blue + 80),
            (red > green + 80) & (red > blue + 80) & (green < red / 2),
            (red > blue + 60) & (green > 0.8 * red),
        ):
            rows, columns = np.nonzero(shown)
            area = rows.size
            x, y = (columns.sum() - 239.5 * area) / metre, (239.5 * area - rows.sum()) / metre
            found.append((area, x / max(area, 1), y / max(area, 1)))
        return found

    apple, bomb, torso = blobs()
    assert min(apple[0], bomb[0]) > 150
    assert apple[1:] == pytest.approx((-6, -6), abs=0.15)
    assert bomb[1:] == pytest.approx((4, 4), abs=0.15)
    assert torso[1:] == pytest.approx((1, 0), abs=0.3)  # the torso is the yellow link
    env._envs._left[:] = False
    assert [area for area, _, _ in blobs()[:2]] == [0, 0]
    env._envs._state[0, 1:6] = [2, 3, math.pi / 2, 0, 0]
    assert blobs()[2][1:] == pytest.approx((2, 4), abs=0.3)
    env.close()
    env.close()
