"""Products of matrices: those of PyTorch, bit for bit where the processor was tested."""

from __future__ import annotations

import pytest
import torch

from emi import products
from emi.products import linear, linear_with, multiply_add, weight_gradient, weight_gradient_into


@pytest.fixture(params=[0, 2**62], ids=["by oneDNN", "by MKL"])
def worth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All products that can be are computed by oneDNN, or none."""
    monkeypatch.setattr(products, "_WORTH", request.param)


@pytest.mark.usefixtures("worth")
def test_products_are_those_of_pytorch() -> None:
    rng = torch.Generator().manual_seed(0)
    # Wide and narrow, few and many inputs, contiguous, transposed, and a part of a matrix.
    for outputs, inputs in ((64, 20), (6, 32), (32, 6), (64, 200), (32, 64)):
        wide = torch.randn(50, 2 * inputs, generator=rng)
        square = torch.randn(300, 300, generator=rng)
        bias, other = torch.randn(outputs, generator=rng), torch.randn(50, outputs, generator=rng)
        for x in (wide[:, :inputs], wide[:, :inputs].contiguous()):
            for weight in (
                square[:outputs, :inputs].contiguous(),
                square[:inputs, :outputs].contiguous().t(),
                square[:outputs, :inputs],
            ):
                plain = x @ weight.t()
                torch.testing.assert_close(linear(x, weight, None), plain, rtol=1e-5, atol=1e-4)
                for addend in (bias, other):
                    torch.testing.assert_close(
                        multiply_add(x, weight, addend), plain + addend, rtol=1e-5, atol=1e-4
                    )
                biased = linear(x, weight, bias)
                torch.testing.assert_close(biased, plain + bias, rtol=1e-5, atol=1e-4)
        x, u = wide[:, :inputs], other
        torch.testing.assert_close(weight_gradient(u, x), u.t() @ x, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("worth")
def test_prepared_products_follow_weights_that_change_in_place() -> None:
    rng = torch.Generator().manual_seed(0)
    for outputs, inputs in ((64, 20), (6, 32), (32, 64), (256, 38)):
        weight, bias = torch.randn(outputs, inputs, generator=rng), torch.randn(outputs)
        u, out = torch.empty(50, outputs), torch.empty(outputs, inputs)
        forward, back = linear_with(weight, bias, 50), linear_with(weight.t(), None, 50)
        add_up = weight_gradient_into(out, u)
        for _ in range(2):
            x = torch.randn(50, inputs, generator=rng)
            u.normal_(generator=rng)
            weight.normal_(generator=rng)
            assert torch.equal(forward(x), linear(x, weight, bias))
            torch.testing.assert_close(back(u), u @ weight, rtol=1e-5, atol=1e-4)
            add_up(x)
            assert torch.equal(out, weight_gradient(u, x))
