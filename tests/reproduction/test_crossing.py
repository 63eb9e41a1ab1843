"""The animation of an episode: the pose of the cheetah, the frames, the file."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from PIL import Image
from results_tree import write_arm, write_sample

from emi.envs.sparse_half_cheetah import SparseHalfCheetahVectorEnv
from emi.report.embedding import read_sample
from emi.report.load import load_run
from emi.report.style import save_animation
from emi.reproduction import crossing
from emi.reproduction.cheetah_pose import load_skeleton
from emi.reproduction.experiment import find
from emi.reproduction.tasks import CHEETAH, run_of_emi, task

RESULTS = Path(__file__).parents[2] / "results"


def test_the_pose_is_that_of_the_simulator() -> None:
    envs = SparseHalfCheetahVectorEnv(num_envs=3)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        obs, *_ = envs.step(rng.uniform(-1, 1, (3, 6)).astype(np.float32))
    skeleton = load_skeleton()
    pose = skeleton.pose(obs.astype(np.float64))
    names = ["torso", "head", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"]
    assert [limb.name for limb in skeleton.limbs] == names
    data = mujoco.MjData(envs.model)
    for number in range(3):
        data.qpos[1:] = obs[number, :8]
        mujoco.mj_forward(envs.model, data)
        # x is not observed, only that of the centre of mass is.
        shift = obs[number, 17] - data.subtree_com[envs.model.body("torso").id][0]
        for limb, ends in zip(skeleton.limbs, pose[number], strict=True):
            geom = envs.model.geom(limb.name)
            axis = data.geom_xmat[geom.id].reshape(3, 3)[:, 2] * geom.size[1]
            centre = data.geom_xpos[geom.id] + [shift, 0, 0]
            np.testing.assert_allclose(ends.mean(0), centre[[0, 2]], atol=1e-6)
            np.testing.assert_allclose(
                np.abs(ends[1] - ends[0]) / 2, np.abs(axis[[0, 2]]), atol=1e-6
            )
            assert limb.radius == geom.size[0]


def test_the_committed_episode_crosses_the_line() -> None:
    run = load_run(RESULTS / run_of_emi(CHEETAH))
    episode = crossing.Episode(run)
    assert episode.title == "SparseHalfCheetah after 5M steps with EMI (seed 0)"
    # A step has a reward exactly where the centre of mass is beyond the line after it.
    rewarded = np.diff(episode.total, prepend=0) > 0
    assert rewarded[:-1].tolist() == (np.abs(episode.x[1:]) > crossing.LINE).tolist()
    assert episode.total[-1] == 225
    # The observation has the height of the centre of mass, which the pose was not given.
    height = read_sample(run)["obs"][::4, 19]  # of the first of four environments
    centre = episode.skeleton.centre(episode.pose)
    np.testing.assert_allclose(centre[:, 1], height, atol=1e-6)


def test_frames_show_every_fourth_step_and_the_last(tmp_path: Path) -> None:
    arms = task(CHEETAH, ("emi",), (0,))
    write_arm(tmp_path, *arms, [3.0])
    write_sample(arms[0].path(tmp_path, 0), steps=10)
    found = find(crossing.EXPERIMENT, tmp_path)
    first, second = (crossing.draw(found, tmp_path / name / "crossing")[0] for name in "ab")
    assert first == tmp_path / "a" / "crossing.gif"
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert (image.n_frames, image.size) == (4, (900, 375))  # steps 0, 4, 8 and 9
        assert image.info["loop"] == 0
        durations = []
        for number in range(image.n_frames):
            image.seek(number)
            durations.append(image.info["duration"])
        assert durations == [50, 50, 50, 1500]


def test_without_an_embedding_there_is_no_animation(tmp_path: Path) -> None:
    write_arm(tmp_path, *task(CHEETAH, ("emi",), (0,)), [3.0])
    assert crossing.draw(find(crossing.EXPERIMENT, tmp_path), tmp_path / "crossing") == []
    assert not (tmp_path / "crossing.gif").exists()


def test_an_animation_keeps_its_colours(tmp_path: Path) -> None:
    colours = [(255, 255, 255), (0, 114, 178), (213, 94, 0)]
    frames = [Image.new("RGB", (8, 8), colour) for colour in colours]
    path = save_animation(frames, [0.05] * 3, tmp_path / "x")
    with Image.open(path) as image:
        for number, colour in enumerate(colours):
            image.seek(number)
            shown = image.convert("RGB").getpixel((4, 4))
            assert shown == pytest.approx(colour, abs=4)
