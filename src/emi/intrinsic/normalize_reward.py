"""A method whose bonus is divided by its own running scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.bonus_scale import BonusScale
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.moments import RunningMoments
from emi.stored_state import EXTRA


class NormalizeReward(IntrinsicReward):
    """`method`, with its bonus divided by the running standard deviation of its discounted sums.

    Each environment has its own sum over time, as in RND. The coefficient η then does not depend on
    the units of the bonus.

    Scalars of `learn`: those of the method, and `normalize/scale`, the divisor.
    """

    def __init__(self, method: IntrinsicReward, discount: float = 0.99) -> None:
        super().__init__()
        if not 0 < discount <= 1:
            raise UserError(f"discount must be in (0, 1], got {discount}")
        self.method = method
        self.sums = RunningMoments()
        self._scale = BonusScale(self.sums, discount)

    @property
    def learns_first(self) -> bool:  # type: ignore[override]
        return self.method.learns_first

    @property
    def wants_sampled_actions(self) -> bool:  # type: ignore[override]
        return self.method.wants_sampled_actions

    @property
    def episodic(self) -> bool:  # type: ignore[override]
        return self.method.episodic

    def reward(self, batch: Transitions) -> Tensor:
        """The method's bonus [n] divided by the scale, which includes this batch."""
        return self._scale.divide(self.method.reward(batch), batch.env_index)

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Train the method, and update the scale by the bonuses of the batch."""
        _, finish = self.score(batch)
        return finish()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """The method's `score`, with the bonus divided by the scale."""
        bonus, finish_method = self.method.score(batch)

        def finish() -> dict[str, float]:
            scalars = finish_method()
            self._scale.update(bonus, batch.env_index)
            return scalars | {"normalize/scale": self._scale.value}

        return self._scale.divide(bonus, batch.env_index), finish

    def scorer(self) -> Scorer:
        score = self.method.scorer()
        return lambda batch: self._scale.divide(score(batch), batch.env_index)

    def forget(self, envs: Sequence[int]) -> None:
        self.method.forget(envs)

    def get_extra_state(self) -> dict[str, Any]:
        return self._scale.stored()

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        self._scale.check_stored(state[EXTRA], place)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._scale.restore(state)
