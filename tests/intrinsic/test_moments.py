"""Running moments: batch by batch is the same as all at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from emi.intrinsic.moments import Moments, RunningMoments


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 + 2 * torch.randn(n, *shape, generator=generator)


def assert_moments(moments: Moments | RunningMoments, of: Tensor) -> None:
    """Against NumPy; the variance is over the count, not the count less one."""
    x = of.double().numpy()
    assert moments.count.item() == len(x)
    np.testing.assert_allclose(moments.mean.numpy(), x.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moments.variance.numpy(), x.var(0), rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    moments = Moments.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert moments.count.item() == 2
    assert moments.mean.tolist() == [2, 5]
    assert moments.variance.tolist() == [1, 0]
    both = moments.merge(Moments.of(torch.tensor([[5.0, 5.0]])))
    assert both.count.item() == 3
    assert both.mean.tolist() == pytest.approx([3, 5])
    assert both.variance.tolist() == pytest.approx([8 / 3, 0])


def test_integers_are_counted_in_float64() -> None:
    moments = Moments.of(torch.tensor([[255], [255], [0]], dtype=torch.uint8))
    assert moments.mean.item() == 170
    assert moments.variance.item() == pytest.approx(14450)
    assert moments.mean.dtype == moments.variance.dtype == moments.count.dtype == torch.float64


@pytest.mark.parametrize("shape", [(), (3,), (1, 4, 4)])
@pytest.mark.parametrize("sizes", [[10], [1] * 10, [7, 1, 2], [1, 9]])
def test_batch_by_batch_is_all_at_once(shape: tuple[int, ...], sizes: list[int]) -> None:
    x = rows(10, *shape)
    running = RunningMoments(shape)
    for part in x.split(sizes):
        running.update(part)
    assert running.mean.shape == running.variance.shape == shape
    assert_moments(running, x)


def test_the_order_of_batches_does_not_matter() -> None:
    parts = rows(30, 2).split([5, 1, 24])
    a, b, c = (Moments.of(part) for part in parts)
    for merged in (a.merge(b).merge(c), c.merge(a).merge(b), a.merge(b.merge(c))):
        assert_moments(merged, torch.cat(parts))


def test_one_row_has_no_variance_and_never_nan() -> None:
    """The variance over the count less one is 0/0 for one row."""
    x = rows(1, 3)
    assert Moments.of(x).variance.tolist() == [0, 0, 0]
    running = RunningMoments((3,))
    running.update(x)
    assert running.variance.tolist() == [0, 0, 0]
    torch.testing.assert_close(running.mean, x[0].double(), rtol=0, atol=0)


def test_from_nothing_the_first_batch_counts_in_full() -> None:
    running = RunningMoments((2,))
    assert running.count.item() == 0
    x = rows(4, 2)
    first = running.with_rows(x)
    assert_moments(first, x)  # no trace of the zeros that it began with
    assert running.count.item() == 0  # and nothing was stored
    running.update(x)
    assert torch.equal(running.mean, first.mean)
    assert torch.equal(running.variance, first.variance)


def test_a_far_away_mean_costs_no_digits() -> None:
    """E[x²] − E[x]² would have none left here."""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64) + 1e9
    running = RunningMoments()
    for part in x.split(1):
        running.update(part)
    assert running.variance.item() == pytest.approx(1.25, rel=1e-6)


def test_rows_that_never_change_keep_their_mean_and_no_variance() -> None:
    running = RunningMoments()
    for n in (3, 1, 50):
        running.update(torch.full((n,), 0.1))
    assert running.mean.to(torch.float32).item() == torch.tensor(0.1).item()
    assert running.variance.item() < 1e-30


def test_moments_travel_in_the_state() -> None:
    first, second = RunningMoments((2,)), RunningMoments((2,))
    first.update(rows(5, 2))
    state = first.state_dict()
    second.load_state_dict(state)
    more = rows(3, 2, seed=1)
    first.update(more)  # what was saved does not move on
    assert state["count"].item() == 5
    second.update(more)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.variance, second.variance)
    assert_moments(second, torch.cat([rows(5, 2), more]))
