"""Continuous actions towards a displacement in the embedding, by projection.

An affine model of ψ over the box of actions, ψ(u) ≈ A u + b with u in [−1, 1]ᵏ, makes planning a
matter of arithmetic. The sum of ψ over t equal steps is t (A u + b): the goal at the displacement Δ
is reached in t steps if u = A⁺Δ / t − A⁺b is in the box, and the smallest such t is a maximum of k
fractions. If ψ is affine and the box is the only obstacle, no plan takes fewer steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from emi.batch import Array

SAMPLES = 1_024  # points of the box at which ψ is evaluated for the fit
LEAST_REACH = 0.05  # of 1: the farthest that an action is trusted to go, if ψ hardly goes that way

Effect = Callable[[Array], Array]  # ψ(u), or ψ(u) + S(s, u), of action vectors; [n, k] to [n, d]


class AffineActions(NamedTuple):
    """ψ(u) ≈ A u + b on the box [−1, 1]ᵏ; float32."""

    slope: Array  # A [d, k]
    inverse: Array  # A⁺ᵀ [d, k]
    shift: Array  # c = A⁺b [k], the action that the offset is worth
    forth: Array  # 1 / (1 + c) [k], steps per unit of A⁺Δ, forwards
    back: Array  # −1 / (1 − c) [k], backwards
    curvature: Array  # ‖A‖², the square of the largest singular value; []
    fit: float  # R² of the affine model: 1 if ψ is affine

    @classmethod
    def of(cls, psi: Effect, size: int) -> AffineActions:
        """The least-squares fit to ψ on points that fill the box evenly."""
        u = 2 * torch.quasirandom.SobolEngine(size).draw(SAMPLES).numpy() - 1
        values = psi(u).astype(np.float64)
        inputs = np.column_stack([u, np.ones(len(u))]).astype(np.float64)
        found, *_ = np.linalg.lstsq(inputs, values)
        residual = np.square(values - inputs @ found).sum()
        spread = np.square(values - values.mean(0)).sum()
        slope = found[:-1].T
        inverse = np.linalg.pinv(slope)
        c = inverse @ found[-1]
        forth, back = (1 / np.maximum(x, LEAST_REACH) for x in (1 + c, 1 - c))
        curvature = np.maximum(np.linalg.norm(slope, 2) ** 2, 1e-12)
        a, inv, c, forth, back, curvature = (
            np.asarray(part, np.float32)
            for part in (slope, np.ascontiguousarray(inverse.T), c, forth, -back, curvature)
        )
        fit = 1 - float(residual / max(spread, 1e-30))
        return cls(a, inv, c, forth, back, curvature, fit)


def steps_to(delta: Array, actions: AffineActions) -> Array:
    """The smallest t ≥ 0 with Δ = t (A u + b) for an action u of the box; [..., d] to [...].

    Rounded up, it is the number of steps of the shortest plan. What no action can do, the part of
    Δ orthogonal to the range of A, is ignored.
    """
    return _steps(delta @ actions.inverse, actions)


def _steps(y: Array, actions: AffineActions) -> Array:
    """The same for y = A⁺Δ [..., k]."""
    # u = y / t − c is in the box if −1 + c ≤ y / t ≤ 1 + c in every entry.
    steps = np.maximum(y * actions.forth, y * actions.back)
    # Entry by entry, because the last axis is short: a quarter of the time of max(-1).
    return functools.reduce(np.maximum, (steps[..., entry] for entry in range(steps.shape[-1])))


def _in_box(u: Array) -> Array:
    return np.minimum(np.maximum(u, -1), 1)  # a third of the time of np.clip on a few rows


def straight_action(
    delta: Array, actions: AffineActions, effect: Effect, refinements: int
) -> Array:
    """The first action of the shortest plan to Δ in a straight line; [n, d] to [n, k].

    Where `effect` is not affine, simplified Newton steps with A⁺ bring it to Δ / t, within the box.
    """
    y = delta.dot(actions.inverse)  # less overhead than @
    t = np.maximum(_steps(y, actions), 1)[:, None]
    u, target = _in_box(y / t - actions.shift), delta / t
    for _ in range(refinements):
        u = _in_box(u + (target - effect(u)).dot(actions.inverse))
    return u


def greedy_action(delta: Array, actions: AffineActions, effect: Effect, refinements: int) -> Array:
    """The action of least ‖Δ − effect(u)‖, by projected gradient steps; [n, d] to [n, k]."""
    u = _in_box(delta @ actions.inverse - actions.shift)
    for _ in range(refinements):
        u = _in_box(u + (delta - effect(u)) @ actions.slope / actions.curvature)
    return u
