"""The convolutions in bfloat16: against those in float32, whose rounding is 2^16 times finer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.nn import functional

from emi import bfloat16
from emi.agent.linearised import Linearised, LinearisedImages
from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.value import NetworkValue, ValueConfig
from emi.batch import Rows, Transitions
from emi.bfloat16 import Trunk, blocks, features, reader
from emi.intrinsic.emi import EMI, EMIConfig
from emi.nets import Flat, Pixels, linear, trunk

# Stacks, one frame, colour, and sizes of which the kernels leave a part uncovered.
SHAPES = [(4, 52, 52), (52, 52), (3, 64, 64), (2, 47, 58)]
EPSILON = 2**-8  # the distance of 1 to the next number


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use bfloat16 also where it is slow."""
    monkeypatch.setattr(bfloat16, "in_hardware", lambda: True)


def network(shape: tuple[int, ...], *, all_on: bool = False) -> nn.Sequential:
    """With large biases and small weights, all units are on.

    Otherwise units whose input is near 0 can be on in one arithmetic and off in the other, which
    changes derivatives by more than rounding.
    """
    net, _ = trunk(Box(0, 255, shape, np.uint8), (), "relu", torch.Generator().manual_seed(0))
    for layer in net:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            rng = torch.Generator().manual_seed(1)
            nn.init.normal_(layer.bias, 5.0 * all_on, 0.1, generator=rng)
            with torch.no_grad():
                layer.weight.mul_(0.1 if all_on else 1.0)
    return net


def images(n: int, shape: tuple[int, ...]) -> Tensor:
    """Patches of constant brightness, as in a game."""
    rng = torch.Generator().manual_seed(2)
    channels = shape[:-2]
    coarse = torch.randint(0, 256, (n, *channels, 6, 6), generator=rng).float()
    wide = functional.interpolate(coarse.view(n, -1, 6, 6), shape[-2:])
    return wide.view(n, *shape).to(torch.uint8)


def read(net: nn.Sequential, obs: Tensor) -> Tensor:
    pixels = net[0]
    assert isinstance(pixels, Pixels)
    return blocks(pixels.frames(obs))


def close(found: Tensor, expected: Tensor, epsilons: float) -> None:
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    assert (found - expected).norm() <= epsilons * EPSILON * expected.norm()


