"""EX2's discriminator: its forward pass, and the gradient of its loss.

Autograd takes twice as long. All weights are views of one vector, which makes Adam's step cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

_MINUS_ONE = torch.tensor(-1.0)


class Dense(NamedTuple):
    """k parallel layers x W + b, or their gradient."""

    W: Tensor  # [k, inputs, outputs]
    b: Tensor  # [k, 1, outputs]


class Discriminator(NamedTuple):
    """The layers of the discriminator, as views of one vector.

    The exemplar and the other state have an encoder each, k = 2. Each encoder ends in one branch
    for the mean and one for log σ², hence k = 4: both means, then both log σ².
    """

    trunk: list[Dense]
    branch: Dense
    code: Dense
    hidden: Dense
    logit: Dense

    @classmethod
    def of(cls, vector: Tensor, shapes: Sequence[tuple[int, int, int]]) -> Discriminator:
        """Views of `vector`, for the `shapes` that `layer_shapes` gives."""
        parts = iter(vector.split([n for k, i, o in shapes for n in (k * i * o, k * o)]))
        layers = [Dense(next(parts).view(k, i, o), next(parts).view(k, 1, o)) for k, i, o in shapes]
        return cls(layers[:-4], *layers[-4:])


def layer_shapes(sizes: Sequence[int], h: int, f: int) -> list[tuple[int, int, int]]:
    """(k, inputs, outputs) of all layers; `sizes` are those of the trunk, with its inputs."""
    trunk = [(2, *pair) for pair in pairwise(sizes)]
    return [*trunk, (4, sizes[-1], h), (4, h, f), (1, 2 * f, h), (1, h, 1)]


def tanh_layer(x: Tensor, layer: Dense) -> Tensor:
    """tanh(x W + b) as 2 σ(2u) − 1: on many CPUs `sigmoid` is several times as fast as `tanh`."""
    a = torch.baddbmm(layer.b, x, layer.W, beta=2, alpha=2).sigmoid_()
    return torch.add(_MINUS_ONE, a, alpha=2, out=a)


class Encodings(NamedTuple):
    """All activations of the encoders, and the codes."""

    trunk: list[Tensor]  # [2, n, ·] each, the inputs first
    fork: Tensor  # [4, n, ·], the trunk's output, repeated for both branches
    branch: Tensor  # [4, n, h]
    code: Tensor  # [2, 2, n, f]: μ of both, then log σ² of both


def encode(D: Discriminator, x: Tensor) -> Encodings:
    """Activations of both encoders and the Gaussians of their codes, for x [2, n, inputs]."""
    trunk = [x]
    for layer in D.trunk:
        trunk.append(tanh_layer(trunk[-1], layer))
    fork = torch.cat([trunk[-1], trunk[-1]])
    branch = tanh_layer(fork, D.branch)
    code = torch.baddbmm(D.code.b, branch, D.code.W)
    return Encodings(trunk, fork, branch, code.view(2, *x.shape[:2], -1))


def compare(D: Discriminator, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [2, n, f] to both codes joined, the hidden layer and the logit of D; [1, n, ·]."""
    z = torch.cat([z[:1], z[1:]], dim=2)
    hidden = tanh_layer(z, D.hidden)
    return z, hidden, torch.baddbmm(D.logit.b, hidden, D.logit.W)


def backward_dense(grad: Dense, x: Tensor, d: Tensor) -> None:
    """Write to `grad` the gradient of layers with inputs x and output gradient d."""
    torch.bmm(x.mT, d, out=grad.W)
    torch.sum(d, 1, keepdim=True, out=grad.b)


def backward_tanh(d: Tensor, a: Tensor) -> Tensor:
    """d (1 − a²), in place."""
    return torch.ops.aten.tanh_backward.grad_input(d, a, grad_input=d)


class Step(NamedTuple):
    """The results of one gradient step, and the gradient of its inputs."""

    logit: Tensor  # [2B]
    kl: Tensor  # [], mean over the pairs of KL(q(z|x) ‖ N(0, I)), summed over both codes
    d_x: Tensor | None  # [2, 2B, inputs], if x requires a gradient


def backward(
    D: Discriminator, grad: Discriminator, x: Tensor, noise: Tensor, kl_weight: float
) -> Step:
    """Write the gradient of BCE + kl_weight · KL to `grad`.

    `x` is [2, 2B, inputs]: x[0] holds the B exemplars twice, x[1] the exemplars and then B past
    states. `noise` is [2, 2B, f].
    """
    n, weight = x.shape[1], kl_weight / x.shape[1]
    trunk, fork, branch, code = encode(D, x)
    mean, log_var = code.unbind()
    std = (log_var / 2).exp_()
    spread = std * noise
    z, hidden, logit = compare(D, mean + spread)

    d_logit = logit.sigmoid()
    d_logit[:, : n // 2].sub_(1)
    d_logit.div_(n)
    backward_dense(grad.logit, hidden, d_logit)
    d = backward_tanh(d_logit * D.logit.W.mT, hidden)
    backward_dense(grad.hidden, z, d)
    d_z = torch.bmm(d, D.hidden.W.mT).view(n, 2, -1).transpose(0, 1)

    # z = μ + σ ε, hence ∂z/∂μ = 1 and ∂z/∂log σ² = ½ σ ε.
    # KL = ½ Σ (μ² + σ² − log σ² − 1), hence ∂KL/∂μ = μ and ∂KL/∂log σ² = ½ (σ² − 1).
    excess = std.square_().sub_(1)
    d_code = torch.empty_like(code)
    torch.add(d_z, mean, alpha=weight, out=d_code[0])
    torch.addcmul(excess * (weight / 2), d_z, spread, value=0.5, out=d_code[1])
    kl = excess.sub_(log_var).addcmul_(mean, mean).sum() / (2 * n)

    d = d_code.view(4, n, -1)
    backward_dense(grad.code, branch, d)
    d = backward_tanh(torch.bmm(d, D.code.W.mT), branch)
    backward_dense(grad.branch, fork, d)
    d = torch.bmm(d, D.branch.W.mT).view(2, 2, n, -1).sum(0)
    for k in reversed(range(len(D.trunk))):
        backward_tanh(d, trunk[k + 1])
        backward_dense(grad.trunk[k], trunk[k], d)
        if k > 0 or x.requires_grad:
            d = torch.bmm(d, D.trunk[k].W.mT)
    return Step(logit.flatten(), kl, d if x.requires_grad else None)
