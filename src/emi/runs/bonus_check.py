"""`emi doctor --bonus DIR`: does the bonus of a run do what a bonus should?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from emi.batch import Array
from emi.errors import UserError
from emi.intrinsic.diagnosis import Diagnosis, diagnose
from emi.runs.progress import tell
from emi.runs.run import restore_newest
from emi.runs.run_directory import RunDirectory, read_config
from emi.training.trainer import Trainer

SAMPLE = 2_000  # transitions, approximately, that a bonus is examined on


def check_bonus(run: Path) -> int:
    """Diagnose the method of the newest checkpoint of `run`; 1 if something is wrong."""
    directory = RunDirectory(run)
    trainer = Trainer(dataclasses.replace(read_config(directory), device="cpu", threads=1))
    try:
        restore_newest(trainer, directory, lambda warning: tell(f"warning: {warning}"))
        found = diagnose_next_batch(trainer)
    finally:
        trainer.close()
    print(found)
    return 0 if found.good else 1


def diagnose_next_batch(trainer: Trainer, passes: int = 3) -> Diagnosis:
    """Diagnose the trainer's method on its next batch; the run does not advance."""
    method = trainer.intrinsic
    if method is None:
        raise UserError(f"{trainer.config.method} pays no bonus: give a run of another method")
    rollout = trainer.collector.preview(trainer.iteration)
    # Whole paths of the first environments, as many as make a good sample.
    chosen = np.zeros_like(rollout.valid)
    paths = max(1, SAMPLE // len(rollout.index))
    chosen[:SAMPLE, :paths] = rollout.valid[:SAMPLE, :paths]
    rows = np.flatnonzero(rollout.flat(chosen))

    def advantages(reward: Array) -> Array:
        grid = np.zeros_like(rollout.reward)
        grid[chosen] = reward
        return trainer.estimate(rollout, grid).advantage[rows]

    return diagnose(
        method,
        rollout.transitions(trainer.policy.to_env)[rows],
        reward=trainer.clipped_reward(rollout)[chosen],
        eta=trainer.config.eta,
        advantages=advantages,
        passes=passes,
    )
