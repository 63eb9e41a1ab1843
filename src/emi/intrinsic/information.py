"""The information-theoretic terms of EMI, as pure functions of network outputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus


def jsd_loss(joint: Tensor, marginal: Tensor) -> Tensor:
    """E_joint sp(−T) + E_marginal sp(T), the quantity that T and the embeddings minimise.

    `joint` [m] holds T on pairs drawn together, `marginal` [m] on pairs drawn apart.
    """
    return softplus(-joint).mean() + softplus(marginal).mean()


def jsd_bound(loss: Tensor) -> Tensor:
    """Theorem 1: log 4 − `jsd_loss` bounds the information from below; 0 for T ≡ 0."""
    return math.log(4) - loss


def gaussian_kl(x: Tensor) -> Tensor:
    """KL(N(μ, Σ) ‖ N(0, I)) = ½ (tr Σ + μᵀμ − d − log det Σ), with μ and Σ fitted to x [n, d].

    Eigenvalues are floored at 1e-6 as in the authors' code, so that a collapsed batch has a finite
    value.
    """
    n, d = x.shape
    mean = x.mean(0)
    centred = x - mean
    covariance = centred.T @ centred / max(n - 1, 1)
    eigenvalues = torch.linalg.eigvalsh(covariance).clamp(min=1e-6)
    return 0.5 * (eigenvalues.sum() + mean.square().sum() - d - eigenvalues.log().sum())
