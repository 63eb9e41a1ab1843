"""Networks: shapes, scales and the order of image axes."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from emi.nets import Pixels, load_optimizer, mlp, trunk
from emi.spaces import is_image


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_layers_of_an_mlp() -> None:
    net = mlp([3, 5, 2], "tanh", generator())
    assert [type(layer).__name__ for layer in net] == ["Linear", "Tanh", "Linear"]
    net = mlp([3, 5, 2], "relu", generator(), activate_last=True)
    assert [type(layer).__name__ for layer in net] == ["Linear", "ReLU", "Linear", "ReLU"]


def test_the_conv_trunk_is_the_papers() -> None:
    net, width = trunk(Box(0, 255, (4, 52, 52), np.uint8), (64, 32), "tanh", generator())
    assert width == 256
    convs = [layer for layer in net if isinstance(layer, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size, c.stride) for c in convs] == [
        (16, (8, 8), (4, 4)),
        (32, (4, 4), (2, 2)),
    ]
    # 52 → 12 → 5, so 32 · 5 · 5 features meet 256 units.
    (dense,) = (layer for layer in net if isinstance(layer, nn.Linear))
    assert (dense.in_features, dense.out_features) == (800, 256)
    # Xavier's fans of a convolution include its receptive field.
    bound = math.sqrt(6 / (4 * 64 + 16 * 64))
    assert 0.95 * bound < convs[0].weight.abs().max() <= bound


@pytest.mark.parametrize("layout", ["first", "last"])
def test_pixels_scale_to_plus_minus_one_in_either_layout(layout: str) -> None:
    image = np.zeros((1, 4, 20, 24), np.uint8)
    image[0, 2, 7, 11] = 255
    if layout == "last":
        image = np.moveaxis(image, 1, 3)
    pixels = Pixels(image.shape[1:])
    assert (pixels.channels, pixels.height, pixels.width) == (4, 20, 24)
    out = pixels(torch.as_tensor(image))
    assert out.shape == (1, 4, 20, 24)
    assert out[0, 2, 7, 11] == 1
    assert out.sum() == pytest.approx(-(4 * 20 * 24) + 2)


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((52, 52), 1), ((4, 52, 52), 1), ((52, 52, 3), 3), ((12, 52, 52), 3), ((52, 52, 1), 1)],
)
def test_the_newest_frame_is_the_last_one(shape: tuple[int, ...], channels: int) -> None:
    pixels = Pixels(shape, newest_frame=True)
    assert pixels.channels == channels
    assert pixels(torch.zeros((2, *shape), dtype=torch.uint8)).shape == (2, channels, 52, 52)


def test_a_stack_yields_its_last_frame() -> None:
    stack = torch.arange(4, dtype=torch.uint8).mul(80)[None, :, None, None].expand(1, 4, 20, 20)
    newest = Pixels((4, 20, 20), newest_frame=True)(stack)
    assert newest.unique().item() == pytest.approx(240 / 255 * 2 - 1)


def test_what_an_image_is() -> None:
    assert is_image(Box(0, 255, (52, 52, 3), np.uint8))
    assert is_image(Box(0, 255, (52, 52), np.uint8))
    assert not is_image(Box(0, 255, (128,), np.uint8))
    assert not is_image(Box(0, 1, (52, 52, 3), np.float32))
    assert not is_image(Discrete(3))


def test_adam_continues_unchanged_from_a_state_without_strides() -> None:
    """A checkpoint stores values only; fused Adam walks through memory, here channels_last."""

    def learner() -> tuple[nn.Module, torch.optim.Optimizer]:
        net, _ = trunk(Box(0, 255, (3, 36, 36), np.uint8), (), "relu", generator())
        return net, torch.optim.Adam(net.parameters(), lr=0.1, fused=True)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        frames = torch.randint(
            0, 256, (2, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
        )
        optimizer.zero_grad()
        net(frames).square().sum().backward()
        optimizer.step()

    net, optimizer = learner()
    step(net, optimizer, 1)
    twin, other = learner()
    twin.load_state_dict(net.state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    for moments in state["state"].values():
        for name, value in moments.items():
            moments[name] = value.contiguous(memory_format=torch.contiguous_format)
    load_optimizer(other, state)
    step(net, optimizer, 2)
    step(twin, other, 2)
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
