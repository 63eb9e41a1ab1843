"""A method that reads normalised observations."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
from torch import Tensor

from emi.batch import Transitions
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.reading import Reading
from emi.spaces import require_vectors


class NormalizeObservation(IntrinsicReward):
    """`method` on (s − mean) / standard deviation, per entry, over all states s seen so far.

    For methods of your own: EMI, ICM, EX2, RND and VIME normalise vectors by themselves. Next to a
    position of up to 1, a speed of at most 0.07 has almost no effect on a network or its bonus. The
    space may be any that becomes a vector, see `emi.spaces.readable`; the method is then built for
    `self.space`. A batch is scored with the moments of earlier batches, the first batch with its
    own.

    Scalars of `learn`: those of the method.
    """

    def __init__(self, method: IntrinsicReward, observation_space: gymnasium.Space) -> None:
        super().__init__()
        self.reading = Reading(observation_space, normalize=True)
        self.space = require_vectors(self.reading.space, "NormalizeObservation")
        self.method = method
        self.learns_first, self.episodic = method.learns_first, method.episodic

    def reward(self, batch: Transitions) -> Tensor:
        return self.method.reward(self.reading(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Update the moments, then train the method on the batch normalised by them."""
        return self.method.learn(self.reading.learn(batch))

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """As in the contract; if the method learns first, by the `score` of the method."""
        if not self.learns_first:
            return super().score(batch)
        return self.method.score(self.reading.learn(batch))

    def scorer(self) -> Scorer:
        score = self.method.scorer()
        return lambda batch: score(self.reading(batch))

    def forget(self, envs: Sequence[int]) -> None:
        self.method.forget(envs)
