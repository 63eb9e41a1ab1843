"""A method that reads normalised observations."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import torch
from torch import Tensor

from emi.batch import Batched, Transitions, as_tensor
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.moments import Moments, RunningMoments
from emi.spaces import require_vectors

CONSTANT = 1e-8  # an entry with a smaller standard deviation is constant: centred, not scaled


class NormalizeObservation(IntrinsicReward):
    """`method` on (s − mean) / standard deviation, per entry, over all states s seen so far.

    Use it for vectors whose entries differ in scale: next to a position of up to 1, a speed of
    at most 0.07 has almost no effect on a network or its bonus. RND normalises by itself. A batch
    is scored with the moments of earlier batches, the first batch with its own.

    Scalars of `learn`: those of the method.
    """

    def __init__(self, method: IntrinsicReward, observation_space: gymnasium.Space) -> None:
        super().__init__()
        box = require_vectors(observation_space, "NormalizeObservation")
        self.method = method
        self.learns_first = method.learns_first
        self.observed = RunningMoments(box.shape)

    def _normalized(self, batch: Transitions) -> Transitions:
        moments: Moments | RunningMoments = self.observed
        if self.observed.count == 0:
            moments = Moments.of(self._rows(batch.obs))
        std = moments.variance.sqrt()
        unit = torch.where(std > CONSTANT, std, 1.0)

        def normalize(rows: Batched) -> Tensor:
            return ((self._rows(rows) - moments.mean) / unit).to(torch.float32)

        return replace(batch, obs=normalize(batch.obs), next_obs=normalize(batch.next_obs))

    def _rows(self, rows: Batched) -> Tensor:
        return as_tensor(rows, self.device).to(torch.float64)

    def reward(self, batch: Transitions) -> Tensor:
        return self.method.reward(self._normalized(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Update the moments, then train the method on the batch normalised by them."""
        self.observed.update(self._rows(batch.obs))
        return self.method.learn(self._normalized(batch))

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """As in the contract; if the method learns first, by the `score` of the method."""
        if not self.learns_first:
            return super().score(batch)
        self.observed.update(self._rows(batch.obs))
        return self.method.score(self._normalized(batch))
