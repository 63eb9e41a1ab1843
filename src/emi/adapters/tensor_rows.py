"""Batches of tensors that stay on their device: what the adapters for tensor trainers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from emi.batch import Transitions
from emi.errors import NotFiniteError
from emi.intrinsic.contract import IntrinsicReward, score_and_learn

Column = Tensor | dict[str, Tensor]
"""A tensor [n, ...], or a dict of them for observations with several parts."""


def each(function: Any, *columns: Any) -> Any:
    """`function(*columns)`, or for dicts a dict of its results for each key."""
    if isinstance(columns[0], Mapping):
        return {key: each(function, *(column[key] for column in columns)) for key in columns[0]}
    return function(*columns)


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Concatenate batches of tensors; the rows of each environment stay in time order."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Transitions(*(each(lambda *rows: torch.cat(rows), *column) for column in columns))


def require_finite(bonus: Tensor) -> None:
    """Raise NotFiniteError if a bonus is NaN or infinite."""
    if not bool(bonus.isfinite().all()):
        raise NotFiniteError("the intrinsic reward became NaN or infinite")


def score(method: IntrinsicReward, batch: Transitions) -> Tensor:
    """Bonuses [n] of the method as it is now."""
    bonus = method.reward(batch).detach()
    require_finite(bonus)
    return bonus


def learn(method: IntrinsicReward, batch: Transitions) -> dict[str, float]:
    """Train the method; trainers collect without gradients, so these are turned on."""
    with torch.enable_grad():
        return method.learn(batch)


def score_then_learn(
    method: IntrinsicReward, batch: Transitions
) -> tuple[Tensor, dict[str, float]]:
    """`emi.score_and_learn` with gradients turned on and a check of the bonuses."""
    with torch.enable_grad():
        bonus, scalars = score_and_learn(method, batch)
    bonus = bonus.detach()
    require_finite(bonus)
    return bonus, scalars


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
            columns = (each(torch.clone, column) for column in vars(batch).values())
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
        self.parts = [] if columns is None else [Transitions(**each(torch.clone, columns))]
