"""BoxImage: dynamics, starts, images, infos and determinism."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import emi.envs  # noqa: F401 (registers emi/BoxImage-v0)
from emi.envs.box_image import (
    DOOR,
    KEEP_OFF,
    BoxImageEnv,
    BoxImageVectorEnv,
    draw_discs,
    draw_start,
    draw_wall,
)

CORNERS = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])


def actions(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 2))
    return draw.astype(np.float32)


def positions(count: int, seed: int = 0) -> np.ndarray:
    """Points of the whole box [count, 2], its corners first."""
    inside = np.random.default_rng(seed).uniform(0, 100, (count - 4, 2))
    return np.concatenate([CORNERS, inside])


def trajectory(
    env: BoxImageVectorEnv, plan: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Observations [time + 1, env, 1, 52, 52] and positions [time + 1, env, 2]."""
    first, info = env.reset(seed=seed)
    obs, where = [first], [info["position"]]
    for action in plan:
        seen, _, _, _, info = env.step(action)
        obs.append(seen)
        where.append(info["position"])
    return np.stack(obs), np.stack(where)


def centre_of_brightness(images: np.ndarray) -> np.ndarray:
    """(column, row) of the centre of each image [n, 2], counted between pixel centres."""
    light = images[:, 0].astype(np.float64)
    total = light.sum(axis=(1, 2))
    column = (light.sum(axis=1) * np.arange(52)).sum(axis=1) / total
    row = (light.sum(axis=2) * np.arange(52)).sum(axis=1) / total
    return np.stack([column, row], axis=1)


