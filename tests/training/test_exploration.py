"""The data that an exploration keeps."""

import contextlib

import numpy as np

from emi.planning.landmarks import paths_of
from emi.training.exploration import explore
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SIZES = {"steps": 400, "steps_per_iteration": 200, "num_envs": 4, "threads": 1}
CONFIG = resolve("gym:Pendulum-v1", "emi", {**SIZES, "reward": "none"})


def test_paths_are_kept_whole_and_have_numbers_of_their_own() -> None:
    with contextlib.closing(Trainer(CONFIG)) as trainer:
        batch = explore(trainer, 2, keep=150)
    assert trainer.iteration == 2
    assert len(batch) == 200  # two of four environments in each of two batches of 200
    assert sorted(set(batch.env_index.tolist())) == [0, 1, 2, 3]
    order, path = paths_of(batch)
    assert np.bincount(path).tolist() == [50] * 4
    obs, next_obs = np.asarray(batch.obs)[order], np.asarray(batch.next_obs)[order]
    same = path[1:] == path[:-1]
    np.testing.assert_array_equal(obs[1:][same], next_obs[:-1][same])
    assert len(batch.obs.pool) == 4 * 51  # each observation once


def test_everything_is_kept_if_there_is_room() -> None:
    with contextlib.closing(Trainer(CONFIG)) as trainer:
        batch = explore(trainer, 2, keep=10_000)
    assert len(batch) == 400
    assert len(set(batch.env_index.tolist())) == 8


def test_exploring_does_what_training_does() -> None:
    with contextlib.closing(Trainer(CONFIG)) as one, contextlib.closing(Trainer(CONFIG)) as other:
        explore(one, 2, keep=100)
        for _ in range(2):
            other.iterate()
        for name, value in one.policy.state_dict().items():
            np.testing.assert_array_equal(value, other.policy.state_dict()[name])
