"""Scoring of single steps between two trainings, for methods with and without an episodic memory.

The transitions of these steps are kept in a list until the method is trained on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from emi.batch import Transitions, as_tensor, joined
from emi.intrinsic.contract import IntrinsicReward, Scorer, checked_reward


class StepScorer:
    """The `scorer` of a method, renewed when the method or what it remembers has changed."""

    def __init__(self, method: IntrinsicReward) -> None:
        self.method = method
        self._score: Scorer | None = None

    def __call__(self, batch: Transitions, unlearnt: list[Transitions]) -> Tensor:
        """Bonuses [n] of a step after those in `unlearnt`."""
        if self._score is None:
            self._score = self.method.scorer()
            if unlearnt and self.method.episodic:
                self._score(joined(unlearnt))
        return checked_reward(self.method, batch, self._score)

    def renew(self) -> None:
        """The method was trained or loaded."""
        self._score = None

    def end_early(self, envs: Iterable[int], unlearnt: list[Transitions]) -> None:
        """End the episodes of these environments, of which no step says so.

        They were reset in the middle of an episode, or the last step of it is not known.
        """
        self.method.forget([env for env in envs if not _end_last(env, unlearnt)])
        self.renew()


def _end_last(env: int, parts: list[Transitions]) -> bool:
    """Mark the last row of an environment as the end of its episode; False if there is none."""
    for k in reversed(range(len(parts))):
        part = parts[k]
        assert part.env_index is not None
        assert part.ended is not None
        rows = (as_tensor(part.env_index) == env).nonzero().flatten()
        if len(rows) > 0:
            ended = part.ended.clone() if isinstance(part.ended, Tensor) else part.ended.copy()
            ended[int(rows[-1])] = True
            parts[k] = replace(part, ended=ended)
            return True
    return False
