"""The autoencoders of AE-SimHash: their losses against NumPy, their shapes, what is quantised."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from emi.intrinsic.autoencoder import (
    ImageAutoencoder,
    VectorAutoencoder,
    binary_penalty,
    pixel_nll,
    quantise,
)
from emi.nets import Pixels


def images(shape: tuple[int, ...]) -> Box:
    return Box(0, 255, shape, np.uint8)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_penalty_by_hand() -> None:
    b = torch.tensor([[0.0, 1.0, 0.5, 0.2], [0.9, 0.5, 0.3, 0.6]], requires_grad=True)
    penalty = binary_penalty(b)
    assert penalty.item() == pytest.approx((0.25 + 0.04 + 0.01 + 0.25 + 0.09 + 0.16) / 8)
    penalty.backward()
    assert b.grad is not None
    assert b.grad[1].tolist() == pytest.approx([-0.2 / 8, 1 / 8, 0.6 / 8, -0.8 / 8])


def test_each_level_is_four_intensities() -> None:
    obs = torch.arange(256, dtype=torch.uint8).repeat(16).reshape(1, 64, 64)
    levels = quantise(Pixels(images((64, 64)))(obs))
    assert levels.dtype == torch.uint8
    assert levels.flatten().tolist() == (obs.flatten() // 4).tolist()
    assert len(levels.unique()) == 64


def test_the_likelihood_against_numpy() -> None:
    """With the original's smoothing: 0.003 is added to each of the 64 entries of a target."""
    logits = torch.randn(10, 64, generator=rng())
    levels = torch.arange(0, 60, 6).to(torch.uint8)
    target = np.eye(64)[levels.numpy()] + 0.003
    target /= target.sum(1, keepdims=True)
    p = np.exp(logits.numpy().astype(np.float64))
    log_p = np.log(p / p.sum(1, keepdims=True))
    assert pixel_nll(logits, levels).item() == pytest.approx(-(target * log_p).sum(1).mean())


@pytest.mark.parametrize(
    "shape", [(52, 52), (4, 52, 52), (36, 36), (37, 50, 3), (84, 84), (6, 41, 40)]
)
def test_every_size_comes_back(shape: tuple[int, ...]) -> None:
    net = ImageAutoencoder(images(shape), 3, 8, 5, rng())
    obs = torch.randint(256, (2, *shape), generator=rng()).to(torch.uint8)
    rows = net.rows(obs)
    pixels = net.pixels
    assert rows.shape == (2, pixels.channels, pixels.height, pixels.width)
    b = net.encode(rows)
    assert b.shape == (2, 5)
    assert ((b > 0) & (b < 1)).all()
    assert net.decoder(b).shape == (2, 3, pixels.height, pixels.width)
    assert net.loss(b, rows).shape == ()


def test_the_sizes_of_the_original() -> None:
    net = ImageAutoencoder(images((1, 52, 52)), 96, 1024, 512, rng())
    sizes, x = [], torch.zeros(2, 1, 52, 52)
    for layer in net.encoder:
        x = layer(x)
        sizes.append(tuple(x.shape[1:]))
    assert [sizes[i] for i in (0, 3, 6)] == [(96, 24, 24), (96, 11, 11), (96, 5, 5)]
    assert sizes[-1] == (512,)
    # Batch-norm also before the sigmoid: it keeps bits from being the same for all states.
    assert [type(layer).__name__ for layer in list(net.encoder)[-2:]] == ["BatchNorm1d", "Sigmoid"]


def test_the_loss_of_an_image_is_that_of_its_own_pixels() -> None:
    """Rows, columns and colours of the target must meet those of the output."""
    net = ImageAutoencoder(images((38, 40, 3)), 4, 8, 5, rng())
    torch.nn.init.normal_(net.pixel_bias, generator=rng())
    rows = torch.randint(64, (2, 3, 38, 40), generator=rng()).to(torch.uint8)
    b = net.encode(rows)
    features = net.decoder(b)
    total = 0.0
    weight = net.levels.weight.reshape(3, 64, 4)
    own = net.pixel_bias.reshape(38, 40, 3, 64)
    for colour in range(3):
        logits = torch.einsum("nfhw,lf->nhwl", features, weight[colour]) + own[:, :, colour]
        target = rows[:, colour].reshape(-1)
        total += pixel_nll(logits.reshape(-1, 64), target).item() / 3
    assert net.loss(b, rows).item() == pytest.approx(total, rel=1e-5)


def test_the_encoder_reads_levels_between_minus_one_and_one() -> None:
    net = ImageAutoencoder(images((36, 36)), 2, 4, 3, rng())
    seen = []
    net.encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    net.encode(torch.tensor([0, 21, 63], dtype=torch.uint8).repeat(2, 1, 36, 12))
    assert seen[0][0, 0, 0, :3].tolist() == pytest.approx([-1, -1 / 3, 1])


def test_every_weight_of_an_image_autoencoder_is_trained() -> None:
    net = ImageAutoencoder(images((40, 40)), 3, 8, 5, rng())
    rows = torch.randint(64, (8, 1, 40, 40), generator=rng()).to(torch.uint8)
    net.loss(net.encode(rows), rows).backward()
    # What precedes batch-norm is centred by it, so its bias has a gradient of rounding errors only.
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_vectors_have_one_scale_and_no_centre() -> None:
    net = VectorAutoencoder(2, (8,), 4, rng())
    rows = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 3.0], [3.0, -3.0]])
    net.adapt(rows)
    assert net.scale.item() == pytest.approx(1 / np.sqrt(6 * 9 / 8))
    twin = VectorAutoencoder(2, (8,), 4, rng())
    assert torch.allclose(net.encode(rows), twin.encode(rows * net.scale))
    decoded = net.decoder(net.encode(rows)).detach().numpy()
    expected = np.mean((decoded - rows.numpy() * net.scale.item()) ** 2)
    assert net.loss(net.encode(rows), rows).item() == pytest.approx(expected)


def test_the_decoder_of_vectors_mirrors_the_encoder() -> None:
    net = VectorAutoencoder(3, (8, 6), 4, rng())
    widths = [layer.out_features for layer in net.decoder if isinstance(layer, torch.nn.Linear)]
    assert widths == [6, 8, 3]


def test_only_the_generator_decides_the_weights() -> None:
    def weights(global_seed: int) -> torch.Tensor:
        torch.manual_seed(global_seed)
        net = ImageAutoencoder(images((36, 36)), 2, 4, 3, rng())
        return torch.cat([parameter.flatten() for parameter in net.parameters()])

    assert torch.equal(weights(0), weights(1))
