"""The information terms of EMI, as pure functions of network outputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus


def jsd_loss(joint: Tensor, marginal: Tensor) -> Tensor:
    """E_joint sp(−T) + E_marginal sp(T), which T and the embeddings minimise.

    `joint` [m] is T on samples of the joint distribution, `marginal` [m] on samples of the product
    of the marginals.
    """
    return softplus(-joint).mean() + softplus(marginal).mean()


def jsd_bound(loss: Tensor) -> Tensor:
    """log 4 − `jsd_loss`, a lower bound of the mutual information (theorem 1); 0 for T ≡ 0."""
    return math.log(4) - loss


def gaussian_kl(x: Tensor) -> Tensor:
    """KL(N(μ, Σ) ‖ N(0, I)) = ½ (tr Σ + μᵀμ − d − log det Σ), with μ and Σ fitted to x [n, d].

    Eigenvalues are clamped to at least 1e-6 as in the authors' code, so that the value is finite
    for a collapsed batch.
    """
    n, d = x.shape
    mean = x.mean(0)
    centred = x - mean
    covariance = centred.T @ centred / max(n - 1, 1)
    eigenvalues = torch.linalg.eigvalsh(covariance).clamp(min=1e-6)
    return 0.5 * (eigenvalues.sum() + mean.square().sum() - d - eigenvalues.log().sum())
