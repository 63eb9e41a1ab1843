"""The Jensen–Shannon bound and the Gaussian KL at values known by hand."""

from __future__ import annotations

import math

import pytest
import torch

from emi.intrinsic.information import gaussian_kl, jsd_bound, jsd_loss


def test_the_bound_is_zero_for_a_constant_zero_statistic() -> None:
    zero = torch.zeros(8)
    assert jsd_bound(jsd_loss(zero, zero)).item() == pytest.approx(0, abs=1e-6)


def test_the_bound_reaches_log_4_on_separable_pairs_and_never_exceeds_it() -> None:
    apart = jsd_bound(jsd_loss(torch.full((8,), 50.0), torch.full((8,), -50.0)))
    assert apart.item() == pytest.approx(math.log(4), abs=1e-6)
    noise = torch.Generator().manual_seed(0)
    for scale in (0.1, 1.0, 10.0, 1e4):
        joint, marginal = scale * torch.randn(2, 64, generator=noise)
        assert jsd_bound(jsd_loss(joint, marginal)) <= math.log(4)


def test_the_loss_at_a_value_known_by_hand() -> None:
    # sp(−1) + sp(2) = log(1 + e⁻¹) + log(1 + e²)
    loss = jsd_loss(torch.tensor([1.0]), torch.tensor([2.0]))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2)))


def test_gaussian_kl_is_the_closed_form() -> None:
    # Four points with mean (1, 0) and unbiased covariance diag(4/3, 16/3).
    x = torch.tensor([[2.0, 2.0], [0.0, 2.0], [2.0, -2.0], [0.0, -2.0]])
    trace, log_det = 4 / 3 + 16 / 3, math.log(4 / 3) + math.log(16 / 3)
    assert gaussian_kl(x).item() == pytest.approx(0.5 * (trace + 1 - 2 - log_det))


def test_gaussian_kl_sees_correlation() -> None:
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) @ torch.tensor(
        [[1.0, 0.9], [0.0, 0.3]]
    )
    mean, covariance = x.mean(0), torch.cov(x.T)
    fitted = torch.distributions.MultivariateNormal(mean, covariance)
    standard = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    expected = torch.distributions.kl_divergence(fitted, standard)
    torch.testing.assert_close(gaussian_kl(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_collapsed_batch_has_a_finite_kl_and_gradient(n: int) -> None:
    x = torch.zeros(n, 2, requires_grad=True)
    kl = gaussian_kl(x)
    assert kl.item() == pytest.approx(0.5 * (2e-6 - 2 - 2 * math.log(1e-6)), rel=1e-5)
    kl.backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
