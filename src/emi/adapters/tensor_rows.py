"""Batches of tensors that stay on their device: what the adapters for tensor trainers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from emi.batch import Transitions, joined, map_columns

Column = Tensor | dict[str, Tensor]
"""A tensor [n, ...], or a dict of them for observations with several parts."""


def summary(bonus: Tensor, reward_env: Tensor, eta: float) -> dict[str, float]:
    """The scalars that every adapter logs, from bonuses [n] and rewards [n] of the environment.

    `intrinsic/share` is Σ|η·bonus| / (Σ|η·bonus| + Σ|r|).
    """
    size = eta * bonus.abs().sum()
    numbers = torch.stack(
        [bonus.mean(), bonus.std(correction=0), size, reward_env.abs().sum().to(size)]
    )
    mean, std, size_int, size_env = numbers.tolist()  # one transfer, of four numbers
    return {
        "intrinsic/bonus_mean": mean,
        "intrinsic/bonus_std": std,
        "intrinsic/eta": eta,
        "intrinsic/share": size_int / (size_int + size_env) if size_int > 0 else 0.0,
    }


class Pending:
    """The transitions of the last steps, on which the method has not been trained yet."""

    def __init__(self) -> None:
        self.parts: list[Transitions] = []
        self.steps = 0  # of each environment, also those without a transition

    def add(self, batch: Transitions) -> None:
        """Add the transitions of one step; copies, because trainers reuse their tensors."""
        self.steps += 1
        if len(batch) > 0:
            columns = (map_columns(torch.clone, column) for column in vars(batch).values())
            self.parts.append(Transitions(*columns))

    def take(self) -> Transitions | None:
        """All transitions so far, which are forgotten; None if there are none."""
        parts, self.parts, self.steps = self.parts, [], 0
        return joined(parts) if parts else None

    def stored(self) -> dict[str, Any]:
        """Tensors and plain values, for a state dict."""
        columns = dict(vars(joined(self.parts))) if self.parts else None
        return {"steps": self.steps, "columns": columns}

    def restore(self, state: Mapping[str, Any]) -> None:
        columns = state["columns"]
        self.steps = state["steps"]
        self.parts = [] if columns is None else [Transitions(**map_columns(torch.clone, columns))]
