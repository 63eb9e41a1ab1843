"""A method that sees observations in units of their own deviation."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import gymnasium
import torch
from torch import Tensor, nn

from emi.data import Batched, Transitions, as_tensor
from emi.intrinsic.combined import Combined
from emi.intrinsic.moments import Moments, RunningMoments
from emi.nets import is_image

if TYPE_CHECKING:
    from emi.intrinsic import IntrinsicReward

CONSTANT = 1e-8  # an entry whose deviation is below has not moved: it is centred, not magnified


class Standardised(nn.Module):
    """`method` fed with (s − mean) / deviation, entry by entry, over all states s seen so far.

    For vectors whose entries have very different sizes: a speed of at most 0.07 beside a position
    of 1 is nearly invisible to a network, and so to a bonus. RND does this by itself. A batch is
    scored with the moments of what was learnt before it, the very first with its own.

    Scalars of `learn`: those of the method.
    """

    def __init__(self, method: IntrinsicReward, observation_space: gymnasium.Space) -> None:
        super().__init__()
        if not isinstance(observation_space, gymnasium.spaces.Box) or is_image(observation_space):
            raise ValueError(
                f"Standardised needs vectors: a Box, and no image, got {observation_space}"
            )
        if isinstance(method, Combined):
            raise ValueError("standardise the parts of a Combined, not their sum")
        self.method = cast("nn.Module", method)
        self.observed = RunningMoments(observation_space.shape)

    @property
    def learns_first(self) -> bool:
        """Does the method?"""
        return self._method.learns_first

    @property
    def _method(self) -> IntrinsicReward:
        return cast("IntrinsicReward", self.method)

    def _seen(self, batch: Transitions) -> Transitions:
        """The batch as the method sees it."""
        moments: Moments | RunningMoments = self.observed
        if self.observed.count == 0:
            moments = Moments.of(self._rows(batch.obs))
        deviation = moments.variance.sqrt()
        unit = torch.where(deviation > CONSTANT, deviation, 1.0)

        def standardise(rows: Batched) -> Tensor:
            return ((self._rows(rows) - moments.mean) / unit).to(torch.float32)

        return Transitions(
            standardise(batch.obs), batch.action, standardise(batch.next_obs), batch.env
        )

    def _rows(self, rows: Batched) -> Tensor:
        return as_tensor(rows, self.observed.mean.device).to(torch.float64)

    def reward(self, batch: Transitions) -> Tensor:
        """The method's bonus [n]."""
        return self._method.reward(self._seen(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Take in the moments of the batch, then teach the method."""
        self.observed.update(self._rows(batch.obs))
        return self._method.learn(self._seen(batch))
