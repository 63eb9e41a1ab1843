"""Overlapping work: the method is trained on a second core while the policy is updated.

The next batch is begun as soon as the policy is updated, without waiting for that training. Results
are the same bit for bit: nothing depends on the method's training before the next batch is scored,
and the next batch depends only on the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import VectorEnv

from emi.agent.numpy_policy import network_of
from emi.agent.policy import AnyPolicy
from emi.agent.rollout import Rollout, collect, draw_noise, rollout_of
from emi.envs import known_environment
from emi.envs.positions import RecordPositions
from emi.errors import NotFiniteError, check_finite
from emi.images import is_image
from emi.training.config import TrainConfig
from emi.training.workers import Workers

T = TypeVar("T")
SWITCH_SECONDS = 5e-4  # by default ten times as much: a minibatch of vectors takes 2e-3
WORTH_WORKERS = 100_000  # steps of a run that take longer than to start the processes


def start_workers(config: TrainConfig, envs: VectorEnv, cores: int) -> Workers | None:
    """Processes that collect the batches on so many cores, if these make the run faster.

    They cannot make a `gym:` environment, whose name may be registered in this process only.
    Atari games have threads of their own, and a policy that reads images needs PyTorch.
    """
    own = known_environment(config.env) is not None
    vectors = not is_image(envs.single_observation_space)
    if config.threads < 2 or config.steps < WORTH_WORKERS or not (own and vectors):
        return None
    if not sys.executable:  # a program that embeds Python
        return None
    return Workers(config.env, config.num_envs, min(cores, config.num_envs), config.env_args)


@dataclass
class Collector:
    """Collects one batch per iteration, optionally before its iteration starts.

    With `workers`, other processes play the batches, and this one can work in the meantime.
    """

    envs: VectorEnv
    policy: AnyPolicy
    steps: int
    reset_seed: int
    rng: np.random.Generator
    workers: Workers | None = None
    # Returns a batch that was begun early; and the state of `rng` before it.
    _ahead: tuple[Callable[[], Rollout], Mapping[str, Any]] | None = field(default=None, init=False)

    def batch(self, iteration: int) -> Rollout:
        """The batch of iteration `iteration`, counted from 0."""
        if self._ahead is None:
            return self._begin(iteration)()
        (finish, _), self._ahead = self._ahead, None
        return finish()

    def begin_ahead(self, iteration: int) -> None:
        """Let the workers, if there are any, begin the batch of the next iteration.

        The policy must have been updated already.
        """
        if self.workers is not None:
            before = self.rng.bit_generator.state
            self._ahead = (self._begin(iteration), before)

    def collect_ahead(self, iteration: int) -> None:
        """Collect the batch of the next iteration now, unless the workers have begun it."""
        if self._ahead is not None:
            return
        before = self.rng.bit_generator.state
        try:
            self._ahead = (self._begin(iteration), before)
        except NotFiniteError:
            # The error belongs to the next iteration, which collects the batch again and raises it.
            self.rng.bit_generator.state = before

    def preview(self, iteration: int) -> Rollout:
        """The batch of an iteration, without advancing the run."""
        self.wait()
        before = self.rng.bit_generator.state
        rollout = self._begin(iteration)()
        self.rng.bit_generator.state = before
        return rollout

    def _begin(self, iteration: int) -> Callable[[], Rollout]:
        """Begin a batch; the returned function waits for it."""
        # Every iteration starts from a reset seeded by (run, iteration). So a checkpoint needs no
        # simulator state, and a resumed run equals one that was never stopped.
        seed = int(np.random.SeedSequence([self.reset_seed, iteration]).generate_state(1)[0])
        if self.workers is None:
            rollout = _checked(collect(self.envs, self.policy, self.steps, self.rng, seed))
            if isinstance(self.envs, RecordPositions):
                rollout = replace(rollout, position=self.envs.taken(len(rollout.index)))
            return lambda: rollout
        workers = self.workers
        noise = draw_noise(self.policy, self.steps, self.envs.num_envs, self.rng)
        workers.start(network_of(self.policy.trunk, self.policy.head), noise, seed)
        return lambda: _checked(rollout_of(*workers.result()))

    def wait(self) -> None:
        """Wait for a batch that was begun early, and keep it."""
        if self._ahead is not None:
            rollout = self._ahead[0]()
            self._ahead = (lambda: rollout, self._ahead[1])

    @property
    def rng_state(self) -> Mapping[str, Any]:
        """State of the action noise before the next batch, also if it is begun already."""
        return self.rng.bit_generator.state if self._ahead is None else self._ahead[1]

    @rng_state.setter
    def rng_state(self, state: Mapping[str, Any]) -> None:
        self.wait()
        self._ahead = None
        self.rng.bit_generator.state = state

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
        self.envs.close()


def _checked(rollout: Rollout) -> Rollout:
    check_finite("reward", rollout.reward)
    return rollout


class LearningThread:
    """Runs work in a second thread, one piece after the other, if `enabled`; else immediately."""

    def __init__(self, enabled: bool) -> None:
        self._pool = ThreadPoolExecutor(1) if enabled else None
        self._interval = sys.getswitchinterval()
        if enabled:
            # A thread that needs the interpreter waits this long until it interrupts the other.
            sys.setswitchinterval(SWITCH_SECONDS)

    @property
    def enabled(self) -> bool:
        """Whether there is a second thread."""
        return self._pool is not None

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Start `work`; the returned function waits for it and returns its result."""
        if self._pool is not None:
            return self._pool.submit(work).result
        result = work()
        return lambda: result

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            sys.setswitchinterval(self._interval)
