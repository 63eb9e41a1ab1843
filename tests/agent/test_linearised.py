"""Products with the Jacobian: against finite differences and the backward pass."""

from __future__ import annotations

import copy
from typing import get_args

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from emi.agent.linearised import Linearised
from emi.nets import Activation, mlp, trunk


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def derivative(
    net: nn.Module, x: torch.Tensor, change: dict[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Along the change, by central differences in double precision."""
    ends = []
    for sign in (1, -1):
        moved = copy.deepcopy(net)
        with torch.no_grad():
            for weight, step in zip(moved.parameters(), change.values(), strict=True):
                weight.add_(step, alpha=sign * 1e-6)
        ends.append(moved(x))
    return (ends[0] - ends[1]) / 2e-6


@pytest.mark.parametrize("activation", get_args(Activation))
def test_push_forward_is_the_derivative_along_a_change_of_weights(activation: Activation) -> None:
    rng = generator()
    net = mlp([3, 5, 4, 2], activation, rng).double()
    x = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    change: dict[torch.Tensor, torch.Tensor] = {
        weight: torch.randn(weight.shape, generator=rng, dtype=torch.float64)
        for weight in net.parameters()
    }
    for part_of_rows in (False, True):
        found = Linearised(net, x, part_of_rows=part_of_rows)
        tangent = found.push_forward(change)
        torch.testing.assert_close(found.out, net(x))
        torch.testing.assert_close(tangent, derivative(net, x, change), rtol=1e-6, atol=1e-7)
        assert not found.out.requires_grad
        assert not tangent.requires_grad


@pytest.mark.parametrize("activate_last", [False, True])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_pull_back_is_the_backward_pass(activation: Activation, activate_last: bool) -> None:
    rng = generator()
    net = mlp([20, 64, 32, 6], activation, rng, activate_last=activate_last)
    x, u = torch.randn(200, 20, generator=rng), torch.randn(200, 6, generator=rng)
    before = u.clone()
    expected = torch.autograd.grad(net(x), list(net.parameters()), u)
    for found, gradient in zip(Linearised(net, x).pull_back(u), expected, strict=True):
        torch.testing.assert_close(found, gradient)
    assert torch.equal(u, before)


def test_push_forward_through_convolutions_is_the_adjoint_of_the_backward_pass() -> None:
    rng = generator()
    net, width = trunk(Box(0, 255, (2, 44, 40), np.uint8), (), "relu", rng)
    images = torch.randint(0, 256, (3, 2, 44, 40), generator=rng, dtype=torch.uint8)
    weights: list[torch.Tensor] = list(net.parameters())
    change = {w: torch.randn(w.shape, generator=rng) for w in weights}
    found = Linearised(net, images)
    tangent, out = found.push_forward(change), net(images)
    torch.testing.assert_close(found.out, out)
    for _ in range(3):  # ⟨u, J v⟩ = ⟨Jᵀ u, v⟩
        u = torch.randn(3, width, generator=rng)
        back = torch.autograd.grad(out, weights, u, retain_graph=True)
        pairs = zip(back, change.values(), strict=True)
        expected = sum(torch.sum(gradient * step).item() for gradient, step in pairs)
        assert torch.sum(u * tangent).item() == pytest.approx(expected, rel=1e-4)
        for ours, theirs in zip(found.pull_back(u), back, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_an_unknown_activation_is_refused() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Softmax(1))
    change: dict[torch.Tensor, torch.Tensor] = {w: torch.ones_like(w) for w in net.parameters()}
    with pytest.raises(TypeError, match="no derivative is known for Softmax"):
        Linearised(net, torch.ones(1, 2)).push_forward(change)
