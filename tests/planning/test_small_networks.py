"""Networks by NumPy equal those of PyTorch, and so do the planner's actions."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from emi.intrinsic.emi import EMI, EMIConfig
from emi.nets import Flat, mlp
from emi.planning.planner import Mode, Planner
from emi.planning.small_networks import on_arrays


@pytest.mark.parametrize("rows", [1, 7])
def test_layers_equal_those_of_pytorch(rows: int) -> None:
    rng = torch.Generator().manual_seed(0)
    network = nn.Sequential(
        Flat(), *mlp([6, 5, 4], "tanh", rng), nn.ReLU(), nn.Linear(4, 3, bias=False)
    )
    x = torch.randn(rows, 2, 3, generator=rng)
    found = on_arrays(network)(x.numpy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, network(x).detach(), atol=1e-6)


def test_other_layers_are_called_with_tensors() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
    x = torch.tensor([[1.0, -2.0]])
    np.testing.assert_array_equal(on_arrays(network)(x.numpy()), network(x).detach())


def test_later_gradient_steps_count() -> None:
    network = mlp([2, 3, 1], "relu", torch.Generator().manual_seed(0))
    function, x = on_arrays(network), torch.ones(1, 2)
    descent = torch.optim.SGD(network.parameters(), 0.1)
    network(x).sum().backward()
    before = function(x.numpy())
    descent.step()
    assert function(x.numpy()) < before
    np.testing.assert_allclose(function(x.numpy()), network(x).detach(), atol=1e-6)


@pytest.mark.parametrize("mode", ["straight", "greedy"])
@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("use_error", [False, True])
def test_actions_equal_those_computed_by_pytorch(mode: Mode, layer: bool, use_error: bool) -> None:
    config = EMIConfig(embedding_dim=3, error_action_layer=layer)
    box = spaces.Box(-1, 1, (2,))
    method = EMI(spaces.Box(-1, 1, (4,)), box, config, normalize=False)
    planner = Planner(method, mode, use_error=use_error, refinements=3)
    model = planner._affine
    assert model is not None
    slope, inverse, shift, forth, back = (torch.from_numpy(part) for part in model[:5])
    rng = torch.Generator().manual_seed(1)
    obs, delta = torch.randn(20, 4, generator=rng), 3 * torch.randn(20, 3, generator=rng)
    with torch.no_grad():
        y = delta @ inverse
        if mode == "straight":
            t = torch.maximum(y * forth, y * back).amax(1).clamp(min=1)[:, None]
            y, target, gain = y / t, delta / t, inverse
        else:
            target, gain = delta, slope / torch.linalg.matrix_norm(slope, 2).square()
        u = (y - shift).clamp(-1, 1)
        for _ in range(3):
            effect = method.psi(u) + (method.S(obs, u) if use_error else 0)
            u = (u + (target - effect) @ gain).clamp(-1, 1)
    found = planner.act_towards(planner.encode(obs.numpy()), delta.numpy())
    np.testing.assert_allclose(found, u, atol=1e-5)
