"""Trust-region policy optimisation (Schulman et al., 2015), the single-path variant.

maximise  E[π_θ(a|s) / π_old(a|s) · A]   subject to   E[KL(π_old ‖ π_θ)] ≤ δ

The step direction d solves (H + damping·I) d = g by conjugate gradients, where H is the Hessian of
the KL at π_old. A backtracking line search finds the step length. Every quantity is a sum over
slices of the batch: memory is bounded by one slice, and their number changes only the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from emi.agent.policy import AnyPolicy, Jacobian
from emi.batch import PIECE_ENTRIES, IntArray, Rows, as_tensor
from emi.settings import Fraction, NotNegativeFloat, NotNegativeInt, PositiveFloat, PositiveInt

T = TypeVar("T")
KEPT_BYTES = 2**29  # of activations of π_old during a step
KL_MARGIN = 0.01  # rounding of the KL, relative to the largest KL
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


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
    fisher_fraction: Fraction = 1.0
    """share of the batch that H is computed from (0.1: TRPO paper, appendix C; EX2's authors)"""


class Slice(NamedTuple):
    """A part of the batch; `weight` is its share of the rows."""

    obs: Rows  # [m, *observation], gathered in each pass, so that only m images are in memory
    action: Tensor  # [m, *action]
    advantage: Tensor  # [m]
    weight: float


def states(part: Slice) -> Tensor:
    return as_tensor(part.obs, part.action.device)


class Old(NamedTuple):
    """π_old on a slice."""

    parameters: Tensor  # [m, P]
    log_prob: Tensor  # [m], of the actions


class AtOld(NamedTuple):
    """π_old on a slice with its first derivatives."""

    part: Slice
    net: Jacobian  # J, of the distribution's parameters in the weights
    fisher: Callable[[Tensor], Tensor]  # F, in the distribution's parameters


class Linearisations:
    """π_old and its first derivatives on every slice.

    The activations are kept for as many slices as fit into `kept_bytes`, and computed again each
    time for the others.
    """

    def __init__(self, policy: AnyPolicy, slices: Sequence[Slice], kept_bytes: int) -> None:
        self._policy, self.slices = policy, slices
        self._free = kept_bytes
        self._kept: dict[int, AtOld] = {}

    def map(self, function: Callable[[AtOld], T]) -> Iterator[T]:
        """The results for every slice; activations that are not kept are freed before the next."""
        for k, part in enumerate(self.slices):
            yield function(self._kept[k] if k in self._kept else self._compute(k, part))

    def _compute(self, k: int, part: Slice) -> AtOld:
        net = self._policy.linearise(states(part))
        found = AtOld(part, net, self._policy.fisher(net.out))
        if net.bytes <= self._free:
            self._free -= net.bytes
            self._kept[k] = found
        return found

    @property
    def kept_rows(self) -> int:
        return sum(len(found.net.out) for found in self._kept.values())


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
    policy: AnyPolicy, old: Linearisations, damping: float
) -> Callable[[Tensor], Tensor]:
    """v ↦ (H + damping·I) v, where H = E[JᵀFJ] is exact.

    J is the Jacobian of the distribution's parameters in the weights, F the Fisher information in
    these parameters.
    """
    weights = list(policy.parameters())

    def product(v: Tensor) -> Tensor:
        change: dict[Tensor, Tensor] = dict(zip(weights, unflatten(v, weights), strict=True))

        def on_slice(at: AtOld) -> Tensor:
            weighted = at.fisher(at.net.push_forward(change)) / len(at.net.out)
            return at.part.weight * flatten(at.net.pull_back(weighted))

        total = damping * v
        for term in old.map(on_slice):
            total += term
        return total

    return product


def surrogate_loss(
    policy: AnyPolicy, parameters: Tensor, part: Slice, old_log_prob: Tensor
) -> Tensor:
    """−E[ratio · A] over the slice."""
    log_ratio = policy.log_prob(parameters, part.action) - old_log_prob
    return -(log_ratio.exp() * part.advantage).mean()


class Surrogate(NamedTuple):
    """The surrogate loss at π_old, where every ratio is 1."""

    loss: float
    gradient: Tensor  # [parameters]
    old: list[Old]  # of each slice


def surrogate_gradient(policy: AnyPolicy, old: Linearisations) -> Surrogate:
    """Loss and flat gradient at π_old, in one pass over the slices."""

    rows = sum(len(part.action) for part in old.slices)
    # One allocation: small ones between the large ones of every slice would fragment the memory.
    whole: list[Tensor] = []
    found: list[Old] = []

    def on_slice(at: AtOld) -> tuple[float, Tensor]:
        parameters = at.net.out.detach().requires_grad_()
        log_prob = policy.log_prob(at.net.out, at.part.action)
        value = surrogate_loss(policy, parameters, at.part, log_prob)
        (u,) = torch.autograd.grad(value, parameters)
        if not whole:
            whole.extend(t.new_empty(rows, *t.shape[1:]) for t in (at.net.out, log_prob))
        start = sum(len(before.log_prob) for before in found)
        kept = [t[start : start + len(log_prob)] for t in whole]
        found.append(Old(kept[0].copy_(at.net.out), kept[1].copy_(log_prob)))
        return at.part.weight * value.item(), at.part.weight * flatten(at.net.pull_back(u))

    loss, total = 0.0, torch.zeros_like(flatten(list(policy.parameters())))
    for value, gradient in old.map(on_slice):
        loss += value
        total += gradient
    return Surrogate(loss, total, found)


