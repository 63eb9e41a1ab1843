"""ICM's convolutions: forward and backward pass, bit for bit those of autograd.

A minibatch of images has outputs of more than 100 MB per layer. Autograd requests them from the
system at every step, which clears every page. Here they are computed in small parts, in memory that
all steps share. Only the gradients of the weights, sums over all rows, take the rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

aten = torch.ops.aten
PART_ROWS = 32  # rows that are convolved at a time: their outputs stay in the cache


class Workspace:
    """Outputs of the layers and their gradients, kept from one step to the next."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Tensor] = {}

    def take(self, kind: str, layer: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Memory for [rows, channels, height, width]; what it held before is lost."""
        kept = self._kept.get((kind, layer))
        if kept is None or kept.shape != torch.Size(shape) or kept.device != like.device:
            kept = like.new_empty(shape).to(memory_format=torch.channels_last)
            self._kept[kind, layer] = kept
        return kept


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layers: Sequence[nn.Conv2d], space: Workspace, *weights: Tensor
    ) -> Tensor:
        ctx.layers, ctx.space = layers, space
        outputs = [x]
        for number, conv in enumerate(layers):
            parts = outputs[-1].split(PART_ROWS)
            first, row = conv(parts[0]), 0
            out = space.take("output", number, (len(x), *first.shape[1:]), first)
            for k, part in enumerate(parts):
                convolved = first if k == 0 else conv(part)
                aten.elu.out(convolved, out=out[row : row + len(part)])
                row += len(part)
            outputs.append(out)
        ctx.outputs = outputs
        return outputs[-1].clone()  # the memory is used again

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (d,) = gradients
        outputs, found = ctx.outputs, []
        last = len(ctx.layers) - 1
        d = aten.elu_backward(d, 1, 1, 1, True, outputs[-1])
        for number in reversed(range(last + 1)):
            conv, x = ctx.layers[number], outputs[number]
            _, by_weight, by_bias = _backward(conv, d, x, (False, True, True))
            found += [by_bias, by_weight]
            if number > 0:
                into, row = ctx.space.take("gradient", number, x.shape, x), 0
                for d_part, x_part in zip(d.split(PART_ROWS), x.split(PART_ROWS), strict=True):
                    by_x, _, _ = _backward(conv, d_part, x_part, (True, False, False))
                    rows = into[row : row + len(x_part)]
                    aten.elu_backward.grad_input(by_x, 1, 1, 1, True, x_part, grad_input=rows)
                    row += len(x_part)
                d = into
        return (None, None, None, *reversed(found))


def _backward(conv: nn.Conv2d, d: Tensor, x: Tensor, wanted: tuple[bool, bool, bool]) -> Any:
    """Gradients by the input, the weights and the bias, those that are `wanted`."""
    return aten.convolution_backward(
        d,
        x,
        conv.weight,
        [conv.out_channels],
        conv.stride,
        conv.padding,
        conv.dilation,
        False,
        [0, 0],
        conv.groups,
        wanted,
    )


def convolve(layers: Sequence[nn.Conv2d], x: Tensor, space: Workspace) -> Tensor:
    """ELU after each convolution, [n, C, H, W] to [n, filters, h, w]; x gets no gradient.

    Call `backward` on the result before the next call with the same `space`.
    """
    return _Convolved.apply(x, layers, space, *(p for c in layers for p in (c.weight, c.bias)))
