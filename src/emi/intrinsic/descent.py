"""Gradient descent as a part of a method: Adam, the generator, and their place in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from emi.batch import IntArray
from emi.nets import load_optimizer


class Descent(nn.Module):
    """Adam over some parameters, and the generator that decides what it is fed.

    A module without weights of its own, so that both travel in the method's `state_dict`.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.generator = generator
        # The fused kernel does in one call what a step over thirty small tensors costs thirty for.
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def update(self) -> None:
        """One step by the gradients that are there: `optimizer.step()` without its preparations.

        These take several times as long as the step itself if the parameters are few and small.
        """
        (group,) = self.optimizer.param_groups
        state = [self.optimizer.state[p] for p in group["params"]]
        if not all(state):  # the first step makes them
            self.optimizer.step()
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

    def minibatches(self, n: int, size: int, epochs: int) -> Iterator[IntArray]:
        """Rows of each minibatch: `epochs` shuffles of n, an incomplete last part left out.

        A batch smaller than a minibatch is one.
        """
        size = min(size, n)
        for _ in range(epochs):
            order = torch.randperm(n, generator=self.generator).numpy()
            yield from (order[i : i + size] for i in range(0, n - size + 1, size))

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        load_optimizer(self.optimizer, state["optimizer"])
        self.generator.set_state(state["generator"])
