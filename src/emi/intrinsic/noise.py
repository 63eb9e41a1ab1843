"""Noise: a bonus drawn at random, the control that every exploration bonus must beat.

TRPO standardises advantages, so even a bonus without any information moves the policy by full
steps. A method explores only if it does better than this. The bonuses are independent and
exponentially distributed, as skewed as the prediction errors of the other methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor

from emi.batch import Transitions
from emi.intrinsic.contract import IntrinsicReward
from emi.settings import PositiveFloat


@dataclass(frozen=True)
class NoiseConfig:
    """Settings of `emi.intrinsic.noise.Noise`."""

    mean: PositiveFloat = 1.0
    """mean of the exponential distribution, and its standard deviation (ours)"""


def exponential(seed: int, batch: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """n independent draws from Exp(1), a pure function of `seed` and `batch`.

    Philox is a counter-based generator: its key determines the whole sequence, so that no state is
    left behind. Keys that differ in one bit give independent sequences.
    """
    key = np.array([seed, batch], np.int64).view(np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).standard_exponential(n)


class Noise(IntrinsicReward):
    """bonus of row i ~ Exp(mean), redrawn after each call of `learn`; observations are not read.

    The bonus depends on the seed, on the number of batches learned, and on the position of the row
    in the batch. Scalars of `learn`: `noise/batches`, the number of batches so far.
    """

    seed: Tensor
    batches: Tensor

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NoiseConfig = NoiseConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        # Both are state: a loaded method repeats the bonuses of the one that was saved.
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def reward(self, batch: Transitions) -> Tensor:
        draws = exponential(int(self.seed), int(self.batches), len(batch))
        bonus = torch.as_tensor(self.config.mean * draws, dtype=torch.float32)
        return bonus.to(self.device)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.batches += 1
        return {"noise/batches": float(self.batches)}
