"""Adam without the preparations of `optimizer.step()`, which dominate for small parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def adam_step(optimizer: torch.optim.Adam) -> None:
    """Step by the gradients in `.grad`; result and state equal those of `optimizer.step()`.

    Parameters without a gradient are skipped.
    """
    (group,) = optimizer.param_groups
    params = [p for p in group["params"] if p.grad is not None]
    state = [optimizer.state[p] for p in params]
    if not all(state):  # the first step creates the state
        optimizer.step()
        return
    steps = [s["step"] for s in state]
    torch._foreach_add_(steps, 1)
    beta1, beta2 = group["betas"]
    torch._fused_adam_(
        params,
        [p.grad for p in params],
        [s["exp_avg"] for s in state],
        [s["exp_avg_sq"] for s in state],
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


@contextmanager
def adam_steps(optimizer: torch.optim.Adam) -> Iterator[Callable[[], object]]:
    """`adam_step` for many steps, prepared once: `.grad` must stay the same tensors.

    Parameters without a gradient are skipped. The optimizer's state is complete after the block.
    """
    (group,) = optimizer.param_groups
    params = [p for p in group["params"] if p.grad is not None]
    state = [optimizer.state[p] for p in params]
    if not all(state):  # the first step creates the state
        yield optimizer.step
        return
    steps = [s["step"] for s in state]
    counts = torch.stack(steps)  # one addition instead of one for each parameter
    beta1, beta2 = group["betas"]

    def step() -> None:
        counts.add_(1)
        torch._fused_adam_(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            [],
            views,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    grads, views = [p.grad for p in params], list(counts.unbind())
    exp_avgs, exp_avg_sqs = [s["exp_avg"] for s in state], [s["exp_avg_sq"] for s in state]
    try:
        yield step
    finally:
        torch._foreach_copy_(steps, views)
