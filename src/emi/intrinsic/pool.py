"""A bounded memory of past rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from emi.errors import UserError
from emi.stored_state import EXTRA, expect, expect_int, expect_tensor


class Pool(nn.Module):
    """The last `capacity` rows; the oldest are overwritten first.

    They are part of the state and in main memory on every device; it grows with their number.
    A stored state must have rows of `shape` and `dtype`, if these are given.
    """

    def __init__(
        self,
        capacity: int,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.capacity = capacity
        self.shape, self.dtype = shape, dtype
        self._rows: Tensor | None = None
        self._size = 0
        self._next = 0  # the slot of the next row

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Tensor:
        """The stored rows, [size, ...], in the order of their slots."""
        if self._rows is None:
            raise ValueError("the pool is empty")
        return self._rows[: self._size]

    def add(self, rows: Tensor) -> None:
        """Add [n, ...] rows; only the last ones if more than `capacity`."""
        rows = rows[-self.capacity :].cpu()
        self._reserve(rows)
        assert self._rows is not None
        slots = (self._next + torch.arange(len(rows))) % self.capacity
        self._rows[slots] = rows
        self._next = (self._next + len(rows)) % self.capacity
        self._size = min(self._size + len(rows), self.capacity)

    def _reserve(self, rows: Tensor) -> None:
        """Allocate memory for `rows`: at least twice the old size, so that growing is cheap."""
        have = 0 if self._rows is None else len(self._rows)
        need = min(self._size + len(rows), self.capacity)
        if have >= need:
            return
        bigger = rows.new_zeros(min(max(need, 2 * have), self.capacity), *rows.shape[1:])
        if self._rows is not None:
            bigger[: self._size] = self._rows[: self._size]
        self._rows = bigger

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw [n, ...] rows uniformly, with replacement."""
        return self.rows[torch.randint(self._size, (n,), generator=generator)]

    def newest(self, n: int) -> Tensor | None:
        """The last n rows, or all if there are fewer, the oldest first; None if there are none."""
        n = min(n, self._size)
        if n <= 0:
            return None
        return self.rows[(self._next - n + torch.arange(n)) % self.capacity]

    def get_extra_state(self) -> dict[str, Any]:
        return {"rows": None if self._rows is None else self.rows, "next": self._next}

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        rows, position = state[EXTRA]["rows"], state[EXTRA]["next"]
        size = 0
        if rows is not None:
            is_rows = isinstance(rows, Tensor) and rows.ndim > 0
            expect(is_rows, rows, f"{place}.rows", "a tensor of rows")
            size = len(rows)
            if self.shape is not None:
                expect_tensor(rows, (size, *self.shape), self.dtype, f"{place}.rows")
            if not 0 < size <= self.capacity:
                raise UserError(f"{place}.rows has {size} rows, expected 1 to {self.capacity}")
        # Until the pool is full, the next row comes after the last one.
        low, high = (0, self.capacity - 1) if size == self.capacity else (size, size)
        expect_int(position, low, high, f"{place}.next")

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_stored({EXTRA: state}, "pool")
        # A copy: otherwise two pools would share memory.
        self._rows = None if state["rows"] is None else state["rows"].clone()
        self._size = 0 if self._rows is None else len(self._rows)
        self._next = state["next"]