def assert_same(left: Any, right: Any) -> None:
    """Equal nested dictionaries of arrays, with the same keys and types."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key, value in left.items():
            assert_same(value, right[key])
    elif isinstance(left, np.ndarray) and left.dtype == object:
        assert left.shape == right.shape
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif left is not None:
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_check_env_finds_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(BoxImageEnv(render_mode="rgb_array"), skip_render_check=True)
        check_env(gymnasium.make("emi/BoxImage-v0", render_mode="rgb_array").unwrapped)


def test_spaces() -> None:
    env = BoxImageVectorEnv(num_envs=3)
    assert env.single_observation_space == gymnasium.spaces.Box(0, 255, (1, 52, 52), np.uint8)
    assert env.single_action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    assert env.step(env.action_space.sample())[0] in env.observation_space


def test_an_action_is_added_and_the_walls_limit_it() -> None:
    env = BoxImageVectorEnv(num_envs=4)
    env.reset(seed=0)
    env._position[:] = [[50.0, 60.0], [0.25, 99.5], [0.0, 100.0], [80.0, 0.75]]
    step = np.array([[0.5, -0.25], [-0.5, 1.0], [-1.0, 1.0], [1.0, -0.5]])
    info = env.step(step)[4]
    expected = [[50.5, 59.75], [0.0, 100.0], [0.0, 100.0], [81.0, 0.25]]
    np.testing.assert_array_equal(info["position"], expected)
    info = env.step(-step)[4]  # a wall keeps nothing of the push against it
    expected = [[50.0, 60.0], [0.5, 99.0], [1.0, 99.0], [80.0, 0.75]]
    np.testing.assert_array_equal(info["position"], expected)


@pytest.mark.parametrize("size", [1.5, 1e12, np.inf])
def test_actions_are_clipped(size: float) -> None:
    env = BoxImageVectorEnv(num_envs=1)
    env.reset(seed=0)
    env._position[:] = [[50.0, 60.0]]
    env.step(np.array([[size, -size]]))
    np.testing.assert_array_equal(env.position, [[51.0, 59.0]])


def test_starts_are_uniform_beyond_75() -> None:
    stream = np.random.default_rng(0)
    starts = np.stack([draw_start(stream) for _ in range(6000)])
    assert 0 <= starts.min() < 0.1
    assert 99.9 < starts.max() <= 100
    distance = np.hypot(*starts.T)
    assert 75 <= distance.min() < 75.1
    # Counts in a grid of 5 × 5 against the areas that remain of its cells.
    middles = np.arange(0.05, 100, 0.1)
    allowed = np.hypot(middles[:, None], middles) >= 75
    area = allowed.reshape(5, 200, 5, 200).sum(axis=(1, 3))
    assert area.sum() * 0.01 == pytest.approx(10_000 - np.pi * 75**2 / 4, rel=1e-3)
    expected = 6000 * area / area.sum()
    counts, _ = np.histogramdd(starts, bins=5, range=[(0, 100), (0, 100)])
    np.testing.assert_array_equal(counts[area == 0], 0)
    some = area > 0
    assert some.sum() == 17
    # χ² with 16 degrees of freedom: mean 16 and standard deviation 5.7 if the starts are uniform.
    assert ((counts - expected)[some] ** 2 / expected[some]).sum() < 33


def test_every_reset_draws_a_start() -> None:
    env = BoxImageVectorEnv(num_envs=50)
    _, first = env.reset(seed=0)
    _, second = env.reset()
    starts = np.concatenate([first["position"], second["position"]])
    assert np.hypot(*starts.T).min() >= 75
    assert len(np.unique(starts, axis=0)) == 100


def test_the_image_of_the_middle() -> None:
    image = draw_discs(np.array([[50.0, 50.0]]))[0, 0]
    assert image.dtype == np.uint8
    # The centre lies between pixels 25 and 26; the fourth from it is √(3.5² + 0.5²) = 3.536 away.
    assert image[25, 21:31].tolist() == [0, 246, 255, 255, 255, 255, 255, 255, 246, 0]
    # The row 3.5 above the centre: 255 (4.5 − √(3.5² + k²)) for k = 4.5 to 0.5, and −0.5.
    assert image[22, 21:27].tolist() == [0, 0, 51, 176, 246, 246]
    assert not image[:22].any()
    for turned in (image[::-1], image[:, ::-1], image.T):
        np.testing.assert_array_equal(turned, image)


def test_every_pixel_follows_its_distance() -> None:
    where = positions(60)
    row, column = np.indices((52, 52))
    expected = np.empty((60, 1, 52, 52))
    for n, (right, up) in enumerate(where):
        away = np.hypot(column + 0.5 - 4 - 0.44 * right, 47.5 - row - 0.44 * up)
        expected[n, 0] = 255 * np.minimum(np.maximum(4.5 - away, 0), 1)
    # Rounded: half a grey level.
    np.testing.assert_allclose(draw_discs(where), expected, atol=0.5 + 1e-9)


def test_the_centre_of_brightness_is_the_position() -> None:
    where = positions(2000)
    expected = np.stack([3.5 + 0.44 * where[:, 0], 47.5 - 0.44 * where[:, 1]], axis=1)
    np.testing.assert_allclose(centre_of_brightness(draw_discs(where)), expected, atol=0.05)


def test_the_disc_is_whole_everywhere() -> None:
    images = draw_discs(positions(2000))
    area = images.sum(axis=(1, 2, 3)) / 255
    np.testing.assert_allclose(area, np.pi * 4**2, rtol=0.01)
    assert (images.max(axis=(1, 2, 3)) == 255).all()


def test_the_disc_touches_the_walls() -> None:
    left, right = (0, slice(None), 0), (0, slice(None), 51)
    bottom, top = (0, 51), (0, 0)
    for image, touched in zip(
        draw_discs(CORNERS),
        [{"left", "bottom"}, {"right", "bottom"}, {"left", "top"}, {"right", "top"}],
        strict=True,
    ):
        walls = {"left": left, "right": right, "bottom": bottom, "top": top}
        assert {name for name, pixels in walls.items() if image[pixels].max() > 200} == touched


def test_small_steps_change_the_image() -> None:
    where = np.random.default_rng(1).uniform(1, 99, (3000, 2))
    angle = np.random.default_rng(2).uniform(0, 2 * np.pi, 3000)
    before = draw_discs(where)
    step = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    changed = (draw_discs(where + 0.01 * step) != before).any(axis=(1, 2, 3))
    assert changed.all()
    moved = centre_of_brightness(draw_discs(where + step)) - centre_of_brightness(before)
    np.testing.assert_allclose(moved, step * [0.44, -0.44], atol=0.05)


def test_different_positions_have_different_images() -> None:
    images = draw_discs(positions(2000))
    assert len({image.tobytes() for image in images}) == 2000


def test_drawing_does_not_change_the_positions() -> None:
    where = positions(10)
    draw_discs(where)
    np.testing.assert_array_equal(where, positions(10))


def test_the_info_holds_the_position_that_is_drawn() -> None:
    env = BoxImageVectorEnv(num_envs=3)
    seen, where = trajectory(env, actions(30, 3), seed=2)
    assert where.shape == (31, 3, 2)
    assert where.dtype == np.float64
    np.testing.assert_array_equal(draw_discs(where.reshape(93, 2)), seen.reshape(93, 1, 52, 52))
    np.testing.assert_array_equal(env.position, where[-1])
    _, info = env.reset()
    assert info["_position"].tolist() == [True, True, True]


def test_horizon_is_500_and_the_last_observation_is_kept() -> None:
    env = BoxImageVectorEnv(num_envs=2)
    twin = BoxImageVectorEnv(num_envs=2, max_episode_steps=None)
    env.reset(seed=5)
    twin.reset(seed=5)
    plan = actions(501, 2)
    for action in plan[:499]:
        _, reward, terminated, truncated, info = env.step(action)
        twin.step(action)
        assert reward.tolist() == [0.0, 0.0]
        assert not terminated.any()
        assert not truncated.any()
        assert info.keys() == {"position", "_position"}
    obs, reward, terminated, truncated, info = env.step(plan[499])
    last, _, _, never, last_info = twin.step(plan[499])
    assert reward.tolist() == [0.0, 0.0]
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [True, True]
    assert never.tolist() == [False, False]
    assert info["_final_obs"].tolist() == [True, True]
    np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
    np.testing.assert_array_equal(info["final_info"]["position"], last_info["position"])
    fresh, fresh_info = twin.reset()
    np.testing.assert_array_equal(obs, fresh)
    np.testing.assert_array_equal(info["position"], fresh_info["position"])
    following, _, _, truncated, info = env.step(plan[500])
    np.testing.assert_array_equal(following, twin.step(plan[500])[0])
    assert not truncated.any()
    assert info.keys() == {"position", "_position"}


def test_every_environment_has_its_own_time_limit() -> None:
    env = BoxImageVectorEnv(num_envs=3, max_episode_steps=8)
    before, told = env.reset(seed=0)
    ends: list[tuple[int, int]] = []
    for t, action in enumerate(actions(16, 3)):
        if t == 3:
            after, info = env.reset(options={"reset_mask": np.array([False, True, False])})
            np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
            np.testing.assert_array_equal(info["position"][[0, 2]], told["position"][[0, 2]])
            assert not np.array_equal(after[1], before[1])
            told = info
        expected = np.clip(told["position"] + action, 0, 100)
        before, _, _, truncated, told = env.step(action)
        ends += [(t, int(i)) for i in np.flatnonzero(truncated)]
        np.testing.assert_array_equal(told["position"][~truncated], expected[~truncated])
        if truncated.any():
            final = told["final_info"]
            for mask in (told["_final_obs"], told["_final_info"], final["_position"]):
                np.testing.assert_array_equal(mask, truncated)
            np.testing.assert_array_equal(final["position"][truncated], expected[truncated])
            assert not final["position"][~truncated].any()
            for i in range(3):
                if truncated[i]:
                    last = draw_discs(expected[[i]])[0]
                    np.testing.assert_array_equal(told["final_obs"][i], last)
                else:
                    assert told["final_obs"][i] is None
    assert ends == [(7, 0), (7, 2), (10, 1), (15, 0), (15, 2)]


def test_autoreset_follows_gymnasium() -> None:
    """Gymnasium's own vectorisation of the single environment gives the same, also the infos."""
    theirs = SyncVectorEnv(
        [lambda: TimeLimit(BoxImageEnv(), 10)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours = BoxImageVectorEnv(num_envs=1, max_episode_steps=10)
    for left, right in zip(ours.reset(seed=3), theirs.reset(seed=3), strict=True):
        assert_same(left, right)
    for action in actions(25, 1):
        for left, right in zip(ours.step(action), theirs.step(action), strict=True):
            assert_same(left, right)


def test_the_seed_decides_everything() -> None:
    plan = actions(60, 4)
    env = BoxImageVectorEnv(num_envs=4, max_episode_steps=25)
    first, where = trajectory(env, plan, seed=7)
    assert env.np_random_seed == 7  # Gymnasium's own stream follows
    env.step(actions(1, 4, seed=9)[0])  # what happened before the reset leaves no trace
    np.testing.assert_array_equal(trajectory(env, plan, seed=7)[0], first)
    again = BoxImageVectorEnv(num_envs=4, max_episode_steps=25)
    np.testing.assert_array_equal(trajectory(again, plan, seed=7)[1], where)
    assert not np.array_equal(trajectory(env, plan, seed=8)[0], first)
    assert len(np.unique(where[0], axis=0)) == 4  # every environment has its own stream


def test_without_a_seed_starts_differ() -> None:
    _, one = BoxImageVectorEnv(num_envs=2).reset()
    _, other = BoxImageVectorEnv(num_envs=2).reset()
    assert not np.array_equal(one["position"], other["position"])


def test_an_environment_does_not_depend_on_the_others() -> None:
    plan = actions(60, 33)
    many = trajectory(BoxImageVectorEnv(num_envs=33, max_episode_steps=25), plan, seed=0)
    few = trajectory(BoxImageVectorEnv(num_envs=2, max_episode_steps=25), plan[:, :2], seed=0)
    for left, right in zip(many, few, strict=True):
        np.testing.assert_array_equal(left[:, :2], right)


def test_a_single_environment_equals_the_first_of_a_vector() -> None:
    env, many = BoxImageEnv(), BoxImageVectorEnv(num_envs=10)
    single = TimeLimit(env, 500)
    obs, told = single.reset(seed=11)
    batch, infos = many.reset(seed=11)
    np.testing.assert_array_equal(obs, batch[0])
    np.testing.assert_array_equal(told["position"], infos["position"][0])
    for t, action in enumerate(actions(520, 10)):
        obs, reward, terminated, truncated, told = single.step(action[0])
        batch, rewards, _, _, infos = many.step(action)
        assert reward == rewards[0] == 0
        assert (terminated, truncated) == (False, t == 499)
        assert told.keys() == {"position"}
        if truncated:
            np.testing.assert_array_equal(obs, infos["final_obs"][0])
            np.testing.assert_array_equal(told["position"], infos["final_info"]["position"][0])
            obs, told = single.reset()
        np.testing.assert_array_equal(obs, batch[0])
        np.testing.assert_array_equal(told["position"], infos["position"][0])
    np.testing.assert_array_equal(env.position, many.position[0])


def test_registered_environments_end_once_at_500() -> None:
    env = gymnasium.make("emi/BoxImage-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[3] for _ in range(500)]
    assert ends == [False] * 499 + [True]
    many = gymnasium.make_vec("emi/BoxImage-v0", num_envs=3)
    assert isinstance(many, BoxImageVectorEnv)
    assert many.num_envs == 3
    many.reset(seed=0)
    ends = [bool(many.step(np.zeros((3, 2)))[3].all()) for _ in range(500)]
    assert ends == [False] * 499 + [True]


def test_wrong_input_is_refused() -> None:
    env = BoxImageVectorEnv(num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.zeros((2, 2)))
    env.reset(seed=0)
    before = env.position
    with pytest.raises(ValueError, match="got NaN"):
        env.step(np.array([[0.5, 0.5], [0.5, np.nan]]))
    with pytest.raises(ValueError, match=r"shape \(2, 2\), got \(2,\)"):
        env.step(np.ones(2))
    with pytest.raises(ValueError, match=r"reset_mask needs one boolean per environment \(2\)"):
        env.reset(options={"reset_mask": np.array([True])})
    np.testing.assert_array_equal(env.position, before)
    with pytest.raises(ValueError, match="render_mode"):
        BoxImageEnv(render_mode="human")


def test_returned_arrays_are_copies() -> None:
    env = BoxImageVectorEnv(num_envs=2)
    obs, info = env.reset(seed=0)
    moved, *rest, told = env.step(np.zeros((2, 2)))
    kept = [obs, info["position"], moved, *rest, told["position"]]
    copies = [array.copy() for array in kept]
    env.step(np.full((2, 2), -1.0))
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    where = env.position
    told["position"] += 100
    where += 100
    assert env.position.max() <= 100


def test_the_frame_is_the_enlarged_image() -> None:
    env = BoxImageEnv(render_mode="rgb_array")
    env.reset(seed=0)
    obs = env.step(np.array([-0.3, 0.7]))[0]
    frame = env.render()
    assert frame is not None
    assert frame.shape == (416, 416, 3)
    assert frame.dtype == np.uint8
    blocks = frame.reshape(52, 8, 52, 8, 3)
    np.testing.assert_array_equal(
        blocks, np.broadcast_to(obs[0, :, None, :, None, None], blocks.shape)
    )
    assert BoxImageEnv().render() is None


class TestWall:
    """BoxImageWall: the wall at x₀ = 50 keeps the centre 11.36 away, except in the door."""

    def test_the_wall_stops_the_disc_and_lets_it_slide(self) -> None:
        env = BoxImageVectorEnv(num_envs=3, wall=True)
        env.reset(seed=0)
        near = KEEP_OFF + 0.25
        env.place(np.array([[50 - near, 60.0], [50 + near, 13.0], [50 - near, 90.0]]))
        env.step(np.array([[1.0, 0.5], [-1.0, -0.5], [-1.0, 0.0]]))
        edge = 50 - KEEP_OFF
        expected = [[edge, 60.5], [100 - edge, 12.5], [49 - near, 90.0]]
        np.testing.assert_allclose(env.position, expected)

    def test_the_disc_passes_the_door_within_its_frame(self) -> None:
        env = BoxImageVectorEnv(num_envs=2, wall=True)
        env.reset(seed=0)
        env.place(np.array([[50 - KEEP_OFF, 20.0], [50 - KEEP_OFF, 25.5]]))
        for _ in range(23):
            env.step(np.array([[1.0, 0.0], [1.0, 1.0]]))
        np.testing.assert_allclose(env.position[:, 0], 73 - KEEP_OFF)
        assert env.position[0, 1] == 20.0
        assert DOOR[1] < env.position[1, 1] <= DOOR[1] + 1  # free again at the last step only

    def test_no_walk_enters_the_wall(self) -> None:
        env = BoxImageVectorEnv(num_envs=20, wall=True)
        env.reset(seed=0)
        env.place(np.tile([[50.0, 20.0]], (20, 1)))
        for action in actions(300, 20, seed=3):
            env.step(action)
            x, y = env.position.T
            in_wall = (np.abs(x - 50) < KEEP_OFF - 1e-9) & ((y < DOOR[0]) | (y > DOOR[1]))
            assert not in_wall.any()
        assert np.abs(x - 50).max() > KEEP_OFF  # some have left the door

    def test_starts_keep_off_the_wall(self) -> None:
        _, info = BoxImageVectorEnv(num_envs=300, wall=True).reset(seed=0)
        assert np.abs(info["position"][:, 0] - 50).min() >= KEEP_OFF
        assert {*np.sign(info["position"][:, 0] - 50)} == {-1, 1}

    def test_wall_and_door_are_visible_and_no_disc_overlaps_the_wall(self) -> None:
        empty = draw_wall(np.zeros((1, 1, 52, 52), np.uint8))[0, 0]
        assert (empty[:, :25] == 0).all()
        assert (empty[:, 27:] == 0).all()
        column = empty[:, 25]
        assert {*column.tolist()} == {0, 128}
        # The door: centres from 14 to 26 are 10.16 to 15.44 pixels above the bottom, the radius
        # of 4 reaches from 6.16 to 19.44: the rows with centres 6.5 to 18.5.
        assert np.flatnonzero(column == 0).tolist() == list(range(33, 46))
        for x in (50 - KEEP_OFF, 50 + KEEP_OFF):
            disc = draw_discs(np.array([[x, 60.0]]))[0, 0]
            assert not disc[:, 25:27].any()

    def test_it_is_registered(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env = gymnasium.make("emi/BoxImageWall-v0", render_mode="rgb_array")
            check_env(env.unwrapped)
        env.reset(seed=0)
        assert 128 in np.unique(env.render())
