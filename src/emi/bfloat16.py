"""The paper's convolutions in bfloat16: about half the time of float32, with its own rounding.

bfloat16 has the range of float32 and 8 significant bits. Weights stay float32 and are rounded for
each pass; sums are float32. A pixel is exact, as a whole number from −128 to 127: the scale to
[−1, 1] is moved into the weights of the first layer.

Convolutions whose kernel is two strides wide are computed as convolutions of 2×2 on blocks of
stride × stride pixels, and the gradient of their input as one of 2×2 to such blocks. oneDNN takes
half the time for these. All tensors have a layout that it has fast kernels for: with others, for
example a part of a matrix, it takes a thousand times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from emi.nets import FlatImages, Pixels

Arithmetic = Literal["float32", "bfloat16"]
_aten = torch.ops.aten
_SCALE, _OFFSET = 2 / 255, 1 / 255  # a pixel p is read as 2p/255 − 1 = _SCALE (p − 128) + _OFFSET
_SIGN = -0x7F7F7F80  # 0x80 in each of four bytes: p XOR 0x80 is p − 128 as a signed byte


@functools.cache
def in_hardware() -> bool:
    """Whether this processor multiplies bfloat16; otherwise it would be slower than float32."""
    checks: list[Callable[[], bool]] = [
        getattr(torch.cpu, name, lambda: False)
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    ]
    return torch.backends.mkldnn.is_available() and any(check() for check in checks)


class Trunk(NamedTuple):
    """The layers of `emi.nets.conv_trunk` after its pixels."""

    first: nn.Conv2d
    second: nn.Conv2d
    top: nn.Linear

    @classmethod
    def of(cls, layers: nn.Module) -> Trunk:
        """TypeError if the layers are others."""
        match [x for x in layers.children() if not isinstance(x, Pixels | nn.ReLU | FlatImages)]:
            case [nn.Conv2d() as first, nn.Conv2d() as second, nn.Linear() as top]:
                return cls(first, second, top)
        raise TypeError("only the paper's convolutions can be computed in bfloat16")

    @property
    def parameters(self) -> list[Tensor]:
        """Weights and biases, in the order of the layers."""
        return [p for layer in self for p in (layer.weight, layer.bias) if p is not None]


def blocks(frames: Tensor, stride: int = 4) -> Tensor:
    """Images [n, C, H, W] of pixels 0 to 255 to bfloat16 [n, C · stride², H / stride, W / stride].

    Pixels that no kernel of two strides covers are left out. Channels are (C, row, column).
    """
    n, channels, height, width = frames.shape
    rows, columns = height // stride, width // stride
    frames = frames[:, :, : rows * stride, : columns * stride].to(torch.uint8).contiguous()
    # Four pixels of a row are moved as one number.
    packed = frames.view(torch.int32).view(n, channels, rows, stride, columns, stride // 4)
    packed = packed.permute(0, 2, 4, 1, 3, 5).contiguous().bitwise_xor_(_SIGN)
    pixels = packed.view(torch.int8).to(torch.bfloat16)
    return pixels.view(n, rows, columns, -1).permute(0, 3, 1, 2)


class RoundedWeights(NamedTuple):
    """Weights or changes of them, rounded, in the layout of the products."""

    first: Tensor  # [filters, C · stride², 2, 2], for blocks
    first_bias: Tensor
    second: Tensor  # [filters, channels, kernel, kernel]
    second_bias: Tensor
    top: Tensor  # [units, inputs]
    top_bias: Tensor


def rounded(first: Tensor, first_bias: Tensor, *others: Tensor) -> RoundedWeights:
    """Of `Trunk.parameters`, float32."""
    filters, channels, kernel, _ = first.shape
    stride = kernel // 2
    parts = (first * _SCALE).view(filters, channels, 2, stride, 2, stride)
    on_blocks = parts.permute(0, 1, 3, 5, 2, 4).reshape(filters, -1, 2, 2)
    on_blocks = on_blocks.to(torch.bfloat16, memory_format=torch.channels_last)
    offset = on_blocks.float().sum((1, 2, 3)).mul_(_OFFSET / _SCALE)
    second, *rest = (p.to(torch.bfloat16) for p in others)
    second = second.contiguous(memory_format=torch.channels_last)
    return RoundedWeights(on_blocks, (first_bias + offset).to(torch.bfloat16), second, *rest)


def _unrounded(gradients: RoundedWeights, shape: torch.Size) -> list[Tensor]:
    """The gradients of `Trunk.parameters` from those of `rounded`; `shape` is the first one's."""
    filters, channels, kernel, _ = shape
    stride = kernel // 2
    parts = gradients.first.float().reshape(filters, channels, stride, stride, 2, 2)
    first = parts.permute(0, 1, 4, 2, 5, 3).reshape(shape).mul_(_SCALE)
    others = [gradient.float() for gradient in gradients[1:]]
    first.add_(others[0].view(-1, 1, 1, 1), alpha=_OFFSET)
    return [first.contiguous(memory_format=torch.channels_last), *others]


class Outputs(NamedTuple):
    """Inputs and outputs of the layers, bfloat16."""

    x: Tensor  # of `blocks`
    first: Tensor  # [n, channels, height, width]
    second: Tensor
    flat: Tensor  # the same as `second`, [n, entries]
    top: Tensor  # [n, units]


