"""Intrinsic rewards: one method per file, one contract for all.

This room needs `emi.data` and `emi.nets` and nothing else of ours: a method can be used in any
trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import gymnasium
from torch import Tensor, nn

from emi.data import Transitions
from emi.intrinsic.combined import Combined
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.ex2 import EX2, EX2Config
from emi.intrinsic.icm import ICM, ICMConfig
from emi.intrinsic.rnd import RND, RNDConfig
from emi.intrinsic.simhash import SimHash, SimHashConfig
from emi.intrinsic.standardised import Standardised
from emi.intrinsic.vime import VIME, VIMEConfig
from emi.nets import Flat, Pixels, is_image

__all__ = [
    "EMI",
    "EX2",
    "ICM",
    "RND",
    "VIME",
    "Combined",
    "EMIConfig",
    "EX2Config",
    "ICMConfig",
    "IntrinsicConfig",
    "IntrinsicReward",
    "Method",
    "RNDConfig",
    "SimHash",
    "SimHashConfig",
    "Standardised",
    "VIMEConfig",
    "learn_and_reward",
    "make_intrinsic",
    "misreads",
    "reward_and_rest",
]

Method = EMI | EX2 | ICM | RND | SimHash | VIME
IntrinsicConfig = EMIConfig | EX2Config | ICMConfig | RNDConfig | SimHashConfig | VIMEConfig


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
    if isinstance(method, Combined):  # whose parts may differ in their order
        return method.reward_and_rest(batch)
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


def misreads(method: IntrinsicReward, observation_space: gymnasium.Space) -> bool:
    """Would one of ours take the bytes of these images for the entries of a vector?"""
    if not (is_image(observation_space) and isinstance(method, nn.Module)):
        return False
    flat, pixels = (
        any(isinstance(part, kind) for part in method.modules()) for kind in (Flat, Pixels)
    )
    return flat and not pixels


def make_intrinsic(
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    config: IntrinsicConfig,
    seed: int = 0,
) -> Method:
    """The method that a config belongs to."""
    match config:
        case EMIConfig():
            return EMI(observation_space, action_space, config, seed)
        case EX2Config():
            return EX2(observation_space, action_space, config, seed)
        case ICMConfig():
            return ICM(observation_space, action_space, config, seed)
        case RNDConfig():
            return RND(observation_space, action_space, config, seed)
        case SimHashConfig():
            return SimHash(observation_space, action_space, config, seed)
        case VIMEConfig():
            return VIME(observation_space, action_space, config, seed)
