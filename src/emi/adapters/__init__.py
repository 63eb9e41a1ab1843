"""Intrinsic rewards in other trainers: one adapter per file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from emi.adapters.gymnasium import IntrinsicRewardVectorWrapper
from emi.adapters.schedule import Decay, linear_schedule

if TYPE_CHECKING:
    from emi.adapters.skrl import add_intrinsic_reward
    from emi.adapters.stable_baselines3 import (
        BonusCheckpointCallback,
        IntrinsicRewardCallback,
        spaces_of,
    )
    from emi.adapters.torchrl import (
        IntrinsicRewardModule,
        IntrinsicRewardTransform,
        torchrl_spaces,
    )

__all__ = [
    "BonusCheckpointCallback",
    "Decay",
    "IntrinsicRewardCallback",
    "IntrinsicRewardModule",
    "IntrinsicRewardTransform",
    "IntrinsicRewardVectorWrapper",
    "add_intrinsic_reward",
    "linear_schedule",
    "spaces_of",
    "torchrl_spaces",
]

# These trainers are extras; the other adapters work without them.
_OPTIONAL = {
    "BonusCheckpointCallback": "stable_baselines3",
    "IntrinsicRewardCallback": "stable_baselines3",
    "spaces_of": "stable_baselines3",
    "IntrinsicRewardModule": "torchrl",
    "IntrinsicRewardTransform": "torchrl",
    "torchrl_spaces": "torchrl",
    "add_intrinsic_reward": "skrl",
}


def __getattr__(name: str) -> Any:
    if name in _OPTIONAL:
        return getattr(import_module(f"emi.adapters.{_OPTIONAL[name]}"), name)
    raise AttributeError(f"module 'emi.adapters' has no attribute {name!r}")
