"""Entropy of a distribution from the distances between samples."""

import math

import numpy as np

from emi.report.statistics import Array

PIECE = 512  # rows of the table of distances that are computed together


def kozachenko_leonenko(x: Array, k: int = 3) -> float:
    """Differential entropy in nats of the distribution of samples x [n, d], n > k.

    Kozachenko and Leonenko (1987), in the form of Singh et al. (2003):

        H = ψ(n) − ψ(k) + log V_d + (d / n) Σᵢ log εᵢ

    εᵢ is the distance of xᵢ to its k-th nearest neighbour, V_d the volume of the unit ball in d
    dimensions, ψ the digamma function; ψ(n) − ψ(k) = Σ 1/j over j = k, …, n − 1. If k + 1 samples
    coincide, there is no density, and H is −∞.
    """
    n, d = x.shape
    x = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    squares = (x**2).sum(1)
    epsilon = np.empty(n)
    for start in range(0, n, PIECE):
        rows = slice(start, start + PIECE)
        near = squares[rows, None] + squares - 2 * (x[rows] @ x.T)
        candidates = np.argpartition(near, k, axis=1)[:, : k + 1]
        # Differences of large squares are not exact: the distances of the nearest are.
        exact = np.linalg.norm(x[candidates] - x[rows, None], axis=2)
        epsilon[rows] = exact.max(1)
    harmonic = sum(1 / j for j in range(k, n))
    log_volume = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
    with np.errstate(divide="ignore"):
        return harmonic + log_volume + d * float(np.log(epsilon).mean())
