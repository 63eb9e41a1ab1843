"""The embedding sample of a run: complete paths, every column of the same transitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emi.intrinsic.emi import EMI
from emi.runs import embedding_sample as module
from emi.runs.embedding_sample import embedding_sample
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SIZES = {"steps": 900, "steps_per_iteration": 300, "num_envs": 3, "threads": 1}


def test_vectors_are_complete_paths() -> None:
    trainer = Trainer(resolve("SparseHalfCheetah", "emi", SIZES))
    assert embedding_sample(trainer) == {}
    trainer.iterate()
    sample = embedding_sample(trainer)
    assert sample["phi"].shape == (300, 2)
    assert sample["obs"].shape == (300, 20)
    assert not {"frame", "frame_next"} & set(sample)
    first = sample["env"] == 0
    assert sample["clock"][first].tolist() == list(range(100))
    assert not sample["ended"].any()  # an episode has 500 steps
    # Along a path, the successor of one row is the next row.
    torch.testing.assert_close(sample["phi_next"][first][:-1], sample["phi"][first][1:])
    trainer.close()


def test_other_methods_have_no_sample() -> None:
    for method in ("trpo", "rnd"):
        trainer = Trainer(resolve("SparseHalfCheetah", method, SIZES))
        trainer.iterate()
        assert embedding_sample(trainer) == {}
        trainer.close()


def test_every_column_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three environments, in episodes that end and in ones that are cut off."""
    monkeypatch.setattr(module, "VECTORS", 200)
    trainer = Trainer(resolve("gym:CartPole-v1", "emi", SIZES))
    trainer.iterate()
    assert trainer.last_batch is not None
    rollout, bonus = trainer.last_batch
    sample = embedding_sample(trainer)
    rows = [(t, e) for t in range(len(rollout.index)) for e in range(2) if rollout.valid[t, e]]
    assert len(rows) == len(sample["phi"]) == 200
    grid = rollout.grid(bonus)
    method = trainer.intrinsic
    assert isinstance(method, EMI)
    for k, (t, e) in enumerate(rows):
        s, after = (rollout.pool[i[t, e]][None] for i in (rollout.index, rollout.next_index))
        action = trainer.policy.actions.to_env(rollout.action[t, e][None])
        for name, expected in {
            "obs": s,
            "phi": method.embed_state(s),
            "phi_next": method.embed_state(after),
            "psi": method.embed_action(action),
            "error": method.error(s, action),
            "bonus": grid[t, e],
            "reward": rollout.reward[t, e],
            "clock": rollout.clock[t, e],
            "ended": rollout.ended[t, e],
            "env": e,
        }.items():
            found = np.atleast_1d(np.squeeze(sample[name][k].numpy()))
            wanted = np.atleast_1d(np.squeeze(np.asarray(expected)))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    assert sample["ended"].any()
    assert len(set(sample["clock"].tolist())) > 10
    trainer.close()


def test_images_are_the_newest_frames_of_one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"steps": 60, "steps_per_iteration": 60, "num_envs": 2, "threads": 1}
    trainer = Trainer(resolve("Freeway", "emi", sizes | {"intrinsic": {"minibatch": 20}}))
    trainer.iterate()
    sample = embedding_sample(trainer)
    assert "obs" not in sample
    assert sample["env"].tolist() == [0] * 30
    assert sample["clock"].tolist() == list(range(30))
    assert (sample["frame"].shape, sample["frame"].dtype) == ((30, 1, 52, 52), torch.uint8)
    assert trainer.last_batch is not None
    rollout, _ = trainer.last_batch
    stacks = rollout.pool[rollout.index[:, 0]]
    assert np.array_equal(sample["frame"][:, 0].numpy(), stacks[:, -1])
    # The cars move: a frame older than the newest differs.
    assert not np.array_equal(stacks[:, -1], stacks[:, -2])
    assert torch.equal(sample["frame_next"][:-1], sample["frame"][1:])
    assert isinstance(trainer.intrinsic, EMI)
    torch.testing.assert_close(sample["phi"], trainer.intrinsic.embed_state(stacks))
    monkeypatch.setattr(module, "FRAMES", 12)
    assert len(embedding_sample(trainer)["frame"]) == 12
    trainer.close()
