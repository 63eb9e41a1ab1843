"""Autoencoders with a nearly binary code, for AE-SimHash: similar observations have equal bits.

Noise is added to the code before decoding, so that only values near 0 and 1 carry information; a
penalty pushes the code in the same direction. Sources are named as in `emi.intrinsic.simhash`.
"""

import math
from collections.abc import Sequence

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import skip_init

from emi.errors import UserError
from emi.nets import Conv, Flat, Pixels, linear, mlp

LEVELS = 64  # levels that pixel intensities are quantised to (paper)
SMOOTHING = 0.003  # added to each of the 64 entries of a one-hot target (authors' code)
PADDINGS = (0, 1, 2)  # of the three 6×6 convolutions of stride 2: 52 → 24 → 11 → 5 (authors' code)


def binary_penalty(b: Tensor) -> Tensor:
    """1/K Σᵢ min(bᵢ², (1 − bᵢ)²), the paper's penalty without λ; [n, K] to [], mean over rows."""
    return mse_loss(b, b.detach().round())  # min(b, 1 − b) is the distance to the nearer integer


def quantise(pixels: Tensor) -> Tensor:
    """Floats in [−1, 1], as from `Pixels`, to uint8 levels 0 … 63 of four intensities each."""
    return (pixels + 1).mul_(127.5).round_().to(torch.uint8) // (256 // LEVELS)


def pixel_nll(logits: Tensor, levels: Tensor) -> Tensor:
    """−log p(s) per pixel, averaged over pixels and rows; [m, 64] and [m] levels to [].

    The target is (one-hot + ε) / (1 + 64 ε): PyTorch's label smoothing with 64 ε / (1 + 64 ε).
    """
    excess = LEVELS * SMOOTHING
    return cross_entropy(logits, levels.long(), label_smoothing=excess / (1 + excess))


class ImageAutoencoder(nn.Module):
    """Three convolutions, a hidden layer and the code; the decoder mirrors them.

    The decoder outputs 64 logits per pixel. Each layer is followed by batch normalisation and ReLU,
    the code by batch normalisation and a sigmoid.
    """

    def __init__(
        self, space: Box, filters: int, hidden: int, code: int, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.code = code
        self.pixels = Pixels(space, newest_frame=True)
        self.row = (self.pixels.shape, torch.uint8)  # shape and dtype of what `rows` returns
        layers = [Conv(filters, 6, 2, padding) for padding in PADDINGS]
        sizes = [(self.pixels.height, self.pixels.width)]
        for layer in layers:
            sizes.append((layer.output(sizes[-1][0]), layer.output(sizes[-1][1])))
        if min(sizes[-1]) < 1:
            raise UserError(
                "images must be at least 16×16 for the autoencoder, "
                f"got {self.pixels.height}×{self.pixels.width}"
            )

        def convolved(conv: nn.Conv2d | nn.ConvTranspose2d) -> list[nn.Module]:
            nn.init.xavier_uniform_(conv.weight, generator=rng)
            return [conv, nn.BatchNorm2d(filters, dtype=torch.float32), nn.ReLU(inplace=True)]

        def dense(inputs: int, outputs: int) -> list[nn.Module]:
            return [
                linear(inputs, outputs, rng),
                nn.BatchNorm1d(outputs, dtype=torch.float32),
                nn.ReLU(inplace=True),
            ]

        down: list[nn.Module] = []
        for i, layer in enumerate(layers):
            inputs = filters if i else self.pixels.channels
            down += convolved(skip_init(nn.Conv2d, inputs, *layer, bias=False, dtype=torch.float32))
        up: list[nn.Module] = []
        for layer, small, large in zip(layers[::-1], sizes[:0:-1], sizes[-2::-1], strict=True):
            # Where a stride skipped the last rows, the decoder must add them.
            missing = [
                big - ((s - 1) * 2 + 6 - 2 * layer.padding)
                for s, big in zip(small, large, strict=True)
            ]
            deconv = skip_init(
                nn.ConvTranspose2d,
                filters,
                *layer,
                output_padding=missing,
                bias=False,
                dtype=torch.float32,
            )
            up += convolved(deconv)
        features = filters * math.prod(sizes[-1])
        self.encoder = nn.Sequential(
            *down,
            nn.Flatten(),
            *dense(features, hidden),
            linear(hidden, code, rng),
            nn.BatchNorm1d(code, dtype=torch.float32),
            nn.Sigmoid(),
        )
        self.decoder = nn.Sequential(
            *dense(code, hidden),
            *dense(hidden, features),
            nn.Unflatten(1, (filters, *sizes[-1])),
            *up,
        )
        channels = self.pixels.channels
        self.levels = linear(filters, channels * LEVELS, rng)
        self.pixel_bias = nn.Parameter(
            torch.zeros(math.prod(sizes[0]) * channels, LEVELS, dtype=torch.float32)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def rows(self, obs: Tensor) -> Tensor:
        """The training data: [n, *observation] to the levels of the newest frame, [n, C, H, W]."""
        return quantise(self.pixels(obs))

    def adapt(self, rows: Tensor) -> None:
        """Do nothing: levels need no scale."""

    def encode(self, rows: Tensor) -> Tensor:
        """b: [n, C, H, W] levels to [n, K] in (0, 1)."""
        floats = rows.to(torch.float32, memory_format=torch.channels_last)
        return self.encoder(floats.mul_(2 / (LEVELS - 1)).sub_(1))

    def loss(self, b: Tensor, rows: Tensor) -> Tensor:
        """−log p(s | b) per pixel; [n, K] and [n, C, H, W] to []."""
        n = len(rows)
        logits = self.levels(self.decoder(b).permute(0, 2, 3, 1)).reshape(n, -1, LEVELS)
        target = rows.permute(0, 2, 3, 1).reshape(-1)
        return pixel_nll((logits + self.pixel_bias).reshape(-1, LEVELS), target)


class VectorAutoencoder(nn.Module):
    """Dense layers with tanh; ours: the original has images only.

    All entries share one scale, 1 / their root mean square, as all pixels do. Nothing is centred:
    with a mean of zero, every threshold of the code would lie inside the known states, and unknown
    states would have the same codes as known ones.
    """

    scale: Tensor  # []

    def __init__(self, size: int, hidden: Sequence[int], code: int, rng: torch.Generator) -> None:
        super().__init__()
        self.code = code
        self.flat = Flat()
        self.row = ((size,), torch.float32)  # shape and dtype of what `rows` returns
        self.encoder = nn.Sequential(*mlp([size, *hidden, code], "tanh", rng), nn.Sigmoid())
        self.decoder = mlp([code, *reversed(hidden), size], "tanh", rng)
        self.register_buffer("scale", torch.ones((), dtype=torch.float32))

    def rows(self, obs: Tensor) -> Tensor:
        """The training data: [n, *observation] to [n, D]."""
        return self.flat(obs)

    def adapt(self, rows: Tensor) -> None:
        """Set the scale to 1 / the root mean square of [n, D]."""
        rms = rows.to(torch.float64).square().mean().sqrt()
        self.scale.copy_(1 / rms.clamp(min=1e-6))

    def encode(self, rows: Tensor) -> Tensor:
        """b: [n, D] to [n, K] in (0, 1)."""
        return self.encoder(rows * self.scale)

    def loss(self, b: Tensor, rows: Tensor) -> Tensor:
        """Squared error per scaled entry; [n, K] and [n, D] to []."""
        return mse_loss(self.decoder(b), rows * self.scale)
