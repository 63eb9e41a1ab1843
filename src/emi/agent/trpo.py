"""Trust-region policy optimisation (Schulman et al., 2015), the single-path variant.

maximise  E[π_θ(a|s) / π_old(a|s) · A]   subject to   E[KL(π_old ‖ π_θ)] ≤ δ

The step direction d solves (H + damping·I) d = g by conjugate gradients, where H is the Hessian of
the KL at π_old. A backtracking line search finds the step length. Every quantity is a sum over
slices of the batch: memory is bounded by one slice, and their number changes only the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from emi.agent.policy import AnyPolicy
from emi.batch import PIECE_ENTRIES, Rows, as_tensor
from emi.settings import Fraction, NotNegativeFloat, NotNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class TRPOConfig:
    """Settings of the trust-region step."""

    max_kl: PositiveFloat = 0.01
    """δ, the largest mean KL of a step (paper, supplementary tables)"""
    cg_iterations: PositiveInt = 10
    """conjugate-gradient iterations (authors' code)"""
    cg_tolerance: NotNegativeFloat = 1e-10
    """stop when the squared residual is below this (rllab's krylov)"""
    damping: NotNegativeFloat = 1e-5
    """added to the diagonal of H (authors' code)"""
    backtrack_ratio: Fraction = 0.8
    """the step length is multiplied by this after each failed try (authors' code)"""
    max_backtracks: PositiveInt = 15
    """number of tries before the step is rejected (authors' code)"""
    slices: NotNegativeInt = 0
    """number of slices of the batch; 0: chosen by the size of observations (authors: 16)"""


class Slice(NamedTuple):
    """A part of the batch; `weight` is its share of the rows."""

    obs: Rows  # [m, *observation], gathered in each pass, so that only m images are in memory
    action: Tensor  # [m, *action]
    advantage: Tensor  # [m]
    old: Tensor  # [m, P], parameters of π_old
    weight: float


def states(part: Slice) -> Tensor:
    return as_tensor(part.obs, part.action.device)


class LineSearch(NamedTuple):
    theta: Tensor  # [parameters]
    accepted: bool
    tries: int
    loss: float
    kl: float


class StepReport(NamedTuple):
    kl: float
    entropy: float
    accepted: bool
    tries: int
    surrogate: float  # increase of the surrogate objective by the accepted step


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([t.numel() for t in like])
    return [part.view_as(t) for part, t in zip(parts, like, strict=True)]


class Solution(NamedTuple):
    x: Tensor  # [parameters]
    residual: Tensor  # b − A x; A x is b minus this, without another product


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, tolerance: float
) -> Solution:
    """x with A x ≈ b for a symmetric positive definite A given as x ↦ A x."""
    x, residual = torch.zeros_like(b), b.clone()
    direction, squared = b.clone(), b.dot(b)
    for _ in range(iterations):
        image = product(direction)
        step = squared / direction.dot(image)
        x += step * direction
        residual -= step * image
        squared, previous = residual.dot(residual), squared
        if squared < tolerance:
            break
        direction = residual + (squared / previous) * direction
    return Solution(x, residual)


def fisher_vector_product(
    policy: AnyPolicy, slices: Sequence[Slice], damping: float
) -> Callable[[Tensor], Tensor]:
    """v ↦ (H + damping·I) v, where H = E[JᵀFJ] is exact.

    J is the Jacobian of the distribution's parameters in the weights, F the Fisher information in
    these parameters. JᵀF(Jv) is a backward pass over the graph of the network. With one slice, the
    graph is built once for all products, and Jv is the gradient of u ↦ vᵀ(Jᵀu), which is linear in
    u (double backward). With several slices, the graphs do not fit into memory together: each is
    rebuilt for every product, and Jv is computed in the forward pass.
    """
    weights = list(policy.parameters())

    def pull_back(out: Tensor, tangent: Tensor, part: Slice) -> Tensor:
        weighted = policy.fisher(part.old, tangent) / len(tangent)
        return flatten(torch.autograd.grad(out, weights, weighted, retain_graph=len(slices) == 1))

    if len(slices) == 1:
        out = policy(states(slices[0]))
        u = torch.zeros_like(out, requires_grad=True)
        transposed = flatten(torch.autograd.grad(out, weights, u, create_graph=True))

        def product(v: Tensor) -> Tensor:
            (tangent,) = torch.autograd.grad(transposed, u, v, retain_graph=True)
            return pull_back(out, tangent, slices[0]) + damping * v

    else:

        def product(v: Tensor) -> Tensor:
            change: dict[Tensor, Tensor] = dict(zip(weights, unflatten(v, weights), strict=True))
            total = damping * v
            for part in slices:
                total += part.weight * pull_back(*policy.push_forward(states(part), change), part)
            return total

    return product


