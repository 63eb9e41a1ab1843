"""Exploration with Mutual Information: intrinsic rewards for agents that get no reward."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from emi.envs import make_env  # also registers our worlds with Gymnasium

if TYPE_CHECKING:
    from emi.data import Transitions
    from emi.experiment.train import train
    from emi.intrinsic import (
        EMI,
        EX2,
        ICM,
        RND,
        VIME,
        Combined,
        EMIConfig,
        EX2Config,
        ICMConfig,
        IntrinsicReward,
        RNDConfig,
        SimHash,
        SimHashConfig,
        Standardised,
        VIMEConfig,
        learn_and_reward,
    )
    from emi.intrinsic.diagnosis import diagnose

__version__ = "0.1.0"
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
    "IntrinsicReward",
    "RNDConfig",
    "SimHash",
    "SimHashConfig",
    "Standardised",
    "Transitions",
    "VIMEConfig",
    "diagnose",
    "learn_and_reward",
    "make_env",
    "train",
]

_HOMES = {
    "Transitions": "emi.data",
    "diagnose": "emi.intrinsic.diagnosis",
    "train": "emi.experiment.train",
    **dict.fromkeys(
        [
            "EMI",
            "EX2",
            "ICM",
            "RND",
            "VIME",
            "Combined",
            "EMIConfig",
            "EX2Config",
            "ICMConfig",
            "IntrinsicReward",
            "RNDConfig",
            "SimHash",
            "SimHashConfig",
            "Standardised",
            "VIMEConfig",
            "learn_and_reward",
        ],
        "emi.intrinsic",
    ),
}


def __getattr__(name: str) -> Any:
    # PyTorch takes seconds to import; the command line's help should not wait for it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'emi' has no attribute {name!r}")
