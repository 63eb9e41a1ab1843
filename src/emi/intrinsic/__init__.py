"""Intrinsic rewards: one method per file, one contract for all.

This room needs `emi.data` and `emi.nets` and nothing else of ours: a method can be used in any
trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from emi.data import Transitions
from emi.intrinsic.emi import EMI, EMIConfig

__all__ = ["EMI", "EMIConfig", "IntrinsicReward", "learn_and_reward", "reward_and_rest"]


class IntrinsicReward(Protocol):
    """Pays for transitions; implementations are `nn.Module`s.

    A method is built as `Method(observation_space, action_space, config=MethodConfig(), seed=0)`.
    """

    @property
    def learns_first(self) -> bool:
        """Is a batch scored by the model that has already been trained on it?"""
        ...

    def reward(self, batch: Transitions) -> Tensor:
        """[n] finite bonuses; pure: nothing is stored, nothing drawn."""
        ...

    def learn(self, batch: Transitions) -> dict[str, float]:
        """Absorb the batch; returns the method's documented scalars."""
        ...


def reward_and_rest(
    method: IntrinsicReward, batch: Transitions
) -> tuple[Tensor, Callable[[], dict[str, float]]]:
    """Score a batch in the order the method declares; [n] bonuses, and what is left to do.

    Calling the second absorbs the batch, unless that came first, and gives the method's scalars.
    Nothing else depends on it before the next batch, so it may run beside other work.
    """
    if method.learns_first:
        scalars = method.learn(batch)
        return method.reward(batch), lambda: scalars
    return method.reward(batch), lambda: method.learn(batch)


def learn_and_reward(
    method: IntrinsicReward, batch: Transitions
) -> tuple[Tensor, dict[str, float]]:
    """Score and absorb a batch in the order the method declares; [n] bonuses and its scalars."""
    bonus, learn = reward_and_rest(method, batch)
    return bonus, learn()
