"""Descent: what it feeds, and that its short cut takes the optimizer's own steps."""

from __future__ import annotations

import torch
from torch import nn

from emi.intrinsic.descent import Descent


def descent() -> Descent:
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in (5, (2, 3))]
    return Descent(weights, 0.01, generator)


def give_gradients(made: Descent, k: int) -> list[torch.Tensor]:
    weights: list[torch.Tensor] = made.optimizer.param_groups[0]["params"]
    for w in weights:
        w.grad = torch.sin(torch.arange(w.numel()) + float(k)).view_as(w)
    return weights


def test_an_update_is_a_step_bit_for_bit_and_leaves_the_same_state() -> None:
    short, whole = descent(), descent()
    for k in range(4):
        ours, theirs = give_gradients(short, k), give_gradients(whole, k)
        short.update()
        whole.optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for ours, theirs in zip(
        short.optimizer.state_dict()["state"].values(),
        whole.optimizer.state_dict()["state"].values(),
        strict=True,
    ):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_prepared_updates_are_steps_and_skip_parameters_without_a_gradient() -> None:
    short, whole = descent(), descent()
    for k in range(3):  # the first block creates the state
        ours, theirs = give_gradients(short, k), give_gradients(whole, k)
        ours[1].grad = theirs[1].grad = None
        with short.updates() as update:
            for _ in range(3):
                update()
                whole.optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        found, expected = (d.optimizer.state_dict()["state"] for d in (short, whole))
        assert found.keys() == expected.keys() == {0}
        assert all(torch.equal(found[0][name], value) for name, value in expected[0].items())
        assert found[0]["step"] == 3 * (k + 1)


def test_a_step_follows_the_gradient_of_the_loss() -> None:
    made = descent()
    (first, _) = made.optimizer.param_groups[0]["params"]
    before = first.detach().clone()
    made.step(first.sum())
    torch.testing.assert_close(first.detach(), before - 0.01)  # Adam's first step is ± the rate
