"""Intrinsic rewards in other trainers: one adapter per file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from emi.adapters.gymnasium import IntrinsicRewardVectorWrapper
from emi.adapters.schedule import Decay, linear_schedule

if TYPE_CHECKING:
    from emi.adapters.stable_baselines3 import IntrinsicRewardCallback

__all__ = ["Decay", "IntrinsicRewardCallback", "IntrinsicRewardVectorWrapper", "linear_schedule"]


def __getattr__(name: str) -> Any:
    # Stable-Baselines3 is an extra; the other adapters work without it.
    if name == "IntrinsicRewardCallback":
        return import_module("emi.adapters.stable_baselines3").IntrinsicRewardCallback
    raise AttributeError(f"module 'emi.adapters' has no attribute {name!r}")
