"""Division of a bonus by the running standard deviation of its discounted sums, as in RND."""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emi.batch import FloatArray, IntArray
from emi.intrinsic.moments import RunningMoments
from emi.stored_state import expect, expect_tensor


def discounted_sums(
    bonus: FloatArray, env_index: IntArray, last: FloatArray, discount: float
) -> tuple[FloatArray, FloatArray]:
    """R_t = γ R_{t−1} + r_t over the rows of each environment, across episode ends.

    `bonus` and `env_index` are [n]; `last` [envs] is the last R of each environment, 0 for new
    ones. Returns R of every row, [n], and the new `last`, [envs] or longer.
    """
    sums = np.empty_like(bonus)
    after = np.zeros(max(len(last), int(env_index.max()) + 1))
    after[: len(last)] = last
    for e in np.unique(env_index):
        rows, start = np.flatnonzero(env_index == e), float(after[e])
        steps = accumulate(bonus[rows].tolist(), lambda R, r: discount * R + r, initial=start)
        sums[rows] = list(steps)[1:]
        after[e] = sums[rows[-1]]
    return sums, after


def discounted_sums_on_device(
    bonus: Tensor, env_index: Tensor, last: Tensor, discount: float
) -> tuple[Tensor, Tensor]:
    """What `discounted_sums` returns, for tensors and on their device, up to rounding.

    Log₂ of the longest stream is the number of steps, each over all rows: a scan that doubles its
    reach. On a device this is faster than a loop over time, and nothing leaves the device.
    """
    after = bonus.new_zeros(max(len(last), int(env_index.max()) + 1))
    after[: len(last)] = last
    counts = torch.bincount(env_index, minlength=len(after))  # [envs]
    order = torch.argsort(env_index, stable=True)
    stream = env_index[order]
    place = torch.arange(len(bonus), device=bonus.device) - (counts.cumsum(0) - counts)[stream]
    length = int(counts.max())
    grid = bonus.new_zeros(length, len(after))  # [time, env]; shorter streams end in zeros
    grid[place, stream] = bonus[order]
    grid[0] += discount * after
    reach = 1
    while reach < length:
        grid[reach:] = grid[reach:] + discount**reach * grid[:-reach]
        reach *= 2
    sums = torch.empty_like(bonus)
    sums[order] = grid[place, stream]
    newest = grid.gather(0, (counts - 1).clamp(min=0)[None])[0]
    return sums, torch.where(counts > 0, newest, after)


class BonusScale:
    """The divisor of a bonus: the standard deviation of all R so far, including the current batch.

    R is the sum of `discounted_sums`, `sums` its moments. The method stores `sums` and `last`.
    """

    def __init__(self, sums: RunningMoments, discount: float) -> None:
        self.sums, self.discount = sums, discount
        # R_0 = 0 counts, so that a first batch of one row has a standard deviation, R_1 / 2.
        sums.update(torch.zeros(1))
        # [envs], the last R of each environment
        self.last: Tensor = torch.zeros(1, dtype=torch.float64)

    @property
    def value(self) -> float:
        """The divisor of the last batch."""
        return self.sums.variance.sqrt().item()

    def _discounted(
        self, bonus: Tensor, env_index: IntArray | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """R of each row, [n], and the last R of each environment.

        Tensors stay on their device if `env_index` is one too.
        """
        if isinstance(env_index, Tensor):
            index, last = env_index.to(bonus.device).clamp(min=0), self.last.to(bonus.device)
            return discounted_sums_on_device(bonus.double(), index, last, self.discount)
        stream = np.zeros(len(bonus), np.int64) if env_index is None else np.maximum(env_index, 0)
        rows = bonus.double().cpu().numpy()
        sums, after = discounted_sums(rows, stream, self.last.cpu().numpy(), self.discount)
        return torch.from_numpy(sums).to(bonus.device), torch.from_numpy(after)

    def divide(self, bonus: Tensor, env_index: IntArray | Tensor | None) -> Tensor:
        """Divide [n] bonuses by the scale, which includes them; nothing is stored.

        Rows in no order have no running sums. They are divided by the scale of the rows so far, if
        there is one.
        """
        if env_index is not None and (env_index < 0).all() and self.sums.variance > 0:
            return bonus / self.sums.variance.sqrt()
        return self.divided(bonus, env_index)[0]

    def update(self, bonus: Tensor, env_index: IntArray | Tensor | None) -> None:
        """Update the scale by [n] bonuses, before their division."""
        self.divided(bonus, env_index)[1]()

    def divided(
        self, bonus: Tensor, env_index: IntArray | Tensor | None
    ) -> tuple[Tensor, Callable[[], None]]:
        """What `divide` returns, and a function that does what `update` does."""
        sums, last = self._discounted(bonus, env_index)
        moments = self.sums.with_rows(sums)

        def store() -> None:
            self.last = last
            self.sums.store(moments)

        # The scale is 0 only if every bonus so far is 0, this one included.
        scale = moments.variance.sqrt().clamp(min=torch.finfo(bonus.dtype).tiny)
        return bonus / scale, store

    def stored(self) -> dict[str, Tensor]:
        """What a method stores besides `sums`."""
        return {"last": self.last}

    def check_stored(self, state: Mapping[str, Any], place: str) -> None:
        last = state["last"]
        vector = isinstance(last, Tensor) and last.ndim == 1 and len(last) > 0
        expect(vector, last, f"{place}.last", "a vector of at least one number")
        expect_tensor(last, last.shape, torch.float64, f"{place}.last")

    def restore(self, state: Mapping[str, Any]) -> None:
        self.check_stored(state, "the state")
        self.last = state["last"].clone()
