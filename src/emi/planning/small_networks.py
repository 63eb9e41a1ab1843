"""Small networks on a few rows, with NumPy.

A decision evaluates layers of some dozens of units on one row. PyTorch's overhead per operator is
then most of the time, that of NumPy is a fraction of it. The results are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from emi.batch import Array
from emi.nets import Flat

Function = Callable[[Array], Array]  # float32 [n, k] to [n, d]


def array_of(tensor: Tensor) -> Array:
    """A tensor as an array; on the CPU they share memory."""
    return tensor.detach().cpu().numpy()


def on_arrays(network: nn.Module, device: torch.device | str = "cpu") -> Function:
    """`network` as a function of arrays.

    NumPy computes a sequence of Linear, ReLU and Tanh layers on the CPU. It reads the memory of the
    parameters, so that later gradient steps count. Any other network is called with tensors.
    """
    layers = list(network) if isinstance(network, nn.Sequential) else [network]
    known = all(isinstance(layer, nn.Linear | nn.ReLU | nn.Tanh | Flat) for layer in layers)
    if known and torch.device(device).type == "cpu":
        return _composed([_layer(layer) for layer in layers])

    @torch.no_grad()
    def called(x: Array) -> Array:
        return array_of(network(torch.as_tensor(x, device=device)))

    return called


def _composed(functions: list[Function]) -> Function:
    def function(x: Array) -> Array:
        for layer in functions:
            x = layer(x)
        return x

    return function


def _layer(layer: nn.Module) -> Function:
    if isinstance(layer, nn.ReLU):
        return lambda x: np.maximum(x, 0)
    if isinstance(layer, nn.Tanh):
        return np.tanh
    if isinstance(layer, Flat):
        return lambda x: x.reshape(len(x), -1).astype(np.float32, copy=False)
    assert isinstance(layer, nn.Linear)
    slope = array_of(layer.weight).T  # a view of the parameter's memory
    shift = None if layer.bias is None else array_of(layer.bias)

    def affine(x: Array) -> Array:
        y = x.dot(slope)  # less overhead than @
        if shift is not None:
            y += shift
        return y

    return affine
