"""Returns and advantages on the [time, env] grid, for the three ways an episode can stop.

Terminated: the value after the step is 0. Timed out: 0 as in the paper, or bootstrapped from the
true last observation. Cut because the batch is full: always bootstrapped. No reward is
propagated back across any of them.
"""

from collections.abc import Callable

import numpy as np

from emi.agent.rollout import Rollout
from emi.batch import BoolArray, FloatArray, Rows


def bootstrapped(rollout: Rollout, *, bootstrap_timeouts: bool) -> BoolArray:
    """[time, env]: the steps after which the value is not 0 although no step of the batch follows.

    These are the cut episodes, and the time-outs if `bootstrap_timeouts`.
    """
    which = np.zeros_like(rollout.valid)
    which[-1] = ~rollout.ended[-1]
    if bootstrap_timeouts:
        # A step that both terminates and times out counts as terminated.
        which |= rollout.truncated & ~rollout.terminated
    return which & rollout.valid


def successor_values(
    rollout: Rollout,
    value: FloatArray,
    cut: BoolArray,
    predict_after: Callable[[Rows], FloatArray],
) -> FloatArray:
    """V(s') on the grid [time, env] from V(s); predicted where `cut`, see `bootstrapped`."""
    after = np.zeros_like(value)
    after[:-1] = value[1:]
    after[rollout.ended] = 0.0
    if cut.any():
        after[cut] = predict_after(Rows(rollout.pool, rollout.next_index[cut]))
    return after


def gae(
    reward: FloatArray,
    value: FloatArray,
    next_value: FloatArray,
    ended: BoolArray,
    *,
    discount: float,
    gae_lambda: float,
) -> FloatArray:
    """Generalised advantage estimates, [time, env].

    δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ),   Aₜ = δₜ + γλ Aₜ₊₁, cut at every `ended` step.
    With λ = 1, A = discounted return − V(s).
    """
    delta = reward + discount * next_value - value
    carry = discount * gae_lambda * ~ended
    advantage = np.empty_like(delta)
    running = np.zeros(delta.shape[1])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        advantage[t] = running
    return advantage


def standardise(advantage: FloatArray) -> FloatArray:
    """[n] to mean 0 and standard deviation 1; zeros if the advantages differ by rounding only."""
    centred = advantage - advantage.mean()
    if np.abs(centred).max() <= 1e-12 * np.abs(advantage).max():
        return np.zeros_like(advantage)
    return centred / (centred.std() + 1e-8)
