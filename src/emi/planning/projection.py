"""Continuous actions towards a displacement in the embedding, by projection.

An affine model of ψ over the box of actions, ψ(u) ≈ A u + b with u in [−1, 1]ᵏ, makes planning a
matter of arithmetic. The sum of ψ over t equal steps is t (A u + b): the goal at the displacement Δ
is reached in t steps if u = A⁺Δ / t − A⁺b is in the box, and the smallest such t is a maximum of k
fractions. If ψ is affine and the box is the only obstacle, no plan takes fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

SAMPLES = 1_024  # points of the box at which ψ is evaluated for the fit
LEAST_REACH = 0.05  # of 1: the farthest that an action is trusted to go, if ψ hardly goes that way


class AffineActions(NamedTuple):
    """ψ(u) ≈ A u + b on the box [−1, 1]ᵏ."""

    slope: Tensor  # A [d, k]
    inverse: Tensor  # A⁺ᵀ [d, k]
    shift: Tensor  # c = A⁺b [k], the action that the offset is worth
    forth: Tensor  # 1 / (1 + c) [k], steps per unit of A⁺Δ, forwards
    back: Tensor  # −1 / (1 − c) [k], backwards
    fit: float  # R² of the affine model: 1 if ψ is affine

    @classmethod
    def of(
        cls, psi: Callable[[Tensor], Tensor], size: int, device: torch.device | str = "cpu"
    ) -> AffineActions:
        """The least-squares fit to ψ, [n, k] to [n, d], on points that fill the box evenly."""
        u = 2 * torch.quasirandom.SobolEngine(size).draw(SAMPLES).to(device) - 1
        values = psi(u)
        inputs = torch.cat([u, u.new_ones(len(u), 1)], 1)
        found = torch.linalg.lstsq(inputs.double(), values.double()).solution
        residual = values - inputs @ found.to(values)
        spread = (values - values.mean(0)).square().sum()
        fit = 1 - float(residual.square().sum() / spread.clamp(min=1e-30))
        slope = found[:-1].T
        inverse = torch.linalg.pinv(slope)
        c = inverse @ found[-1]
        forth, back = (1 / x.clamp(min=LEAST_REACH) for x in (1 + c, 1 - c))
        return cls(
            slope.to(values),
            inverse.T.contiguous().to(values),
            c.to(values),
            forth.to(values),
            -back.to(values),
            fit,
        )


def steps_to(delta: Tensor, actions: AffineActions) -> Tensor:
    """The smallest t ≥ 0 with Δ = t (A u + b) for an action u of the box; [n, d] to [n].

    Rounded up, it is the number of steps of the shortest plan. What no action can do, the part of
    Δ orthogonal to the range of A, is ignored.
    """
    return _steps(delta @ actions.inverse, actions)


def _steps(y: Tensor, actions: AffineActions) -> Tensor:
    """The same for y = A⁺Δ [n, k]."""
    # u = y / t − c is in the box if −1 + c ≤ y / t ≤ 1 + c in every entry.
    return torch.maximum(y * actions.forth, y * actions.back).amax(1)


def straight_action(
    delta: Tensor, actions: AffineActions, effect: Callable[[Tensor], Tensor], refinements: int
) -> Tensor:
    """The first action of the shortest plan to Δ in a straight line; [n, d] to [n, k].

    `effect` is ψ(u) + S(s, u), [n, k] to [n, d]. Where it is not affine, simplified Newton steps
    with A⁺ bring it to Δ / t, within the box.
    """
    y = delta @ actions.inverse
    t = _steps(y, actions).clamp(min=1)[:, None]
    u, target = (y / t - actions.shift).clamp(-1, 1), delta / t
    for _ in range(refinements):
        u = (u + (target - effect(u)) @ actions.inverse).clamp(-1, 1)
    return u


def greedy_action(
    delta: Tensor, actions: AffineActions, effect: Callable[[Tensor], Tensor], refinements: int
) -> Tensor:
    """The action of least ‖Δ − effect(u)‖, by projected gradient steps; [n, d] to [n, k]."""
    u = (delta @ actions.inverse - actions.shift).clamp(-1, 1)
    curvature = torch.linalg.matrix_norm(actions.slope, 2).square().clamp(min=1e-12)
    for _ in range(refinements):
        u = (u + (delta - effect(u)) @ actions.slope / curvature).clamp(-1, 1)
    return u
