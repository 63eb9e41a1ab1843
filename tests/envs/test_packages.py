"""MiniGrid and Gymnasium-Robotics, by the names of their environments."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from emi.envs import left_out, make_single, make_vec, time_limit
from emi.envs.table import PACKAGES, default_arguments, package_of
from emi.errors import UserError
from emi.program import install
from emi.spaces import is_image
from emi.training.presets import preset

DOOR_KEY, MAZE = "gym:MiniGrid-DoorKey-6x6-v0", "gym:PointMaze_UMaze-v3"


def test_minigrid_is_a_vector_of_the_direction_and_the_cells() -> None:
    env, own = make_single(DOOR_KEY), gymnasium.make("MiniGrid-DoorKey-6x6-v0")
    box = env.observation_space
    assert isinstance(box, spaces.Box)
    assert box.low.tolist() == [0] * 4 + [-1] * 147
    assert box.high.tolist() == [1] * 151
    seen, expected = env.reset(seed=3)[0], own.reset(seed=3)[0]
    assert np.flatnonzero(seen[:4]).tolist() == [expected["direction"]]
    # Objects are 0 to 10, colours 0 to 5, states 0 to 3, although the space says 0 to 255.
    cells = (seen[4:].reshape(7, 7, 3) + 1) / 2 * [10, 5, 3]
    np.testing.assert_allclose(cells, expected["image"], atol=1e-5)
    assert expected["image"].max() > 1
    envs = make_vec(DOOR_KEY, num_envs=2)
    assert envs.single_observation_space == env.observation_space
    assert left_out(envs) == ("mission",)
    assert envs.single_action_space == spaces.Discrete(7)


@pytest.mark.parametrize(
    ("wrappers", "shape", "value"),
    [
        (["FullyObsWrapper"], (4 + 6 * 6 * 3,), 1.0),  # the agent is object 10
        (["ImgObsWrapper"], (147,), None),
        (["OneHotPartialObsWrapper"], (4 + 7 * 7 * 20,), 1.0),
        (["FlatObsWrapper"], (2835,), None),
        (['ViewSizeWrapper{"agent_view_size": 5}'], (4 + 75,), None),
        (["RGBImgObsWrapper", "ImgObsWrapper"], (48, 48, 3), 255),
    ],
)
def test_wrappers_of_minigrid(wrappers: list[str], shape: tuple[int], value: Any) -> None:
    names = [f"minigrid.wrappers:{name}" for name in wrappers]
    env = make_single(DOOR_KEY, wrappers=names)
    obs = env.reset(seed=0)[0]
    assert obs.shape == shape
    assert is_image(env.observation_space) == (len(shape) == 3)
    assert obs in env.observation_space
    assert obs.max() <= (255 if len(shape) == 3 else 1)
    # Scaled by 0 to 255, all cells would be between −1 and −0.92.
    assert obs.max() > -0.5
    if value == 1.0:
        assert obs[4:].max() == 1


def test_an_image_next_to_other_entries_must_be_chosen() -> None:
    name, wrappers = "gym:MiniGrid-Empty-5x5-v0", ["minigrid.wrappers:RGBImgPartialObsWrapper"]
    with pytest.raises(
        UserError, match=r"^cannot use 'gym:MiniGrid-Empty-5x5-v0': the obs.*'image"
    ):
        make_vec(name, wrappers=wrappers)
    chosen = make_vec(name, wrappers=wrappers, observation="image")
    assert chosen.single_observation_space == spaces.Box(0, 255, (56, 56, 3), np.uint8)
    config = preset(name, wrappers=wrappers, observation="image")
    assert config.value.minibatch == 512  # the settings for images
    assert preset(name).value.minibatch == 64


def test_the_time_limit_of_minigrid_decides_the_batch() -> None:
    assert (time_limit(DOOR_KEY), time_limit("gym:MiniGrid-DoorKey-16x16-v0")) == (360, 2560)
    assert time_limit(DOOR_KEY, {"max_steps": 1_000}) == 1_000
    config = preset(DOOR_KEY, env_args={"max_steps": 1_000})
    assert (config.steps_per_iteration, config.num_envs) == (5_000, 5)


def test_episodes_of_a_maze_end_at_the_goal() -> None:
    assert preset(MAZE).env_args == {"continuing_task": False}
    assert preset(MAZE, env_args={"continuing_task": True}).env_args == {"continuing_task": True}
    envs: Any = make_vec(MAZE, num_envs=2)
    assert [env.unwrapped.continuing_task for env in envs.envs] == [False, False]
    on: Any = make_vec(MAZE, env_args={"continuing_task": True})
    assert on.envs[0].unwrapped.continuing_task
    own, ends = make_single(MAZE), []
    own.reset(seed=0)
    for _ in range(2):
        goal = own.unwrapped.goal  # type: ignore[attr-defined]
        own.unwrapped.point_env.set_state(goal, np.zeros(2))  # type: ignore[attr-defined]
        ends.append(own.step(np.zeros(2, np.float32))[1:3])
        own.reset(seed=1)
    assert ends == [(1.0, True)] * 2


def test_a_maze_is_a_vector_of_the_goals_and_the_point() -> None:
    env, own = make_single(MAZE), gymnasium.make("PointMaze_UMaze-v3")
    seen, expected = env.reset(seed=3)[0], own.reset(seed=3)[0]
    parts = [expected[key] for key in ("achieved_goal", "desired_goal", "observation")]
    np.testing.assert_array_equal(seen, np.concatenate(parts).astype(np.float32))
    assert env.action_space == spaces.Box(-1, 1, (2,))
    chosen = make_vec(MAZE, observation="observation")
    assert chosen.single_observation_space.shape == (4,)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.module)
def test_a_missing_package_is_one_sentence(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gym:{package.example}"
    monkeypatch.delitem(gymnasium.registry, package.example, raising=False)
    monkeypatch.setitem(sys.modules, package.module, None)
    for make in (make_vec, make_single):
        with pytest.raises(UserError) as caught:
            make(name)
        assert str(caught.value) == (
            f"{name} needs {package.module}, which is not installed: {install(package.extra)}"
        )


def test_a_name_belongs_to_its_package_and_not_to_a_users_module() -> None:
    module = {package.module: package for package in PACKAGES}
    assert package_of("gym:minigrid-DoorKey-6x6-v0") is module["minigrid"]
    assert package_of("gym:gymnasium_robotics:AntMaze_UMaze-v5") is module["gymnasium_robotics"]
    assert default_arguments("gym:AntMaze_UMaze-v5") == {"continuing_task": False}
    for name in ("gym:mine:PointMaze_UMaze-v3", "PointMaze_UMaze-v3", "gym:CartPole-v1"):
        assert package_of(name) is None
        assert default_arguments(name) == {}


def test_a_misspelt_id_is_corrected() -> None:
    with pytest.raises(UserError, match=r"doesn't exist. Did you mean: `MiniGrid-DoorKey-6x6`"):
        make_vec("gym:Minigrid-DorKey-6x6-v0")


@pytest.mark.parametrize("env_id", ["GymV21Environment-v0", "GymV26Environment-v0"])
def test_the_old_gym_is_refused(env_id: str) -> None:
    """Its argument would name a module to import, also in a stored config."""
    with pytest.raises(UserError, match=r"environments of the old gym are not supported$"):
        make_vec(f"gym:{env_id}", env_args={"env_id": "stranger:Env-v0"})
