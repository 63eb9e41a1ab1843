"""`emi doctor --bonus DIR`: does the bonus of a run do what a bonus should?"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from emi.batch import Array
from emi.envs.foreign import environment_errors
from emi.errors import UserError
from emi.intrinsic.diagnosis import Diagnosis, diagnose
from emi.runs.progress import working
from emi.runs.run import restored
from emi.training.trainer import Trainer

SAMPLE = 2_000  # approximate number of transitions that the bonus is diagnosed on


def check_bonus(run: Path, trusted: Collection[str] = ()) -> int:
    """Diagnose the method in the newest checkpoint of `run`; return 1 if a check fails.

    `trusted` are the user's modules that the config of the run may import.
    """
    with (
        working(f"checking the bonus of {run}"),
        restored(run, trusted=trusted) as trainer,
        environment_errors(trainer.config.env),
    ):
        found = diagnose_next_batch(trainer)
    print(found)
    return 0 if found.good else 1


def diagnose_next_batch(trainer: Trainer, passes: int = 3) -> Diagnosis:
    """Diagnose the trainer's method on its next batch; the run does not advance."""
    method = trainer.intrinsic
    if method is None:
        raise UserError(f"{trainer.config.method} has no bonus: give a run of another method")
    rollout = trainer.collector.preview(trainer.iteration)
    # The paths of the first environments, as many as give SAMPLE transitions.
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
        rollout.transitions(trainer.policy.actions.to_env)[rows],
        reward=trainer.clipped_reward(rollout)[chosen],
        eta=trainer.config.eta,
        advantages=advantages,
        passes=passes,
    )
