"""How a method reads observations: any supported space as vectors or images, checked.

reading = Reading(observation_space)
net = trunk(reading.space, …)
batch = reading(batch)          # in `reward`: observations are rows of reading.space
batch = reading.learn(batch)    # in `learn`: also updates the moments
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from emi.batch import Batched, Columns, Transitions, as_tensor, check_batch, map_columns
from emi.images import is_image
from emi.intrinsic.moments import Moments, RunningMoments
from emi.spaces import readable

CONSTANT = 1e-8  # an entry with a smaller standard deviation is constant: centred, not scaled


class Reading(nn.Module):
    """Observations of any supported space, as rows of `space`: float vectors, or images.

    `emi.spaces.readable` says what becomes of each kind of space. With `normalize`, vectors are
    (s − mean) / standard deviation, per entry, over all states s that were learned so far. The
    moments are part of the state. They do not change while a batch is scored: it is read with the
    moments of earlier batches, the first batch with its own.

    A batch with a number that is NaN or infinite raises NotFiniteError before anything changes.
    """

    space: Box

    def __init__(self, observation_space: gymnasium.Space, *, normalize: bool = False) -> None:
        super().__init__()
        self._convert: Callable[[Any], Any] | None = None
        # Arrays are passed on as they are: the first layer of a network flattens them.
        if isinstance(observation_space, Box):
            self.space = observation_space
        else:
            found = readable(observation_space)
            self.space, self._convert = found.box, found.read
        vectors = not is_image(self.space)
        self.observed = RunningMoments(self.space.shape) if normalize and vectors else None

    @property
    def normalizes(self) -> bool:
        """Whether vectors are normalised; images are not."""
        return self.observed is not None

    def forward(self, batch: Transitions) -> Transitions:
        """The batch with observations of `space`; nothing is stored."""
        check_batch(batch)
        obs, next_obs = self._rows(batch.obs), self._rows(batch.next_obs)
        if self.observed is not None:
            moments = self._moments(obs)
            obs, next_obs = (self._normalized(rows, moments) for rows in (obs, next_obs))
        return replace(batch, obs=obs, next_obs=next_obs)

    def learn(self, batch: Transitions) -> Transitions:
        """Update the moments by the batch; return it as `forward` does."""
        if self.observed is not None:
            check_batch(batch)
            self.observed.update(self._floats(self._rows(batch.obs)))
        return self(batch)

    def observations(self, obs: Columns) -> Batched:
        """Rows of `space` for observations alone, [n, *observation]."""
        rows = self._rows(obs)
        return rows if self.observed is None else self._normalized(rows, self._moments(rows))

    def _rows(self, obs: Any) -> Batched:
        """Observations as rows of `space`, before they are normalised."""
        return obs if self._convert is None else self._convert(_arrays(obs))

    def _moments(self, obs: Batched) -> Moments | RunningMoments:
        assert self.observed is not None
        return self.observed if self.observed.count > 0 else Moments.of(self._floats(obs))

    def _floats(self, rows: Batched) -> Tensor:
        assert self.observed is not None
        return as_tensor(rows, self.observed.mean.device).to(torch.float64)

    def _normalized(self, rows: Batched, moments: Moments | RunningMoments) -> Tensor:
        return normalized(self._floats(rows), moments)


def normalized(rows: Tensor, moments: Moments | RunningMoments) -> Tensor:
    """(rows − mean) / standard deviation, per entry; [n, *entries] to float32 [n, *entries]."""
    std = moments.variance.sqrt()
    unit = torch.where(std > CONSTANT, std, 1.0)
    return ((rows.to(torch.float64) - moments.mean) / unit).to(torch.float32)


def _arrays(columns: Columns) -> Columns:
    """Columns of any kind as arrays in main memory."""
    return map_columns(lambda c: np.asarray(c.cpu() if isinstance(c, Tensor) else c), columns)
