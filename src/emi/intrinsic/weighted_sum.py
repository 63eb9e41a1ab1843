"""Several methods as one: the weighted sum of their bonuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import cast

from torch import Tensor, nn

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer


class WeightedSum(IntrinsicReward):
    """Σ η · bonus over named methods; itself a method, so that sums can be nested.

    Wrap parts in `emi.NormalizeReward` to give their bonuses the same scale: η is then the weight
    of a method, independent of the units of its bonus.

    Trainers call `score` or `emi.score_and_learn`, which follow the `learns_first` of each part. If
    the parts differ in it, the `learns_first` of the sum raises a UserError: no common order of
    `reward` and `learn` is right.

    Scalars of `learn`: those of the parts, with the part's name as a prefix where several parts
    have the same (`second/emi/loss_info`); and `sum/<part>_mean`, the mean of η · bonus of a part.
    """

    def __init__(self, methods: Mapping[str, tuple[IntrinsicReward, float]]) -> None:
        super().__init__()
        if not methods:
            raise UserError("WeightedSum needs at least one method")
        for name, (_, eta) in methods.items():
            if not (math.isfinite(eta) and eta >= 0):
                raise UserError(f"eta of {name} must be finite and zero or more, got {eta}")
        self.parts = nn.ModuleDict({name: part for name, (part, _) in methods.items()})
        self.etas = {name: float(eta) for name, (_, eta) in methods.items()}

    @property
    def learns_first(self) -> bool:  # type: ignore[override]
        """The common `learns_first` of all parts; UserError if they differ."""
        orders = {part.learns_first for part in self._methods().values()}
        if len(orders) > 1:
            raise UserError(
                "some parts of this WeightedSum learn before scoring and others after: call score "
                "or emi.score_and_learn, and apply NormalizeObservation to each part instead of "
                "the sum"
            )
        return orders.pop()

    @property
    def episodic(self) -> bool:  # type: ignore[override]
        return any(part.episodic for part in self._methods().values())

    def _methods(self) -> dict[str, IntrinsicReward]:
        return {name: cast(IntrinsicReward, part) for name, part in self.parts.items()}

    def reward(self, batch: Transitions) -> Tensor:
        parts = self._methods().items()
        return reduce(add, (self.etas[name] * part.reward(batch) for name, part in parts))

    def learn(self, batch: Transitions) -> dict[str, float]:
        _, finish = self.score(batch)
        return finish()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Score every part in the order given by its own `learns_first`."""
        scored = {name: part.score(batch) for name, part in self._methods().items()}
        shares = {name: self.etas[name] * bonus for name, (bonus, _) in scored.items()}

        def finish() -> dict[str, float]:
            scalars = {name: finish_part() for name, (_, finish_part) in scored.items()}
            own = {f"sum/{name}_mean": share.mean().item() for name, share in shares.items()}
            return _with_distinct_names(scalars, own)

        return reduce(add, shares.values()), finish

    def scorer(self) -> Scorer:
        scorers = {name: part.scorer() for name, part in self._methods().items()}

        def score(batch: Transitions) -> Tensor:
            return reduce(add, (self.etas[name] * each(batch) for name, each in scorers.items()))

        return score

    def forget(self, envs: Sequence[int]) -> None:
        for part in self._methods().values():
            part.forget(envs)


def _with_distinct_names(
    scalars: Mapping[str, dict[str, float]], own: dict[str, float]
) -> dict[str, float]:
    """All scalars in one dict; a name that several parts use is prefixed by the part's name."""
    uses = Counter(own) + Counter(key for part in scalars.values() for key in part)
    named = {
        key if uses[key] == 1 else f"{name}/{key}": value
        for name, part in scalars.items()
        for key, value in part.items()
    }
    return named | own
