"""Adam without the preparations of `optimizer.step()`, which dominate for small parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def adam_step(optimizer: torch.optim.Adam) -> None:
    """Step by the gradients in `.grad`; result and state equal those of `optimizer.step()`.

    Parameters without a gradient are skipped.
    """
    group, params, state = _with_gradients(optimizer)
    if not all(state):  # the first step creates the state
        optimizer.step()
        return
    steps = [s["step"] for s in state]
    torch._foreach_add_(steps, 1)
    averages, squares = _moments(state)
    _fused_step(group, params, [p.grad for p in params], averages, squares, steps)


@contextmanager
def adam_steps(optimizer: torch.optim.Adam) -> Iterator[Callable[[], object]]:
    """`adam_step` for many steps, prepared once: `.grad` must stay the same tensors.

    The optimizer's state is complete after the block.
    """
    group, params, state = _with_gradients(optimizer)
    if not all(state):
        yield optimizer.step
        return
    steps = [s["step"] for s in state]
    counts = torch.stack(steps)  # one addition instead of one for each parameter
    grads, views = [p.grad for p in params], list(counts.unbind())
    averages, squares = _moments(state)

    def step() -> None:
        counts.add_(1)
        _fused_step(group, params, grads, averages, squares, views)

    try:
        yield step
    finally:
        torch._foreach_copy_(steps, views)


def _with_gradients(
    optimizer: torch.optim.Adam,
) -> tuple[dict[str, Any], list[Tensor], list[dict[str, Tensor]]]:
    """The settings, the parameters that have a gradient, and their state."""
    (group,) = optimizer.param_groups
    params = [p for p in group["params"] if p.grad is not None]
    return group, params, [optimizer.state[p] for p in params]


def _moments(state: list[dict[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    return [s["exp_avg"] for s in state], [s["exp_avg_sq"] for s in state]


def _fused_step(
    group: dict[str, Any],
    params: list[Tensor],
    grads: list[Any],
    averages: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
) -> None:
    beta1, beta2 = group["betas"]
    torch._fused_adam_(
        params,
        grads,
        averages,
        squares,
        [],
        steps,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )
