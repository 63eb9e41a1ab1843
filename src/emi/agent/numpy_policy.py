"""A policy's network evaluated in NumPy, for the small batches of environment steps.

For ten environments, PyTorch's dispatcher costs more than the arithmetic of a small network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from emi.batch import Array
from emi.nets import Flat, Pixels


def in_numpy(trunk: nn.Sequential, head: nn.Linear) -> Callable[[Array], Array]:
    """obs [n, ...] to head(trunk(obs)) [n, outputs]; valid until the weights change."""
    if isinstance(trunk[0], Pixels):  # convolutions stay in PyTorch
        device = head.weight.device

        def through_torch(obs: Array) -> Array:
            with torch.inference_mode():
                return head(trunk(torch.as_tensor(obs, device=device))).cpu().numpy()

        return through_torch

    layers: list[Callable[[Array], Array]] = []
    for module in (*trunk, head):
        match module:
            case nn.Linear():
                weight = module.weight.detach().cpu().numpy().T
                bias = module.bias.detach().cpu().numpy()
                layers.append(partial(_affine, weight, bias))
            case nn.Tanh():
                layers.append(np.tanh)
            case nn.ReLU():
                layers.append(partial(np.maximum, 0))
            case nn.ELU(alpha=alpha):
                layers.append(partial(_elu, alpha))
            case nn.LeakyReLU(negative_slope=slope):
                layers.append(partial(_leaky_relu, slope))
            case Flat():  # `through_numpy` flattens
                pass
            case _:
                raise TypeError(f"no NumPy version of {module} is known")

    def through_numpy(obs: Array) -> Array:
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        for layer in layers:
            x = layer(x)
        return x

    return through_numpy


def _affine(weight: Array, bias: Array, x: Array) -> Array:
    return x @ weight + bias


def _elu(alpha: float, x: Array) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _leaky_relu(slope: float, x: Array) -> Array:
    return np.where(x > 0, x, slope * x)
