"""A policy's network outside of PyTorch's autograd, for the small batches of environment steps."""

from collections.abc import Callable

import torch
from torch import nn

from emi.agent.acting import ActingLayer, ActingNetwork
from emi.batch import Array
from emi.nets import Flat, Pixels


def reads_vectors(trunk: nn.Sequential) -> bool:
    """Whether a trunk can be evaluated in NumPy; convolutions stay in PyTorch."""
    return not isinstance(trunk[0], Pixels)


def in_numpy(trunk: nn.Sequential, head: nn.Linear) -> Callable[[Array], Array]:
    """obs [n, ...] to head(trunk(obs)) [n, outputs]; valid until the weights change."""
    if reads_vectors(trunk):
        return network_of(trunk, head).function()
    device = head.weight.device

    def through_torch(obs: Array) -> Array:
        with torch.inference_mode():
            return head(trunk(torch.as_tensor(obs, device=device))).cpu().numpy()

    return through_torch


def network_of(trunk: nn.Sequential, head: nn.Linear) -> ActingNetwork:
    """The fully connected layers of a policy; on the CPU they share memory with it."""
    layers: list[ActingLayer] = []
    weights: list[Array] = []
    for module in (*trunk, head):
        match module:
            case Flat():
                pass  # the network flattens what it reads
            case nn.Linear():
                layers.append(ActingLayer("linear"))
                weights += [p.detach().cpu().numpy() for p in (module.weight, module.bias)]
            case nn.Tanh():
                layers.append(ActingLayer("tanh"))
            case nn.ReLU():
                layers.append(ActingLayer("relu"))
            case nn.ELU(alpha=alpha):
                layers.append(ActingLayer("elu", alpha))
            case nn.LeakyReLU(negative_slope=slope):
                layers.append(ActingLayer("leaky_relu", slope))
            case _:
                raise TypeError(f"no NumPy version of {module} is known")
    return ActingNetwork(layers, weights)
