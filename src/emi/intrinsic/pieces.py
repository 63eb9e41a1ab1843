"""Large batches in pieces: the images of a whole iteration need not become floats at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from emi.data import Batched, as_tensor

ROWS = 8_192  # most rows in a piece
ENTRIES = 2**22  # most entries in a piece: a convolution makes several times as many of them


def pieces(*columns: Batched, device: torch.device | str) -> Iterator[tuple[Tensor, ...]]:
    """The columns in order as tensors on `device`, the same rows of each at a time."""
    widest = max(math.prod(column[:1].shape) for column in columns)
    rows = max(1, min(ROWS, ENTRIES // max(1, widest)))
    for start in range(0, len(columns[0]), rows):
        yield tuple(as_tensor(column[start : start + rows], device) for column in columns)


def in_pieces(
    function: Callable[..., Tensor], device: torch.device | str, *columns: Batched
) -> Tensor:
    """`function` of the columns, row by row the same as at once; no gradients."""
    with torch.no_grad():
        return torch.cat([function(*part) for part in pieces(*columns, device=device)])
