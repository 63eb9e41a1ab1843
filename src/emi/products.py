"""Products of matrices in less time than PyTorch's, with the same bits on the processors tested.

PyTorch multiplies float32 matrices with MKL, which does not use AVX-512 on AMD processors. An
operator of torch.compile calls oneDNN, which does. Both add the products of an entry one after the
other, MKL in blocks of at most 192 (measured): up to there the bits are equal. This was checked on
an AMD processor with AVX-512.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_onednn: Any = None
if torch.backends.mkldnn.is_available():
    _onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_BLOCK = 192
NARROW = 16  # MKL has other kernels for fewer columns, with other sums
_WORTH = 2**20  # multiplications of a product that take longer than to call oneDNN


def _in_onednn(x: Tensor, weight: Tensor) -> bool:
    outputs, inputs = weight.shape
    if _onednn is None or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        return False  # it would take a thousand times as long
    if inputs > _BLOCK or outputs < NARROW or len(x) < NARROW:
        return False
    return len(x) * inputs * outputs >= _WORTH


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x weightᵀ + bias: [n, inputs], [outputs, inputs] to [n, outputs]; adds the bias first."""
    if _in_onednn(x, weight):
        y: Tensor = _onednn(x, weight, bias, "none", [], None)
        return y
    return functional.linear(x, weight, bias)


def multiply_add(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    """x weightᵀ + other: [n, inputs], [outputs, inputs] to [n, outputs]; adds `other` last."""
    if other.dim() == 1 and _in_onednn(x, weight):
        return linear(x, weight, other)
    if _in_onednn(x, weight):
        y: Tensor = _onednn.binary(x, other, weight, None, "add")
        return y
    return torch.mm(x, weight.t()).add_(other)


def weight_gradient(u: Tensor, x: Tensor) -> Tensor:
    """uᵀ x: [n, outputs], [n, inputs] to [outputs, inputs]."""
    if _tall(u, x):
        return torch.mm(x.t(), u).t()
    return torch.mm(u.t(), x)


def _tall(u: Tensor, x: Tensor) -> bool:
    """Whether xᵀ u has the same sums as uᵀ x and takes less time; narrow ones have other sums."""
    return u.shape[1] > x.shape[1] >= NARROW


# The same for many products of the same shape: what can be decided once is decided here.


def linear_with(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """`linear` for inputs of so many rows, whose result is lost with the next call.

    The weights may change in place.
    """
    like = weight.new_empty(rows, weight.shape[1])
    if _in_onednn(like, weight):
        return lambda x: _onednn(x, weight, bias, "none", [], None)
    transposed, out = weight.t(), weight.new_empty(rows, len(weight))
    if bias is None:
        return lambda x: torch.mm(x, transposed, out=out)
    return lambda x: torch.addmm(bias, x, transposed, out=out)


def weight_gradient_into(out: Tensor, u: Tensor) -> Callable[[Tensor], object]:
    """`weight_gradient` of u, which changes in place, and x, written to `out`."""
    if _tall(u, out):
        product = out.new_empty(out.t().shape)
        transposed = product.t()

        def multiply(x: Tensor) -> None:
            torch.mm(x.t(), u, out=product)
            out.copy_(transposed)

        return multiply
    u_t = u.t()
    return lambda x: torch.mm(u_t, x, out=out)
