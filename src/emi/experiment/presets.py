"""The paper's hyper-parameters: one preset for each (environment, method)."""

from __future__ import annotations

import dataclasses

from emi.agent.value import ValueConfig
from emi.envs import GYM_PREFIX, unknown_name
from emi.experiment.config import ConfigError, TrainConfig
from emi.intrinsic import EMIConfig

# Supplementary table 1 of the paper; EMI-D from its section 2, KL weight and bandwidth from the
# authors' trpo_emi_mujoco.py.
_EMI_D_LOCOMOTION = EMIConfig(
    reward="diversity",
    lambda_info=0.05,
    lambda_error=1e4,
    kl_target="action",
    kl_weight=0.1,
    bandwidth=5.0,
)


def preset(env: str, method: str) -> TrainConfig:
    """The paper's values where it has them, sensible ones for any other environment."""
    if env == "SparseHalfCheetah":
        config = TrainConfig(env=env, method=method)
    elif env.startswith(GYM_PREFIX):
        config = TrainConfig(
            env=env, method=method, steps=1_000_000, value=ValueConfig(kind="network")
        )
    else:
        raise ConfigError(unknown_name(env))
    match method:
        case "emi":
            return dataclasses.replace(config, intrinsic=EMIConfig(), eta=1e-3)
        case "emi-d":
            return dataclasses.replace(config, intrinsic=_EMI_D_LOCOMOTION, eta=0.1)
        case _:
            return dataclasses.replace(config, intrinsic=None, eta=0.0)
