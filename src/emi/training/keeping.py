"""Keep what was found: options for tasks whose rewards are rare. All are off by default.

The trust-region step has the same length whatever the advantages are worth, because they are
standardised. A batch without a reward therefore moves the policy as far as one with a reward, in a
direction made of noise, and a behaviour that was found once is lost again. See docs/keeping.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from emi.agent.policy import AnyPolicy, GaussianPolicy
from emi.batch import BoolArray, FloatArray, IntArray
from emi.settings import Fraction, NotNegativeFloat, NotNegativeInt
from emi.stored_state import expect, expect_int, expect_keys

MIN_SCALE = 1e-6  # of the trust region; it must stay positive


@dataclass(frozen=True)
class KeepingConfig:
    """Settings of what the trainer does to keep a reward that it has found; all are ours."""

    stake_power: NotNegativeFloat = 0.0
    """p: the trust region is scaled by (std(A) / reference)^p; 0 does not scale it"""
    stake_decay: Fraction = 0.99
    """c: the reference, the largest std(A) of a rewarded batch, is multiplied by c per iteration"""
    patience: NotNegativeInt = 0
    """R: draw a new policy after R · luby(k) iterations without a reward, and one more for each
    rewarded iteration of the k-th policy; 0: never"""
    min_std: NotNegativeFloat = 0.0
    """lower bound of the standard deviation of continuous actions, as `policy.init_std`"""

    @property
    def follows(self) -> bool:
        """Whether anything depends on which batches had a reward."""
        return self.stake_power > 0 or self.patience > 0


@dataclass(frozen=True)
class History:
    """What the options depend on from earlier iterations."""

    reference: float = 0.0  # the largest std(A) of a rewarded batch, decayed; 0: none yet
    rewarded: int = 0  # iterations with a reward since the policy was drawn
    unrewarded: int = 0  # iterations since the last reward, or since the policy was drawn
    restarts: int = 0  # policies drawn after the first

    def after(self, stake: float, rewarded: bool, decay: float) -> History:
        """The history with one more batch, of std(A) = `stake`."""
        reference = decay * self.reference
        return History(
            reference=max(reference, stake) if rewarded else reference,
            rewarded=self.rewarded + rewarded,
            unrewarded=0 if rewarded else self.unrewarded + 1,
            restarts=self.restarts,
        )

    def restarted(self) -> History:
        """The history of a policy that was just drawn."""
        return History(restarts=self.restarts + 1)

    def state(self) -> dict[str, Any]:
        return asdict(self)


def step_scale(stake: float, reference: float, power: float) -> float:
    """min(1, std(A) / reference)^p, the share of δ that a batch may use; 1 without a reference.

    p = 2 makes the length of the step proportional to std(A), as plain gradient ascent does. p = 1
    makes the KL proportional: KLs of steps in random directions add up, so n batches of 1/n the
    stake move the policy as far as one batch of the whole.
    """
    if reference <= 0:
        return 1.0
    return max(min(1.0, stake / reference) ** power, MIN_SCALE)


def luby(k: int) -> int:
    """1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, …: the k-th term, from k = 1.

    Luby, Sinclair, Zuckerman (1993): restarts after these times need at most a logarithmic factor
    more time than the best restart time, which depends on the task and is not known. Half of the
    policies get the shortest time, and now and then one gets a time that doubles again and again.
    """
    bits = k.bit_length()
    return 2 ** (bits - 1) if k == 2**bits - 1 else luby(k - 2 ** (bits - 1) + 1)


def gives_up(history: History, patience: int) -> bool:
    """unrewarded ≥ R · luby(k) + rewarded, for the k-th policy.

    A policy is kept the longer, the more often it was rewarded.
    """
    if patience == 0:
        return False
    return history.unrewarded >= patience * luby(history.restarts + 1) + history.rewarded


def rewarded_episodes(reward: FloatArray, ended: BoolArray) -> int:
    """The number of episodes on the grid [time, env] in which some reward is not 0."""
    # The number of episodes that ended before each step: a label of the episode in its environment.
    episode: IntArray = np.cumsum(ended, axis=0) - ended
    time, env = np.nonzero(reward)
    return len(np.unique(env * (len(reward) + 1) + episode[time, env]))


def raise_std(policy: AnyPolicy, min_std: float) -> None:
    """σ ← max(σ, min_std); discrete actions have no σ."""
    if min_std > 0 and isinstance(policy, GaussianPolicy):
        with torch.no_grad():
            policy.log_std.clamp_(min=math.log(min_std))


def stored_history(found: Any, iterations: int) -> History:
    """The history that `History.state` returned; UserError if it cannot be one."""
    expect_keys(found, History().state(), "keeping")
    reference = found["reference"]
    finite = type(reference) is float and 0 <= reference < math.inf
    expect(finite, reference, "keeping.reference", "a number of at least 0")
    for key in ("rewarded", "unrewarded", "restarts"):
        expect_int(found[key], 0, iterations, f"keeping.{key}")
    values: Mapping[str, Any] = found
    return History(**values)
