"""Large batches in pieces: the images of a whole iteration need not become floats at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from emi.data import Batched, as_tensor

ROWS = 8_192  # rows per forward pass when nothing is learnt


def pieces(rows: Batched, device: torch.device | str) -> Iterator[Tensor]:
    """The rows in order as tensors on `device`, at most `ROWS` at a time."""
    for start in range(0, len(rows), ROWS):
        yield as_tensor(rows[start : start + ROWS], device)


def in_pieces(
    function: Callable[..., Tensor], device: torch.device | str, *columns: Batched
) -> Tensor:
    """`function` of the columns, row by row the same as at once; no gradients."""
    with torch.no_grad():
        parts = zip(*(pieces(column, device) for column in columns), strict=True)
        return torch.cat([function(*part) for part in parts])
