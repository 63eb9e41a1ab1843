"""VIME's Bayesian network: forward and backward pass, and the gradient of its loss.

Autograd takes almost twice as long. All weights are in one vector, which makes Adam's step cheap.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus


class Pass(NamedTuple):
    """What the gradient of L needs of one layer; n rows, a = m + √v ε, as in `passes`."""

    x: Tensor  # [n, in + 1], the inputs and a 1 for the bias
    squares: Tensor  # [n, in + 1], x²
    v: Tensor  # [n, out], variance of a: x² σ²
    delta: Tensor  # [n, out], δ = ∂L/∂m
    kappa: Tensor  # [n, out], κ = 2 ∂L/∂v = δ ε / √v


def matrices(flat: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Views of [P], one number per weight, as [in + 1, out] per layer; biases are the last row."""
    shapes = [(i + 1, o) for i, o in pairwise(sizes)]
    parts = flat.split([rows * columns for rows, columns in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def passes(
    mu: list[Tensor],
    variance: list[Tensor],
    noise: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    precision: float,
) -> tuple[Tensor, list[Pass]]:
    """Prediction error [n, out], and the forward and backward pass of L = ½ precision ‖error‖².

    The sum of each layer is sampled instead of its weights (local reparameterisation):
    a = m + √v ε with m = x μ and v = x² σ². `mu` and `variance` are [in + 1, out] per layer;
    `noise`, ε, is [n, out] per layer, or [1, out] if all rows share it. `x` is [n, in + 1] with a
    1 at the end, `y` is [n, out].
    """
    forward: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    a = x
    for M, V, epsilon in zip(mu, variance, noise, strict=True):
        if forward:
            x = torch.cat([a.relu(), x[:, -1:]], 1)
        squares = x * x
        v = squares @ V
        std = v.sqrt()
        a = torch.addcmul(x @ M, std, epsilon)
        forward.append((x, squares, v, epsilon / std))
    error = a - y
    delta, layers = error * precision, []
    for k, (x, squares, v, ratio) in reversed(list(enumerate(forward))):
        kappa = delta * ratio
        layers.append(Pass(x, squares, v, delta, kappa))
        if k > 0:
            h = x[:, :-1]
            back = torch.addcmul(delta @ mu[k][:-1].T, h, kappa @ variance[k][:-1].T)
            delta = back * h.sign()  # ReLU's derivative: h is its output
    return error, layers[::-1]


def loss_gradient(
    phi: Tensor,
    sizes: Sequence[int],
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    likelihood_sd: float,
    prior_sd: float,
    kl_weight: float,
) -> tuple[Tensor, Tensor]:
    """Gradient of L = −(mean over samples of log p(y | x, θ)) + kl_weight · KL(q ‖ prior), [2, P].

    `phi` [2, P] holds μ and ρ. `x` [m, in + 1] and `y` [m, out] are a normalised minibatch, over
    which the log-likelihood is summed. `noise` is [samples, units]: all rows share the ε of a
    sample. Also returns the squared error, summed over everything.
    """
    (samples, units), m = noise.shape, len(x)
    mu, rho = phi
    sigma = softplus(rho)
    error, layers = passes(
        matrices(mu, sizes),
        matrices(sigma * sigma, sizes),
        noise[:, None].expand(samples, m, units).reshape(-1, units).split(sizes[1:], 1),
        x.expand(samples, *x.shape).reshape(samples * m, -1),
        y.expand(samples, *y.shape).reshape(samples * m, -1),
        likelihood_sd**-2 / samples,
    )
    by_mu = [p.x.T @ p.delta for p in layers]
    by_variance = [p.squares.T @ p.kappa for p in layers]  # 2 ∂L/∂σ², because κ = 2 ∂L/∂v
    gradient = torch.cat([g.flatten() for g in by_mu + by_variance]).view_as(phi)
    pull = kl_weight / prior_sd**2
    gradient[0].add_(mu, alpha=pull)
    by_sigma = gradient[1].add_(pull).mul_(sigma).sub_(sigma.reciprocal(), alpha=kl_weight)
    by_sigma.mul_(rho.sigmoid())
    return gradient, error.square().sum()
