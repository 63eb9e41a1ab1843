"""A method that reads one entry of `Dict` or `Tuple` observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any

from torch import Tensor

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer


class SelectObservation(IntrinsicReward):
    """`method` on one entry of the observations.

    As in `SelectObservation(emi.EMI(space["image"], actions), "image")`.
    Without it, the entries of a `Dict` or `Tuple` are flattened to one vector. Several keys name an
    entry of an entry; those of a `Tuple` are 0, 1, ….

    Scalars of `learn`: those of the method.
    """

    def __init__(self, method: IntrinsicReward, *keys: str | int) -> None:
        super().__init__()
        if not keys:
            raise UserError("SelectObservation needs the key of an entry")
        self.method, self.keys = method, keys

    @property
    def learns_first(self) -> bool:  # type: ignore[override]
        return self.method.learns_first

    @property
    def episodic(self) -> bool:  # type: ignore[override]
        return self.method.episodic

    def _selected(self, batch: Transitions) -> Transitions:
        def entry(columns: Any) -> Any:
            try:
                return reduce(getitem, self.keys, columns)
            except (KeyError, IndexError, TypeError):
                name = "".join(f"[{key!r}]" for key in self.keys)
                raise UserError(f"the observations have no entry {name}") from None

        return replace(batch, obs=entry(batch.obs), next_obs=entry(batch.next_obs))

    def reward(self, batch: Transitions) -> Tensor:
        return self.method.reward(self._selected(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.method.learn(self._selected(batch))

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """The method's `score` on the entry."""
        return self.method.score(self._selected(batch))

    def scorer(self) -> Scorer:
        score = self.method.scorer()
        return lambda batch: score(self._selected(batch))

    def forget(self, envs: Sequence[int]) -> None:
        self.method.forget(envs)
