"""A network at fixed inputs and weights: its output, and products with its Jacobian in the weights.

TRPO needs ten of each kind per step. Written by hand: autograd takes longer (vectors: 1.9 ms per
product instead of 1.2), because it repeats the forward pass and stores more. On vectors in one
slice and images in several, the bits are those of autograd: the same products of matrices, and
sums in the same order. This was checked on an AMD processor with AVX-512.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from emi import bfloat16
from emi.nets import Flat, FlatImages, Pixels
from emi.products import linear, multiply_add, weight_gradient

_aten = torch.ops.aten


class Linearised:
    """`net`(x) [n, outputs] and its Jacobian J in the weights; keeps the input of every layer."""

    def __init__(self, net: Iterable[nn.Module], x: Tensor, *, part_of_rows: bool = False) -> None:
        """`part_of_rows`: the outputs are a part of the rows of a wider matrix."""
        self._part_of_rows = part_of_rows
        self._images = False
        # Of each layer: its input if it has weights, its output if it is an activation.
        self._steps: list[tuple[nn.Module, Tensor]] = []
        with torch.no_grad():
            for layer in net:
                match layer:
                    case Pixels():
                        self._images = True
                        x = layer(x)
                    case Flat():
                        x = layer(x)
                    case nn.Linear():
                        self._steps.append((layer, x))
                        x = linear(x, layer.weight, layer.bias)
                    case nn.Conv2d() | FlatImages():
                        self._steps.append((layer, x))
                        x = layer(x)
                    case _:
                        x = x.tanh_() if isinstance(layer, nn.Tanh) and self._steps else layer(x)
                        self._steps.append((layer, x))
        self.out = x

    @property
    def bytes(self) -> int:
        """Memory of what is kept."""
        storages = {v.untyped_storage().data_ptr(): v.nbytes for _, v in self._steps}
        return sum(storages.values()) + self.out.nbytes

    @torch.no_grad()
    def push_forward(self, change: Mapping[Tensor, Tensor]) -> Tensor:
        """J v, [n, outputs], for a change v of the weights: a tensor per parameter."""
        tangent: Tensor | None = None  # of the layer's input; that of the network does not change
        last = self._steps[-1][0]
        for layer, value in self._steps:
            match layer:
                case nn.Linear():
                    assert layer.bias is not None
                    weight, bias = change[layer.weight], change[layer.bias]
                    # What autograd does: with images in forward mode, with vectors in the second
                    # of two backward passes. They differ in rounding only.
                    if self._images:
                        own = linear(value, weight, bias)
                    elif self._part_of_rows and layer is last:
                        own = torch.mm(weight, value.t()).t() + bias
                    else:
                        own = multiply_add(value, weight, bias)
                    tangent = own if tangent is None else multiply_add(tangent, layer.weight, own)
                case nn.Conv2d():
                    assert layer.bias is not None
                    own = _convolve(layer, value, change[layer.weight], change[layer.bias])
                    if tangent is not None:
                        own += _convolve(layer, tangent, layer.weight, None)
                    tangent = own
                case FlatImages():
                    tangent = layer(tangent)
                case _ if tangent is not None:
                    tangent = _times_slope(layer, tangent, value)
        assert tangent is not None, "a network without weights"
        return tangent

    @torch.no_grad()
    def pull_back(self, u: Tensor) -> list[Tensor]:
        """Jᵀ u for u [n, outputs]: a tensor per parameter, in the order of the layers."""
        gradients: list[Tensor] = []
        last = self._steps[-1][0]
        for k, (layer, value) in reversed(list(enumerate(self._steps))):
            match layer:
                case nn.Linear():
                    gradients += [u.sum(0), weight_gradient(u, value)]
                    if k > 0:
                        u = linear(u, layer.weight.t(), None)
                case nn.Conv2d():
                    u, weight, bias = _convolution_gradients(layer, u, value, of_input=k > 0)
                    gradients += [bias, weight]
                case FlatImages():
                    n, channels, height, width = value.shape
                    u = u.view(n, height, width, channels).permute(0, 3, 1, 2)
                case _:
                    u = _times_slope(layer, u if layer is not last else u.clone(), value)
        return gradients[::-1]


class LinearisedImages:
    """As `Linearised`, for the paper's convolutions in bfloat16 and a float32 layer on top."""

    def __init__(self, trunk: nn.Module, head: nn.Linear, x: Tensor) -> None:
        """`x` is the result of `emi.bfloat16.blocks`."""
        self._trunk, self._head = bfloat16.Trunk.of(trunk), head
        with torch.no_grad():
            self._weights = bfloat16.rounded(*self._trunk.parameters)
            self._outputs = bfloat16.forward(self._weights, x)
            self._features = self._outputs.top.float()
            self.out: Tensor = head(self._features)

    @property
    def bytes(self) -> int:
        """Memory of what is kept."""
        kept = {v.untyped_storage().data_ptr(): v.nbytes for v in self._outputs}
        return sum(kept.values()) + self._features.nbytes + self.out.nbytes

    @torch.no_grad()
    def push_forward(self, change: Mapping[Tensor, Tensor]) -> Tensor:
        """J v, [n, outputs], for a change v of the weights: a tensor per parameter."""
        rounded = bfloat16.rounded(*(change[p] for p in self._trunk.parameters))
        tangent = bfloat16.push_forward(self._weights, rounded, self._outputs).float()
        own = functional.linear(self._features, change[self._head.weight], change[self._head.bias])
        return own.add_(functional.linear(tangent, self._head.weight))

    @torch.no_grad()
    def pull_back(self, u: Tensor) -> list[Tensor]:
        """Jᵀ u for u [n, outputs]: a tensor per parameter, in the order of the layers."""
        shape = self._trunk.first.weight.shape
        gradients = bfloat16.backward(
            self._weights, self._outputs, torch.mm(u, self._head.weight), shape
        )
        return [*gradients, weight_gradient(u, self._features), u.sum(0)]


def _convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The output of the layer for x with other weights."""
    return functional.conv2d(x, weight, bias, layer.stride, layer.padding)


def _convolution_gradients(
    layer: nn.Conv2d, u: Tensor, x: Tensor, *, of_input: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in x, the weight and the bias; without `of_input`, the first is undefined."""
    shape = [layer.out_channels]
    geometry = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups)
    wanted = [of_input, True, True]
    found: tuple[Tensor, Tensor, Tensor] = _aten.convolution_backward(
        u, x, layer.weight, shape, *geometry, wanted
    )
    return found


def _times_slope(activation: nn.Module, tangent: Tensor, y: Tensor) -> Tensor:
    """`tangent` times the derivative of an activation where its value is y, in place."""
    match activation:
        case nn.Tanh():
            _aten.tanh_backward.grad_input(tangent, y, grad_input=tangent)
        case nn.ReLU():
            _aten.threshold_backward.grad_input(tangent, y, 0, grad_input=tangent)
        case nn.ELU(alpha=alpha):
            _aten.elu_backward.grad_input(tangent, alpha, 1, 1, True, y, grad_input=tangent)
        case nn.LeakyReLU(negative_slope=slope):
            _aten.leaky_relu_backward.grad_input(tangent, y, slope, True, grad_input=tangent)
        case _:
            raise TypeError(f"no derivative is known for {activation}")
    return tangent
