"""The gradient of RND's loss for fully connected predictors, bit for bit that of autograd.

For small minibatches, autograd takes as long again as the element-wise operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

aten = torch.ops.aten


class DenseLayer(NamedTuple):
    """A linear layer and the activation of its outputs."""

    linear: nn.Linear
    activation: nn.LeakyReLU | nn.ReLU | None


def dense_layers(modules: Sequence[nn.Module]) -> list[DenseLayer] | None:
    """Linear layers with the (leaky) ReLU after each; None if there are other modules."""
    layers: list[DenseLayer] = []
    for module in modules:
        if isinstance(module, nn.Linear):
            layers.append(DenseLayer(module, None))
        elif isinstance(module, nn.LeakyReLU | nn.ReLU) and layers and not layers[-1].activation:
            layers[-1] = layers[-1]._replace(activation=module)
        else:
            return None
    return layers


@torch.no_grad()
def write_gradient(layers: Sequence[DenseLayer], x: Tensor, target: Tensor) -> Tensor:
    """Write the gradient of L = mean of (f̂(x) − target)² to `.grad`; return L, a scalar.

    `x` is [n, inputs], `target` [n, k].
    """
    outputs = [x]
    for linear, activation in layers:
        a = torch.addmm(linear.bias, outputs[-1], linear.weight.t())
        outputs.append(a if activation is None else activation(a))  # in place

    difference = outputs[-1].sub_(target)
    n, k = difference.shape
    loss = difference.square().mean(1).mean()
    d = difference.mul_(2).mul_(torch.ones((), dtype=x.dtype, device=x.device) / n / k)  # ∂L/∂f̂
    for i in reversed(range(len(layers))):
        linear, activation = layers[i]
        if isinstance(activation, nn.LeakyReLU):
            slope, a = activation.negative_slope, outputs[i + 1]
            aten.leaky_relu_backward.grad_input(d, a, slope, True, grad_input=d)
        elif activation is not None:
            aten.threshold_backward.grad_input(d, outputs[i + 1], 0, grad_input=d)
        linear.weight.grad = torch.mm(d.t(), outputs[i])
        linear.bias.grad = d.sum(0)
        if i > 0:
            d = torch.mm(d, linear.weight)
    return loss
