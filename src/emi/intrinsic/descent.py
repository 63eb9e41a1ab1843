"""Gradient descent as a part of a method: Adam and a random generator, both in its state."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from emi.batch import IntArray
from emi.intrinsic.gradients.adam import adam_step, adam_steps
from emi.nets import load_optimizer
from emi.stored_state import EXTRA, expect_adam, expect_torch_generator


class Descent(nn.Module):
    """Adam over some parameters, and the generator that draws its minibatches.

    A module without parameters, so that the states of both are in the method's `state_dict`.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.generator = generator
        # One fused Adam call replaces thirty small ones.
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        """Compute the gradients of `loss` and step."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        loss.backward()
        self.update()

    def update(self) -> None:
        """Step by the gradients that are in `.grad`."""
        adam_step(self.optimizer)

    def updates(self) -> AbstractContextManager[Callable[[], object]]:
        """`update`, prepared for many steps whose gradients are in the same tensors."""
        return adam_steps(self.optimizer)

    def minibatches(self, n: int, size: int, epochs: int) -> Iterator[IntArray]:
        """The rows of each minibatch: `epochs` permutations of n, in parts of `size`.

        An incomplete last part is dropped. A batch smaller than `size` is one minibatch.
        """
        size = min(size, n)
        for _ in range(epochs):
            order = torch.randperm(n, generator=self.generator).numpy()
            yield from (order[i : i + size] for i in range(0, n - size + 1, size))

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        expect_adam(state[EXTRA]["optimizer"], self.optimizer, f"{place}.optimizer")
        expect_torch_generator(state[EXTRA]["generator"], f"{place}.generator")

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_stored({EXTRA: state}, "descent")
        load_optimizer(self.optimizer, state["optimizer"])
        self.generator.set_state(state["generator"])
