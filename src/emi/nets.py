"""The paper's networks: fully connected nets and one convolutional trunk, Xavier-initialised.

Every layer draws its weights from the generator it is given, so that a seed decides a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, TypeVar

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

Activation = Literal["tanh", "relu"]
M = TypeVar("M", nn.Linear, nn.Conv2d)
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
}


def _xavier(layer: M, generator: torch.Generator) -> M:
    # As in the authors' code: uniform in ±sqrt(6 / (fan_in + fan_out)) for all layers, the last
    # one included, and zero biases.
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    return _xavier(skip_init(nn.Linear, inputs, outputs), generator)


def mlp(
    sizes: Sequence[int],
    activation: Activation,
    generator: torch.Generator,
    *,
    activate_last: bool = False,
) -> nn.Sequential:
    """Fully connected layers `sizes[0]` → … → `sizes[-1]` with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, generator), _ACTIVATIONS[activation]()]
    return nn.Sequential(*(layers if activate_last else layers[:-1]))


def is_image(space: gymnasium.Space) -> bool:
    """An image is a uint8 `Box` with two axes, or with three of which one is the channels'."""
    return (
        isinstance(space, gymnasium.spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
    )


class Pixels(nn.Module):
    """uint8 images [n, H, W], [n, C, H, W] or [n, H, W, C] to floats [n, C, H, W] in [−1, 1].

    The channel axis is the shorter of the first and the last. With `newest_frame`, only the frame
    that a stack has last is kept: three channels if their number is a multiple of three (colour),
    else one.
    """

    def __init__(self, shape: Sequence[int], *, newest_frame: bool = False) -> None:
        super().__init__()
        self.axis = None if len(shape) == 2 else (1 if shape[0] <= shape[2] else 3)
        channels = 1 if self.axis is None else shape[self.axis - 1]
        self.channels = (3 if channels % 3 == 0 else 1) if newest_frame else channels
        spatial = [s for i, s in enumerate(shape) if self.axis is None or i != self.axis - 1]
        self.height, self.width = spatial

    def forward(self, obs: Tensor) -> Tensor:
        if self.axis is None:
            obs = obs.unsqueeze(1)
        elif self.axis == 3:
            obs = obs.permute(0, 3, 1, 2)
        newest = obs[:, -self.channels :]
        # channels_last convolutions are twice as fast on CPUs.
        floats = newest.to(torch.float32, memory_format=torch.channels_last)
        return floats.mul_(2 / 255).sub_(1)


class Flat(nn.Module):
    """[n, ...] of any real type to float32 [n, features]."""

    def forward(self, obs: Tensor) -> Tensor:
        return obs.reshape(len(obs), -1).to(torch.float32)


def conv_output(size: int, kernel: int, stride: int) -> int:
    return (size - kernel) // stride + 1


def conv_trunk(pixels: Pixels, generator: torch.Generator) -> tuple[nn.Sequential, int]:
    """16@8×8 stride 4, 32@4×4 stride 2, 256 units, all ReLU; also returns the width, 256."""
    height, width = (
        conv_output(conv_output(size, 8, 4), 4, 2) for size in (pixels.height, pixels.width)
    )
    if height < 1 or width < 1:
        raise ValueError(
            "images must be at least 20×20 for the convolutions, "
            f"got {pixels.height}×{pixels.width}"
        )
    first = _xavier(skip_init(nn.Conv2d, pixels.channels, 16, 8, 4), generator)
    second = _xavier(skip_init(nn.Conv2d, 16, 32, 4, 2), generator)
    trunk = nn.Sequential(
        pixels,
        first,
        nn.ReLU(inplace=True),
        second,
        nn.ReLU(inplace=True),
        nn.Flatten(),
        linear(32 * height * width, 256, generator),
        nn.ReLU(inplace=True),
    )
    return trunk.to(memory_format=torch.channels_last), 256  # type: ignore[call-overload]


def trunk(
    space: gymnasium.Space,
    hidden: Sequence[int],
    activation: Activation,
    generator: torch.Generator,
    *,
    newest_frame: bool = False,
) -> tuple[nn.Sequential, int]:
    """Observation to features: convolutions for images, hidden layers for vectors; and the width.

    With no hidden layers a vector passes as it is.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(f"observations must be a Box (vectors, or uint8 images), got {space}")
    if is_image(space):
        return conv_trunk(Pixels(space.shape, newest_frame=newest_frame), generator)
    sizes = [math.prod(space.shape), *hidden]
    layers = mlp(sizes, activation, generator, activate_last=True)
    return nn.Sequential(Flat(), *layers), sizes[-1]
