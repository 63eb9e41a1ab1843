"""The share of the bonus in the reward, and a warning if it is still large late in training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

# Chosen between the shares of pilot runs on MountainCar-v0 that a constant coefficient harmed and
# those that it did not, in the second half of training. results/recipe has five more harmed runs.
LARGE = 0.25
FEWEST = 5  # batches since the half of the training: a trial of a few rollouts shows nothing


def share_of(size_int: float, size_env: float) -> float:
    """Σ|η·bonus| / (Σ|η·bonus| + Σ|r|) of these two sums; 0 without a bonus.

    >>> share_of(3.0, 1.0), share_of(0.0, 0.0)
    (0.75, 0.0)
    """
    return size_int / (size_int + size_env) if size_int > 0 else 0.0


@dataclass
class LateShare:
    """Sums both rewards over the second half of a training of `total` steps, and may warn once.

    The warning is given from three quarters of the training on, if there were at least `FEWEST`
    batches since the half and the share of the bonus in them is larger than `LARGE`. If the
    environment gave no reward, there is nothing that the bonus could outweigh, and no warning.
    """

    total: int
    size_int: float = 0.0
    size_env: float = 0.0
    batches: int = 0
    warned: bool = False

    def add(self, steps: int, size_int: float, size_env: float) -> None:
        """Add Σ|η·bonus| and Σ|r| of the batch that ended after `steps` environment steps."""
        if self.warned or steps <= self.total / 2:
            return
        self.size_int += size_int
        self.size_env += size_env
        self.batches += 1
        share = share_of(self.size_int, self.size_env)
        early = steps < 0.75 * self.total or self.batches < FEWEST
        if early or self.size_env == 0 or share <= LARGE:
            return
        self.warned = True
        warnings.warn(
            f"the bonus is {share:.0%} of the reward since half of the training, and may keep the "
            "policy from what the environment rewards: let eta fall to 0, for example with "
            "eta=emi.adapters.Decay(start)",
            stacklevel=2,
        )
