"""Adam without the preparations of `optimizer.step()`, which dominate for small parameters."""

import torch


def adam_step(optimizer: torch.optim.Adam) -> None:
    """Step by the gradients in `.grad`; result and state equal those of `optimizer.step()`."""
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