def forward(weights: RoundedWeights, x: Tensor) -> Outputs:
    first = functional.conv2d(x, weights.first, weights.first_bias).relu_()
    stride = weights.second.shape[-1] // 2
    second = functional.conv2d(first, weights.second, weights.second_bias, stride).relu_()
    flat = second.permute(0, 2, 3, 1).flatten(1)
    top = functional.linear(flat, weights.top, weights.top_bias).relu_()
    return Outputs(x, first, second, flat, top)


def backward(
    weights: RoundedWeights, outputs: Outputs, d: Tensor, shape: torch.Size
) -> list[Tensor]:
    """The gradients of `Trunk.parameters` for a gradient d [n, units] of the output."""
    x, first, second, flat, top = outputs
    d_top = _where_positive(d.to(torch.bfloat16), top)
    d_flat = _where_positive(d_top @ weights.top, flat)
    n, _, height, width = second.shape
    d_second = d_flat.view(n, height, width, -1).permute(0, 3, 1, 2)
    stride = weights.second.shape[-1] // 2
    d_first = _where_positive(_input_gradient(d_second, weights.second, first.shape), first)
    gradients = RoundedWeights(
        *_weight_gradients(d_first, x, weights.first, 1),
        *_weight_gradients(d_second, first, weights.second, stride),
        d_top.t() @ flat,
        d_top.sum(0),
    )
    return _unrounded(gradients, shape)


def _where_positive(d: Tensor, y: Tensor) -> Tensor:
    """The gradient d of max(x, 0) = y, by x; overwrites d."""
    found: Tensor = _aten.threshold_backward.grad_input(d, y, 0, grad_input=d)
    return found


def _weight_gradients(d: Tensor, x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    geometry = ([stride, stride], [0, 0], [1, 1], False, [0, 0], 1)
    wanted = [False, True, True]
    _, by_weight, by_bias = _aten.convolution_backward(
        d, x, weight, [len(weight)], *geometry, wanted
    )
    return by_weight, by_bias


def _input_gradient(d: Tensor, weight: Tensor, shape: torch.Size) -> Tensor:
    """The gradient of the input of a convolution, of `shape`, for a gradient d of its output.

    An input pixel in row `stride · Y + y` is read by the outputs in the rows Y and Y − 1.
    """
    filters, channels, kernel, _ = weight.shape
    stride = kernel // 2
    parts = weight.contiguous().view(filters, channels, 2, stride, 2, stride)
    parts = parts.permute(3, 5, 1, 0, 2, 4).flip(4, 5).reshape(-1, filters, 2, 2)
    found = functional.conv2d(d, parts.contiguous(memory_format=torch.channels_last), padding=1)
    n, _, rows, columns = found.shape
    found = found.permute(0, 2, 3, 1).reshape(n, rows, columns, stride, stride, channels)
    found = found.transpose(2, 3).reshape(n, rows * stride, columns * stride, channels)
    missing = shape[2] - rows * stride, shape[3] - columns * stride
    if any(missing):  # pixels that no kernel covers
        found = functional.pad(found, (0, 0, 0, missing[1], 0, missing[0]))
    return found.permute(0, 3, 1, 2)


def push_forward(weights: RoundedWeights, change: RoundedWeights, outputs: Outputs) -> Tensor:
    """The change [n, units] of the output for a small change of the weights."""
    x, first, second, flat, top = outputs
    stride = weights.second.shape[-1] // 2
    t = _where_positive(functional.conv2d(x, change.first, change.first_bias), first)
    t = functional.conv2d(t, weights.second, None, stride).add_(
        functional.conv2d(first, change.second, change.second_bias, stride)
    )
    t = _where_positive(t, second).permute(0, 2, 3, 1).flatten(1)
    t = functional.linear(t, weights.top, change.top_bias).add_(functional.linear(flat, change.top))
    return _where_positive(t, top)


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.shape, ctx.weights = parameters[0].shape, rounded(*parameters)
        ctx.outputs = forward(ctx.weights, x)
        return ctx.outputs.top.float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *backward(ctx.weights, ctx.outputs, gradients[0], ctx.shape)


def features(trunk: Trunk, x: Tensor) -> Tensor:
    """The output [n, units] of the layers, float32, for the result of `blocks`."""
    found: Tensor = _Features.apply(x, *trunk.parameters)
    return found


class Reader(NamedTuple):
    """How networks read observations: `read` once, then `features` of each network."""

    arithmetic: Arithmetic  # in effect
    read: Callable[[Tensor], Tensor]
    features: Callable[[nn.Module, Tensor], Tensor]  # of the layers after the first


def reader(entries: nn.Module, arithmetic: Arithmetic) -> Reader:
    """`entries` is the first layer of the networks. Without images of bytes, float32 is used.

    So it is on processors that cannot multiply bfloat16.
    """
    if arithmetic == "float32" or not isinstance(entries, Pixels) or not in_hardware():
        return Reader("float32", entries, lambda layers, x: layers(x))
    if entries.frame_space.dtype != np.uint8:
        return Reader("float32", entries, lambda layers, x: layers(x))
    return Reader(
        "bfloat16",
        lambda obs: blocks(entries.frames(obs)),
        lambda layers, x: features(Trunk.of(layers), x),
    )
