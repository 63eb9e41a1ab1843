"""Gradient descent as a part of a method: Adam, the generator, and their place in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from emi.batch import IntArray
from emi.intrinsic.gradients.adam import adam_step
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
        """Step by the gradients that are in place."""
        adam_step(self.optimizer)

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
