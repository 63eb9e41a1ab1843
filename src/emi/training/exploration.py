"""The states that a policy visits while it explores, kept as data for a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from emi.batch import Array, IntArray, Rows, Transitions, union
from emi.training.trainer import Trainer


def explore(trainer: Trainer, iterations: int, keep: int) -> Transitions:
    """Train for so many iterations; return about `keep` of the transitions, as complete paths.

    Every batch contributes the paths of some environments, a different part each time. Each has
    its own number in `env_index`. The policy changes from batch to batch, so that these data cover
    more than what one policy visits.
    """
    return one_batch(list(_kept(trainer, iterations, keep)))


def _kept(trainer: Trainer, iterations: int, keep: int) -> Iterator[Transitions]:
    rng, num_envs = np.random.default_rng(trainer.config.seed), trainer.config.num_envs
    for _ in range(iterations):
        trainer.iterate()
        assert trainer.last_batch is not None
        batch = trainer.last_batch[0].transitions(trainer.policy.actions.to_env)
        part = np.ceil(num_envs * min(1.0, keep / (iterations * len(batch))))
        chosen = rng.permutation(num_envs)[: int(part)]
        yield _some(batch, np.flatnonzero(np.isin(np.asarray(batch.env_index), chosen)))


def _some(batch: Transitions, which: IntArray) -> Transitions:
    """Some transitions, whose observations are still rows of one pool."""
    obs, next_obs = (Rows(rows.pool, rows.index[which]) for rows in (batch.obs, batch.next_obs))
    env_index, ended = (np.asarray(column)[which] for column in (batch.env_index, batch.ended))
    return Transitions(obs, batch.action[which], next_obs, env_index, ended)


def one_batch(parts: Sequence[Transitions]) -> Transitions:
    """One batch of several, whose paths have numbers of their own.

    The observations of each part are rows of one pool. Each is stored once, also if it is both s
    and s'.
    """
    pools: list[Array] = []
    first: list[IntArray] = []
    second: list[IntArray] = []
    env: list[Array] = []
    rows = paths = 0
    for part in parts:
        both = union(part.obs, part.next_obs)
        if both is None:
            raise ValueError("the observations of a part must be rows of one pool")
        pools.append(np.asarray(both.rows))
        first.append(both.first + rows)
        second.append(both.second + rows)
        own = np.unique(np.asarray(part.env_index), return_inverse=True)[1]
        env.append(own + paths)
        rows, paths = rows + len(both.rows), paths + int(own.max()) + 1
    pool = np.concatenate(pools)
    return Transitions(
        Rows(pool, np.concatenate(first)),
        np.concatenate([np.asarray(part.action) for part in parts]),
        Rows(pool, np.concatenate(second)),
        np.concatenate(env),
        np.concatenate([np.asarray(part.ended) for part in parts]),
    )
