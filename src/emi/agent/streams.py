"""Two streams of reward: the bonus has a value function of its own (Burda et al., 2019).

A = A_env + η A_bonus, where each term has its own value function, discount and λ. The bonus changes
while the method learns, and may outlast an episode; the reward of the environment does neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from emi.agent.value import AnyValue
from emi.batch import BoolArray, FloatArray, IntArray
from emi.settings import FractionOrZero


@dataclass(frozen=True)
class StreamsConfig:
    """Settings of the bonus' own stream. Without it, the bonus is added to the reward."""

    separate: bool = False
    """estimate the advantages of the bonus with a value function of its own (paper: False)"""
    discount: FractionOrZero = 0.99
    """γ of the bonus (Burda et al., 2019)"""
    gae_lambda: FractionOrZero = 0.95
    """λ of the bonus (Burda et al., 2019)"""
    episodic: bool = False
    """whether the return of the bonus ends with the episode; if not, the value after the end is
    that of a start state (Burda et al., 2019: False)"""


class Stream(NamedTuple):
    """How the advantages of one reward are estimated."""

    value: AnyValue
    discount: float
    gae_lambda: float
    episodic: bool


def continued(
    after: FloatArray, value: FloatArray, ended: BoolArray, clock: IntArray
) -> FloatArray:
    """V(s') where no return ends with an episode: after an end, the mean V of the start states.

    All are on the grid [time, env]. The next episode starts from a state like those.
    """
    start = value[clock == 0].mean() if (clock == 0).any() else 0.0
    out = after.copy()
    out[ended] = start
    return out