def test_blocks_hold_every_pixel_exactly() -> None:
    frames = torch.arange(2 * 2 * 8 * 12).remainder(256).to(torch.uint8).view(2, 2, 8, 12)
    found = blocks(frames)
    assert found.shape == (2, 2 * 16, 2, 3)
    for n, c, row, column in ((0, 0, 0, 0), (1, 1, 7, 11), (0, 1, 5, 6), (1, 0, 2, 9)):
        channel = 16 * c + 4 * (row % 4) + column % 4
        pixel = found[n, channel, row // 4, column // 4].item()
        assert pixel == frames[n, c, row, column].item() - 128
    assert torch.equal(blocks(frames.long()), found)  # whatever the type of the pixels


@pytest.mark.parametrize("shape", SHAPES)
def test_features_are_those_of_the_network(shape: tuple[int, ...]) -> None:
    net = network(shape)
    for obs in (images(9, shape), torch.zeros(1, *shape, dtype=torch.uint8)):
        with torch.no_grad():
            close(features(Trunk.of(net), read(net, obs)), net(obs), 2)
    white = torch.full((1, *shape), 255, dtype=torch.uint8)
    with torch.no_grad():
        close(features(Trunk.of(net), read(net, white)), net(white), 2)


@pytest.mark.parametrize(("all_on", "epsilons"), [(True, 2), (False, 30)])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_network(
    shape: tuple[int, ...], all_on: bool, epsilons: float
) -> None:
    net, obs = network(shape, all_on=all_on), images(40, shape)
    u = torch.randn(40, 256, generator=torch.Generator().manual_seed(3)) + 0.5
    weights = list(net.parameters())
    expected = torch.autograd.grad(net(obs), weights, u)
    found = torch.autograd.grad(features(Trunk.of(net), read(net, obs)), weights, u)
    for gradient, reference in zip(found, expected, strict=True):
        close(gradient, reference, epsilons)


@pytest.mark.parametrize(("all_on", "epsilons"), [(True, 2), (False, 30)])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_with_the_jacobian_are_those_of_the_network(
    shape: tuple[int, ...], all_on: bool, epsilons: float
) -> None:
    rng = torch.Generator().manual_seed(4)
    net, head, obs = network(shape, all_on=all_on), linear(256, 5, rng), images(40, shape)
    exact = Linearised([*net, head], obs)
    found = LinearisedImages(net, head, read(net, obs))
    close(found.out, exact.out, 2)
    weights: list[Tensor] = [*net.parameters(), *head.parameters()]
    change = {w: torch.randn(w.shape, generator=rng) for w in weights}
    tangent = found.push_forward(change)
    close(tangent, exact.push_forward(change), epsilons)
    u = torch.randn(40, 5, generator=rng) + 0.5
    before, gradients = u.clone(), found.pull_back(u)
    for gradient, reference in zip(gradients, exact.pull_back(u), strict=True):
        close(gradient, reference, epsilons)
    assert torch.equal(u, before)
    # One product is the adjoint of the other: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩.
    scale = tangent.norm() * u.norm()
    dual = sum((g * c).sum() for g, c in zip(gradients, change.values(), strict=True))
    assert abs((u * tangent).sum() - dual) <= EPSILON * scale
    assert 0 < found.bytes < exact.bytes


def test_a_reader_uses_float32_for_vectors_and_without_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pixels = Pixels(Box(0, 255, (4, 52, 52), np.uint8))
    for has, entries, asked, expected in (
        (True, pixels, "bfloat16", "bfloat16"),
        (True, pixels, "float32", "float32"),
        (True, Flat(), "bfloat16", "float32"),
        (False, pixels, "bfloat16", "float32"),
    ):
        monkeypatch.setattr(bfloat16, "in_hardware", lambda has=has: has)
        found: Any = reader(entries, asked)  # type: ignore[arg-type]
        assert found.arithmetic == expected
    with pytest.raises(TypeError, match="only the paper's convolutions"):
        Trunk.of(nn.Sequential(nn.Linear(2, 2)))


@pytest.mark.usefixtures("hardware")
def test_emi_learns_the_same_up_to_rounding() -> None:
    space, actions = Box(0, 255, (4, 52, 52), np.uint8), Discrete(3)
    obs = images(65, (4, 52, 52)).numpy()
    batch = Transitions(obs[:64], np.arange(64) % 3, obs[1:])
    scalars = [
        EMI(space, actions, EMIConfig(minibatch=32, epochs=2, arithmetic=a), seed=1).learn(batch)
        for a in ("float32", "bfloat16")
    ]
    exact, found = scalars
    assert found != exact
    for name in ("emi/loss_linear", "emi/loss_error", "emi/loss_info", "emi/action_norm"):
        assert found[name] == pytest.approx(exact[name], rel=0.02), name


@pytest.mark.usefixtures("hardware")
def test_a_value_network_is_fitted_the_same_up_to_rounding() -> None:
    space, obs = Box(0, 255, (4, 52, 52), np.uint8), images(64, (4, 52, 52)).numpy()
    target = obs.mean((1, 2, 3)) / 255
    losses, predictions = [], []
    for arithmetic in ("float32", "bfloat16"):
        config = ValueConfig(kind="network", minibatch=32, epochs=4, arithmetic=arithmetic)
        value = NetworkValue(space, config, torch.Generator().manual_seed(0))
        rows = Rows(obs, np.arange(64))
        fit = value.fit(rows, np.zeros(64, np.int64), target, np.random.default_rng(0))
        losses.append(fit["value/loss"])
        predictions.append(value.predict(rows, np.zeros(64, np.int64)))
        assert all(p.dtype == torch.float32 for p in value.parameters())
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert np.corrcoef(*predictions)[0, 1] > 0.99


@pytest.mark.usefixtures("hardware")
@pytest.mark.parametrize("actions", [Discrete(4), Box(-1, 1, (2,), np.float32)])
def test_a_policy_is_evaluated_the_same_up_to_rounding(actions: Any) -> None:
    space, obs = Box(0, 255, (4, 52, 52), np.uint8), images(20, (4, 52, 52))
    exact, found = (
        make_policy(space, actions, PolicyConfig(arithmetic=a), torch.Generator().manual_seed(0))
        for a in ("float32", "bfloat16")
    )
    assert not torch.equal(found(obs), exact(obs))
    close(found(obs).detach(), exact(obs).detach(), 2)
    close(found.linearise(obs).out, found(obs).detach(), 2**-10)
    # Acting is not part of the update.
    assert np.array_equal(found.outputs()(obs.numpy()), exact.outputs()(obs.numpy()))
