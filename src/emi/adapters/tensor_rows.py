"""Batches of tensors that stay on their device: what the adapters for tensor trainers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from emi.batch import Transitions, joined, map_columns, named_columns
from emi.intrinsic.contract import IntrinsicReward

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


def with_successors(
    method: IntrinsicReward, batch: Transitions, known: Tensor, envs: int
) -> Transitions:
    """The rows of a batch [time · env] whose successor is `known`, [time · env].

    A row that is left out can be the last of its episode. The row before it is then marked as the
    end or, if that is in an earlier batch, the method forgets the episode.
    """
    if not method.episodic:
        return batch[known]
    ended, kept = (torch.as_tensor(x).clone().view(-1, envs) for x in (batch.ended, known))
    over = torch.zeros_like(kept[0])
    for t in reversed(range(len(kept))):
        over = over | (ended[t] & ~kept[t])
        ended[t] |= over & kept[t]
        over = over & ~kept[t]
    method.forget(over.nonzero().flatten().tolist())
    return replace(batch, ended=ended.flatten())[known]


class Continuity:
    """Tells a method with an episodic memory which environments were reset between two batches."""

    def __init__(self) -> None:
        self._envs = 0
        self._after: Any = None  # [env, *observation], s' of the last step

    def check(self, method: IntrinsicReward, batch: Transitions, envs: int) -> None:
        """Forget the episodes that a batch [time · env] does not continue; call it before scoring.

        It continues an episode if its first s is the last s' of the batch before.
        """
        if not method.episodic:
            return
        same = torch.full((envs,), self._envs == envs)
        if self._envs == envs:
            pairs = zip(named_columns(self._after, ""), named_columns(batch.obs, ""), strict=True)
            for (_, after), (_, obs) in pairs:
                equal = torch.as_tensor(after == obs[:envs])
                same &= equal.reshape(envs, -1).all(1).cpu()
        method.forget((~same).nonzero().flatten().tolist())
        self._envs = envs
        self._after = map_columns(lambda column: column[-envs:].clone(), batch.next_obs)
