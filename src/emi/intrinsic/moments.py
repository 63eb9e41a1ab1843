"""Running mean and variance, updated batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from emi.stored_state import expect_tensor


@dataclass(frozen=True)
class Moments:
    """Count, mean and population variance of some rows; float64."""

    count: Tensor  # []
    mean: Tensor  # [...]
    variance: Tensor  # [...]

    @classmethod
    def of(cls, rows: Tensor) -> Moments:
        """The moments of [n, ...]. The variance of one row is 0, not NaN."""
        rows = rows.to(torch.float64)
        count = torch.tensor(float(len(rows)), dtype=torch.float64, device=rows.device)
        return cls(count, rows.mean(0), rows.var(0, correction=0))

    def merge(self, other: Moments) -> Moments:
        """The moments of the union of both sets of rows (Chan, Golub, LeVeque, 1979)."""
        count = self.count + other.count
        share = other.count / count
        delta = other.mean - self.mean
        mean = self.mean + delta * share
        variance = (
            self.variance * (1 - share)
            + other.variance * share
            + delta.square() * share * (1 - share)
        )
        return Moments(count, mean, variance)


class RunningMoments(nn.Module):
    """Moments of all rows seen so far, as buffers; the count is 0 before the first."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.zeros(shape, dtype=torch.float64))

    def with_rows(self, rows: Tensor) -> Moments:
        """The moments after [n, *shape] more rows; nothing is stored."""
        return Moments(self.count, self.mean, self.variance).merge(Moments.of(rows))

    def update(self, rows: Tensor) -> None:
        """Add [n, *shape] rows to the moments."""
        self.store(self.with_rows(rows))

    def store(self, moments: Moments) -> None:
        """Replace the moments by those that `with_rows` returned."""
        self.count, self.mean, self.variance = moments.count, moments.mean, moments.variance

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        for name in ("count", "variance"):
            own = getattr(self, name)
            expect_tensor(state[name], own.shape, own.dtype, f"{place}.{name}", low=0)
