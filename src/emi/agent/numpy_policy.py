"""A policy's network evaluated in NumPy, for the small batches of environment steps.

For ten environments, PyTorch's dispatcher costs more than the arithmetic of a small network.
"""

from collections.abc import Callable

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

    layers = [_layer(module) for module in (*trunk, head)]

    def through_numpy(obs: Array) -> Array:
        for layer in layers:
            obs = layer(obs)
        return obs

    return through_numpy


def _layer(module: nn.Module) -> Callable[[Array], Array]:
    match module:
        case Flat():
            return lambda obs: obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        case nn.Linear():
            weight, bias = (p.detach().cpu().numpy() for p in (module.weight, module.bias))
            return lambda x: x @ weight.T + bias
        case nn.Tanh():
            return np.tanh
        case nn.ReLU():
            return lambda x: np.maximum(0, x)
        case nn.ELU(alpha=alpha):
            return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
        case nn.LeakyReLU(negative_slope=slope):
            return lambda x: np.where(x > 0, x, slope * x)
    raise TypeError(f"no NumPy version of {module} is known")
