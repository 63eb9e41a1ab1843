"""The derivative of a network's output along a change of its weights, for TRPO's Fisher product.

Written by hand: with convolutions, autograd (forward mode, or two backward passes) takes about
twice as long.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from emi.nets import FlatImages


def push_forward(
    net: Iterable[nn.Module], x: Tensor, change: Mapping[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """`net`(x), and its derivative, without a graph, along `change`: a tensor per parameter."""
    tangent: Tensor | None = None  # of x, which does not change
    for layer in net:
        y = layer(x)
        with torch.no_grad():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                assert layer.bias is not None
                own = _affine(layer, x, change[layer.weight], change[layer.bias])
                through = 0 if tangent is None else _affine(layer, tangent, layer.weight, None)
                tangent = own + through
            elif tangent is not None:
                flat = isinstance(layer, FlatImages)
                tangent = layer(tangent) if flat else tangent * _slope(layer, y)
        x = y
    assert tangent is not None, "a network without weights"
    return x, tangent


def _affine(layer: nn.Linear | nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The output of the layer for x with other weights."""
    if isinstance(layer, nn.Linear):
        return functional.linear(x, weight, bias)
    return functional.conv2d(x, weight, bias, layer.stride, layer.padding)


def _slope(activation: nn.Module, y: Tensor) -> Tensor:
    """The derivative of an activation where its value is y."""
    match activation:
        case nn.ReLU():
            return y > 0
        case nn.Tanh():
            return 1 - y.square()
        case nn.ELU(alpha=alpha):
            return torch.where(y > 0, 1.0, y + alpha)
        case nn.LeakyReLU(negative_slope=slope):
            return torch.where(y > 0, 1.0, slope)
    raise TypeError(f"no derivative is known for {activation}")