def evaluate(
    policy: AnyPolicy,
    slices: Sequence[Slice],
    old: Sequence[Old],
    theta: Tensor,
    max_kl: float = math.inf,
) -> tuple[float, float]:
    """Surrogate loss and mean KL of the policy with parameters θ; the policy is not changed.

    The KL of a slice is not negative. As soon as the slices so far exceed `max_kl`, the others are
    not computed: the loss is then NaN, and the KL too small but above `max_kl`.
    """
    names = [name for name, _ in policy.named_parameters()]
    weights = dict(zip(names, unflatten(theta, list(policy.parameters())), strict=True))
    loss = kl = 0.0
    with torch.no_grad():
        for part, before in zip(slices, old, strict=True):
            new = functional_call(policy, weights, (states(part),))
            loss += part.weight * surrogate_loss(policy, new, part, before.log_prob).item()
            kl += part.weight * policy.kl(before.parameters, new).mean().item()
            if kl > max_kl:
                return math.nan, kl
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


def cut(obs: Rows, action: Tensor, advantage: Tensor, slices: int) -> list[Slice]:
    """`slices` nearly equal parts; 0: parts of at most `PIECE_ENTRIES` entries of observations."""
    parts = []
    n = len(action)
    slices = min(n, slices or math.ceil(n * math.prod(obs[:1].shape) / PIECE_ENTRIES))
    for i in range(slices):
        rows = slice(i * n // slices, (i + 1) * n // slices)
        part_obs = Rows(obs.pool, obs.index[rows])
        weight = (rows.stop - rows.start) / n
        parts.append(Slice(part_obs, action[rows], advantage[rows], weight))
    return parts


def spread_rows(n: int, fraction: float) -> IntArray:
    """Rows of a time-major batch that cover all times and environments, in order, without draws.

    One row from each of ⌈fraction · n⌉ equal intervals. A constant position in the interval would
    choose the same environments again and again if their number and the length of the interval have
    a common divisor. The position k² · golden ratio (mod 1) has no period: with a linear sequence,
    some numbers of environments would leave environments out.
    """
    count = math.ceil(fraction * n)
    k = np.arange(count)
    start, stop = k * n // count, (k + 1) * n // count
    position = k * k * GOLDEN_RATIO % 1
    return start + (position * (stop - start)).astype(np.int64)


def trpo_step(
    policy: AnyPolicy, obs: Rows, action: Tensor, advantage: Tensor, config: TRPOConfig
) -> StepReport:
    """One trust-region step on a batch [n, ...]; changes the weights only if it is accepted."""
    parts = cut(obs, action, advantage, config.slices)
    fisher_parts = parts
    if config.fisher_fraction < 1:
        rows = spread_rows(len(action), config.fisher_fraction)
        fisher_obs = Rows(obs.pool, obs.index[rows])
        fisher_parts = cut(fisher_obs, action[rows], advantage[rows], config.slices)
    fisher_nets = Linearisations(policy, fisher_parts, KEPT_BYTES)
    nets = fisher_nets if fisher_parts is parts else Linearisations(policy, parts, kept_bytes=0)

    loss, gradient, old = surrogate_gradient(policy, nets)
    entropy = sum(
        part.weight * policy.entropy(before.parameters).mean().item()
        for part, before in zip(parts, old, strict=True)
    )
    unchanged = StepReport(0.0, entropy, False, 0, 0.0)
    if not gradient.any():
        return unchanged
    product = fisher_vector_product(policy, fisher_nets, config.damping)
    direction, residual = conjugate_gradient(
        product, -gradient, config.cg_iterations, config.cg_tolerance
    )
    del product, nets, fisher_nets  # the line search does not need the activations
    curvature = direction.dot(-gradient - residual).item()  # dᵀ(H + damping·I)d
    # Rounding can make the curvature negative; its square root would make every weight NaN.
    if not curvature > 0:
        return unchanged
    step = direction * (2 * config.max_kl / (curvature + 1e-8)) ** 0.5

    weights = list(policy.parameters())
    theta = flatten(weights).detach()
    # Above the trust region by more than rounding, a candidate is rejected whatever else it does.
    limit = config.max_kl * (1 + KL_MARGIN)
    found = line_search(
        lambda new: evaluate(policy, parts, old, new, limit), theta, step, loss, config
    )
    if found.accepted:
        with torch.no_grad():
            for weight, new in zip(weights, unflatten(found.theta, weights), strict=True):
                weight.copy_(new)
    return StepReport(found.kl, entropy, found.accepted, found.tries, loss - found.loss)
