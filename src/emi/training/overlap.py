"""Overlapping work: the method is trained on a second core while the policy is updated.

The next batch is collected without waiting for that training. Results are the same bit for bit:
nothing depends on the method's training before the next batch is scored, and the next batch depends
only on the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from emi.agent.policy import AnyPolicy
from emi.agent.rollout import Rollout, collect
from emi.errors import NotFiniteError, check_finite
from emi.intrinsic.contract import Finish


@dataclass
class Collector:
    """Collects one batch per iteration, optionally before its iteration starts."""

    envs: VectorEnv
    policy: AnyPolicy
    steps: int
    reset_seed: int
    rng: np.random.Generator
    # A batch collected early, and the state of `rng` before it was collected.
    _ahead: tuple[Rollout, Mapping[str, Any]] | None = field(default=None, init=False)

    def batch(self, iteration: int) -> Rollout:
        """The batch of iteration `iteration`, counted from 0."""
        if self._ahead is None:
            return self._collect(iteration)
        (rollout, _), self._ahead = self._ahead, None
        return rollout

    def collect_ahead(self, iteration: int) -> None:
        """Collect the batch of the next iteration now; the policy must not change until then."""
        before = self.rng.bit_generator.state
        try:
            self._ahead = (self._collect(iteration), before)
        except NotFiniteError:
            # The error belongs to the next iteration, which collects the batch again and raises it.
            self.rng.bit_generator.state = before

    def preview(self, iteration: int) -> Rollout:
        """The batch of an iteration, without advancing the run."""
        before = self.rng.bit_generator.state
        rollout = self._collect(iteration)
        self.rng.bit_generator.state = before
        return rollout

    def _collect(self, iteration: int) -> Rollout:
        # Every iteration starts from a reset seeded by (run, iteration). So a checkpoint needs no
        # simulator state, and a resumed run equals one that was never stopped.
        seed = np.random.SeedSequence([self.reset_seed, iteration]).generate_state(1)
        rollout = collect(self.envs, self.policy, self.steps, self.rng, int(seed[0]))
        check_finite("reward", rollout.reward)
        return rollout

    @property
    def rng_state(self) -> Mapping[str, Any]:
        """State of the action noise before the next batch, also if it is collected already."""
        return self.rng.bit_generator.state if self._ahead is None else self._ahead[1]

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self._ahead = None
        self.rng.bit_generator.state = state


class LearningThread:
    """Runs the training of a method in a second thread if `enabled`, else immediately."""

    def __init__(self, enabled: bool) -> None:
        self._pool = ThreadPoolExecutor(1) if enabled else None

    @property
    def enabled(self) -> bool:
        """Whether there is a second thread."""
        return self._pool is not None

    def start(self, finish: Finish) -> Finish:
        """Start `finish`; the returned function waits for it and returns its scalars."""
        if self._pool is not None:
            return self._pool.submit(finish).result
        scalars = finish()
        return lambda: scalars

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
