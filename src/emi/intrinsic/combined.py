"""Several methods as one: the sum of their bonuses, each times its coefficient."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from emi.data import IntArray, Transitions
from emi.intrinsic.moments import RunningMoments
from emi.intrinsic.rnd import BonusScale

if TYPE_CHECKING:
    from emi.intrinsic import IntrinsicReward


class Combined(nn.Module):
    """Σ coefficient · bonus over named methods; itself a method, so that sums can be nested.

    With `scale`, each bonus is first divided by the running deviation of its discounted sums over
    time, one stream for each environment, as RND does with its own: then the coefficients say what
    share a method has, whatever the units of its bonus.

    Each part keeps its own order of scoring and learning. Where they differ, no order of `reward`
    and `learn` is right for all of them, and `learn_and_reward` or `reward_and_rest` must be used.

    Scalars of `learn`: those of the parts, where a name that is taken gets the part's in front
    (`second/emi/loss_info`); `combined/<part>_mean`, the mean of what the part adds to the sum;
    and with `scale` `combined/<part>_scale`, what its bonus was divided by.
    """

    def __init__(
        self,
        methods: Mapping[str, tuple[IntrinsicReward, float]],
        *,
        scale: bool = False,
        discount: float = 0.99,
    ) -> None:
        super().__init__()
        if not methods:
            raise ValueError("Combined needs at least one method")
        for name, (_, coefficient) in methods.items():
            if not (math.isfinite(coefficient) and coefficient >= 0):
                raise ValueError(
                    f"the coefficient of {name} must be finite and zero or more, got {coefficient}"
                )
        if not 0 < discount <= 1:
            raise ValueError(f"discount must be in (0, 1], got {discount}")
        self.parts = nn.ModuleDict({n: cast("nn.Module", part) for n, (part, _) in methods.items()})
        self.coefficients = {name: float(c) for name, (_, c) in methods.items()}
        sums = {name: RunningMoments() for name in methods} if scale else {}
        self.sums = nn.ModuleDict(sums)
        self._scales = {name: BonusScale(moments, discount) for name, moments in sums.items()}

    @property
    def learns_first(self) -> bool:
        """Do all parts?"""
        return all(part.learns_first for part in self._methods().values())

    def _methods(self) -> dict[str, IntrinsicReward]:
        return {name: cast("IntrinsicReward", part) for name, part in self.parts.items()}

    def _shares(self, bonus: Mapping[str, Tensor], env: IntArray | None) -> dict[str, Tensor]:
        """What each part adds to the sum, [n] each; `bonus` as the parts gave it."""
        if self._scales:
            bonus = {name: self._scales[name].divide(b, env) for name, b in bonus.items()}
        return {name: self.coefficients[name] * b for name, b in bonus.items()}

    def reward(self, batch: Transitions) -> Tensor:
        """The sum by the parts as they are now; with `scale`, this batch counts in the scales."""
        bonus = {name: part.reward(batch) for name, part in self._methods().items()}
        return reduce(add, self._shares(bonus, batch.env).values())

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Teach every part; the scales take in the bonuses of the batch as they are paid."""
        _, rest = self.reward_and_rest(batch)
        return rest()

    def reward_and_rest(self, batch: Transitions) -> tuple[Tensor, Callable[[], dict[str, float]]]:
        """`emi.intrinsic.reward_and_rest` of every part, each in its own order."""
        from emi.intrinsic import reward_and_rest  # here, because it imports this module

        scored = {name: reward_and_rest(part, batch) for name, part in self._methods().items()}
        bonus = {name: paid for name, (paid, _) in scored.items()}
        shares = self._shares(bonus, batch.env)

        def rest() -> dict[str, float]:
            scalars = {name: learn() for name, (_, learn) in scored.items()}
            own = {f"combined/{name}_mean": share.mean().item() for name, share in shares.items()}
            for name, scale in self._scales.items():
                scale.update(bonus[name], batch.env)
                own[f"combined/{name}_scale"] = scale.value
            return _told_apart(scalars, own)

        return reduce(add, shares.values()), rest

    def get_extra_state(self) -> dict[str, Any]:
        return {"last": {name: torch.from_numpy(s.last) for name, s in self._scales.items()}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, scale in self._scales.items():
            scale.last = state["last"][name].cpu().numpy().copy()


def _told_apart(scalars: Mapping[str, dict[str, float]], own: dict[str, float]) -> dict[str, float]:
    """All in one; a part's scalar whose name is taken twice gets the part's name in front."""
    taken = Counter(own) + Counter(key for part in scalars.values() for key in part)
    named = {
        key if taken[key] == 1 else f"{name}/{key}": value
        for name, part in scalars.items()
        for key, value in part.items()
    }
    return named | own
