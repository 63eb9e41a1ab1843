"""The paper's networks: fully connected layers and convolutions, Xavier-initialised.

Every layer draws its weights from the given generator, so that the seed determines a network.
"""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import gymnasium
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn.utils import skip_init

from emi.batch import Batched, Rows
from emi.errors import UserError
from emi.images import FrameStack, images_of, is_image
from emi.spaces import require_box
from emi.stored_state import expect_adam

Activation = Literal["tanh", "relu", "elu", "leaky_relu"]
M = TypeVar("M", nn.Linear, nn.Conv2d)
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
    "elu": partial(nn.ELU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, 0.2, inplace=True),  # TensorFlow's slope
}
Init = Literal["xavier", "orthogonal"]


def _initialise(layer: M, init: Init, generator: torch.Generator) -> M:
    match init:
        case "xavier":
            # As in EMI's code: uniform in ±sqrt(6 / (fan_in + fan_out)), also for the last layer.
            nn.init.xavier_uniform_(layer.weight, generator=generator)
        case "orthogonal":
            nn.init.orthogonal_(layer.weight, 2**0.5, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def linear(
    inputs: int, outputs: int, generator: torch.Generator, *, init: Init = "xavier"
) -> nn.Linear:
    """A linear layer with zero bias."""
    layer = skip_init(nn.Linear, inputs, outputs, dtype=torch.float32)
    return _initialise(layer, init, generator)


def mlp(
    sizes: Sequence[int],
    activation: Activation,
    generator: torch.Generator,
    *,
    activate_last: bool = False,
    init: Init = "xavier",
) -> nn.Sequential:
    """Fully connected layers `sizes[0]` → … → `sizes[-1]` with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, generator, init=init), _ACTIVATIONS[activation]()]
    return nn.Sequential(*(layers if activate_last else layers[:-1]))


class Pixels(nn.Module):
    """Images of a space, [n, *shape] with `images_of` the space, to floats [n, C, H, W] in [−1, 1].

    `newest_frame` keeps only the newest frame of a `FrameStack`; other images are read whole.
    """

    def __init__(self, space: Box, *, newest_frame: bool = False) -> None:
        super().__init__()
        layout = images_of(space)
        self.axis, self.stacked = layout.channel_axis, layout.stacked
        self.height, self.width = layout.height, layout.width
        frames = space.frames if newest_frame and isinstance(space, FrameStack) else 1
        self.channels = layout.channels // frames
        self.shape = (self.channels, self.height, self.width)  # of the output
        # Of what `frames` returns.
        self.frame_space = Box(0, layout.highest, self.shape, layout.dtype)
        self._scale = 2 / layout.highest
        self._kept = layout.kept(frames)

    def newest(self, obs: Batched) -> Batched:
        """The rows without the channels that `forward` ignores, so that these are not gathered."""
        if self._kept is None:
            return obs
        return obs.last(self._kept) if isinstance(obs, Rows) else obs[:, -self._kept :]

    def frames(self, obs: Tensor) -> Tensor:
        """The channels that are kept, unscaled: [n, *shape] to [n, C, H, W]."""
        if self.axis is None:
            obs = obs.unsqueeze(-3)
        elif self.axis == -1:
            obs = obs.movedim(-1, -3)
        if self.stacked:  # [n, frames, channels of a frame, H, W]
            obs = obs.flatten(1, 2)
        return obs[:, -self.channels :]

    def forward(self, obs: Tensor) -> Tensor:
        floats = self.frames(obs).to(torch.float32, copy=True).mul_(self._scale).sub_(1)
        # The memory layout of the convolutions' weights: see benchmarks/image_update.py. Reordering
        # floats is faster than reordering bytes or doing it together with the conversion.
        return floats.contiguous(memory_format=torch.channels_last)


class Flat(nn.Module):
    """[n, ...] of any real type to float32 [n, entries]."""

    def newest(self, obs: Batched) -> Batched:
        return obs

    def forward(self, obs: Tensor) -> Tensor:
        return obs.reshape(len(obs), -1).to(torch.float32)


def newest_entries(space: gymnasium.Space) -> tuple[Pixels | Flat, tuple[int, ...]]:
    """A module from observations to newest frames [C, H, W] or vectors [D]; also this shape."""
    box = require_box(space)
    if is_image(box):
        pixels = Pixels(box, newest_frame=True)
        return pixels, pixels.shape
    return Flat(), (math.prod(box.shape),)


class FlatImages(nn.Module):
    """[n, C, H, W] to [n, H·W·C]: a view of channels_last memory, and so is its gradient."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


class Conv(NamedTuple):
    """One convolution with square kernels."""

    filters: int
    kernel: int
    stride: int
    padding: int = 0

    def output(self, size: int) -> int:
        return (size + 2 * self.padding - self.kernel) // self.stride + 1

    def smallest_input(self, output: int) -> int:
        return max(1, (output - 1) * self.stride + self.kernel - 2 * self.padding)


def convolutions(
    pixels: Pixels,
    layers: Sequence[Conv],
    activation: Activation,
    generator: torch.Generator,
    *,
    init: Init = "xavier",
) -> tuple[nn.Sequential, int]:
    """Pixels, convolutions with activations, and flattening; also returns the width."""
    height, width, channels = pixels.height, pixels.width, pixels.channels
    smallest = 1
    for layer in reversed(layers):
        smallest = layer.smallest_input(smallest)
    if min(height, width) < smallest:
        raise UserError(
            f"images must be at least {smallest}×{smallest} for the convolutions, "
            f"got {pixels.height}×{pixels.width}"
        )
    stack: list[nn.Module] = [pixels]
    for layer in layers:
        conv = skip_init(nn.Conv2d, channels, *layer, dtype=torch.float32)
        stack += [_initialise(conv, init, generator), _ACTIVATIONS[activation]()]
        height, width, channels = layer.output(height), layer.output(width), layer.filters
    net = nn.Sequential(*stack, FlatImages())
    return net.to(memory_format=torch.channels_last), channels * height * width  # type: ignore[call-overload]


def conv_trunk(pixels: Pixels, generator: torch.Generator) -> tuple[nn.Sequential, int]:
    """16@8×8 stride 4, 32@4×4 stride 2, 256 units, all ReLU; also returns the width, 256."""
    net, width = convolutions(pixels, [Conv(16, 8, 4), Conv(32, 4, 2)], "relu", generator)
    top = mlp([width, 256], "relu", generator, activate_last=True)
    return nn.Sequential(*net, *top), 256


def trunk(
    space: gymnasium.Space,
    hidden: Sequence[int],
    activation: Activation,
    generator: torch.Generator,
    *,
    newest_frame: bool = False,
) -> tuple[nn.Sequential, int]:
    """Convolutions for images, hidden layers (or none) for vectors; also returns the width."""
    box = require_box(space)
    if is_image(box):
        return conv_trunk(Pixels(box, newest_frame=newest_frame), generator)
    sizes = [math.prod(box.shape), *hidden]
    layers = mlp(sizes, activation, generator, activate_last=True)
    return nn.Sequential(Flat(), *layers), sizes[-1]


def reads_as_vectors(module: nn.Module, observation_space: gymnasium.Space) -> bool:
    """Whether a module built from these layers would read images of this space as vectors."""
    if not is_image(observation_space):
        return False
    flat, pixels = (
        any(isinstance(part, kind) for part in module.modules()) for kind in (Flat, Pixels)
    )
    return flat and not pixels


def load_optimizer(optimizer: torch.optim.Adam, state: Any, place: str = "optimizer") -> None:
    """Load a copy of the moments in `state`, with the memory layout of the parameters.

    UserError if it is not a state of this optimizer; the settings stay those of the optimizer. A
    checkpoint stores values, not strides, but the fused kernel reads memory in order: with
    channels_last weights, it would combine a weight with the moment of another one.
    """
    expect_adam(state, optimizer, place)
    own = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": copy.deepcopy(state["state"]), "param_groups": own})
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)
