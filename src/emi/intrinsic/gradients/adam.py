"""One step of Adam without the preparations of `optimizer.step()`."""

from __future__ import annotations

import torch


def adam_step(optimizer: torch.optim.Adam) -> None:
    """Step by the gradients in `.grad`; bit for bit equal to `optimizer.step()`, also in its state.

    For a few small parameters the preparations take several times as long as the step itself.
    """
    (group,) = optimizer.param_groups
    state = [optimizer.state[p] for p in group["params"]]
    if not all(state):  # the first step creates the state
        optimizer.step()
        return
    steps = [s["step"] for s in state]
    torch._foreach_add_(steps, 1)
    beta1, beta2 = group["betas"]
    torch._fused_adam_(
        group["params"],
        [p.grad for p in group["params"]],
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
