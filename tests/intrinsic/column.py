"""A method whose bonus can be computed by hand, for tests of sums and normalisations."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from emi.batch import Transitions
from emi.intrinsic.contract import IntrinsicReward

VECTOR, ACTIONS = Box(-np.inf, np.inf, (3,)), Discrete(4)


class Column(IntrinsicReward):
    """One entry of s', divided by 1 + the number of batches learnt; logs its calls."""

    learnt: Tensor

    def __init__(
        self, entry: int, *, learns_first: bool = False, log: list[str] | None = None
    ) -> None:
        super().__init__()
        self.entry, self.learns_first = entry, learns_first
        self.log = [] if log is None else log
        self.register_buffer("learnt", torch.zeros(()))

    def reward(self, batch: Transitions) -> Tensor:
        self.log.append(f"score {self.entry}")
        return torch.as_tensor(batch.next_obs)[:, self.entry] / (1 + self.learnt)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.log.append(f"learn {self.entry}")
        self.learnt += 1
        return {"column/learnt": self.learnt.item(), f"column/{self.entry}": 7.0}


def batch_to(*rows: tuple[float, ...]) -> Transitions:
    """Transitions whose s' are `rows`, all of one environment."""
    obs = np.zeros((len(rows), 3), np.float32)
    return Transitions(obs, np.zeros(len(rows), np.int64), np.array(rows, np.float32))


def random_batch(n: int, seed: int, envs: int = 1) -> Transitions:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    next_obs = rng.uniform(0.5, 2, (n, 3)).astype(np.float32) * [1, 100, 0.01]
    return Transitions(
        obs, rng.integers(0, 4, n), next_obs.astype(np.float32), rng.integers(0, envs, n)
    )