def surrogate_loss(policy: AnyPolicy, parameters: Tensor, part: Slice) -> Tensor:
    """−E[ratio · A] over the slice."""
    log_ratio = policy.log_prob(parameters, part.action) - policy.log_prob(part.old, part.action)
    return -(log_ratio.exp() * part.advantage).mean()


def surrogate_gradient(policy: AnyPolicy, slices: Sequence[Slice]) -> tuple[float, Tensor]:
    """Loss and flat gradient at π_old."""
    weights = list(policy.parameters())
    loss, total = 0.0, torch.zeros_like(flatten(weights))
    for part in slices:
        value = surrogate_loss(policy, policy(states(part)), part)
        total += part.weight * flatten(torch.autograd.grad(value, weights))
        loss += part.weight * value.item()
    return loss, total


def evaluate(policy: AnyPolicy, slices: Sequence[Slice], theta: Tensor) -> tuple[float, float]:
    """Surrogate loss and mean KL of the policy with parameters θ; the policy is not changed."""
    names = [name for name, _ in policy.named_parameters()]
    weights = dict(zip(names, unflatten(theta, list(policy.parameters())), strict=True))
    loss = kl = 0.0
    with torch.no_grad():
        for part in slices:
            new = functional_call(policy, weights, (states(part),))
            loss += part.weight * surrogate_loss(policy, new, part).item()
            kl += part.weight * policy.kl(part.old, new).mean().item()
    return loss, kl


def line_search(
    measure: Callable[[Tensor], tuple[float, float]],
    theta: Tensor,
    step: Tensor,
    loss: float,
    config: TRPOConfig,
) -> LineSearch:
    """The longest of the steps ratioᵏ · step that lowers the loss within the trust region.

    If there is none, θ is returned. NaN fails both comparisons and is never accepted.
    """
    for k in range(config.max_backtracks):
        candidate = theta + config.backtrack_ratio**k * step
        new_loss, kl = measure(candidate)
        if new_loss < loss and kl <= config.max_kl:
            return LineSearch(candidate, True, k + 1, new_loss, kl)
    return LineSearch(theta, False, config.max_backtracks, loss, 0.0)


def cut(
    policy: AnyPolicy, obs: Rows, action: Tensor, advantage: Tensor, slices: int
) -> list[Slice]:
    """`slices` nearly equal parts; 0: parts of at most `PIECE_ENTRIES` entries of observations."""
    parts = []
    n = len(action)
    slices = min(n, slices or math.ceil(n * math.prod(obs[:1].shape) / PIECE_ENTRIES))
    for i in range(slices):
        rows = slice(i * n // slices, (i + 1) * n // slices)
        part_obs = Rows(obs.pool, obs.index[rows])
        with torch.no_grad():
            old = policy(as_tensor(part_obs, action.device))
        weight = (rows.stop - rows.start) / n
        parts.append(Slice(part_obs, action[rows], advantage[rows], old, weight))
    return parts


def trpo_step(
    policy: AnyPolicy, obs: Rows, action: Tensor, advantage: Tensor, config: TRPOConfig
) -> StepReport:
    """One trust-region step on a batch [n, ...]; changes the weights only if it is accepted."""
    parts = cut(policy, obs, action, advantage, config.slices)
    entropy = sum(part.weight * policy.entropy(part.old).mean().item() for part in parts)
    loss, gradient = surrogate_gradient(policy, parts)
    unchanged = StepReport(0.0, entropy, False, 0, 0.0)
    if not gradient.any():
        return unchanged
    product = fisher_vector_product(policy, parts, config.damping)
    direction, residual = conjugate_gradient(
        product, -gradient, config.cg_iterations, config.cg_tolerance
    )
    curvature = direction.dot(-gradient - residual).item()  # dᵀ(H + damping·I)d
    # Rounding can make the curvature negative; its square root would make every weight NaN.
    if not curvature > 0:
        return unchanged
    step = direction * (2 * config.max_kl / (curvature + 1e-8)) ** 0.5

    weights = list(policy.parameters())
    theta = flatten(weights).detach()
    found = line_search(lambda new: evaluate(policy, parts, new), theta, step, loss, config)
    if found.accepted:
        with torch.no_grad():
            for weight, new in zip(weights, unflatten(found.theta, weights), strict=True):
                weight.copy_(new)
    return StepReport(found.kl, entropy, found.accepted, found.tries, loss - found.loss)
