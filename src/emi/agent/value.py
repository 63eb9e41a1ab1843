"""Value functions V(s), the baselines of the advantages.

Each predicts from observations and the time in the episode (`[n, ...]`, `[n]` → `[n]`). It is
fitted to discounted returns after the advantages of a batch are computed, so that an iteration uses
the baseline of the iteration before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from emi.batch import FloatArray, IntArray, Rows, as_tensor, in_pieces
from emi.errors import UserError
from emi.nets import Activation, linear, load_optimizer, trunk
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt
from emi.spaces import is_image
from emi.stored_state import EXTRA, expect_adam


@dataclass(frozen=True)
class ValueConfig:
    """Settings of the value function."""

    kind: Literal["linear", "network"] = "linear"
    """linear: least squares on features of the observation; network: an MLP, or convolutions"""
    hidden: tuple[PositiveInt, ...] = (32,)
    """hidden layers of the network for vector observations (paper, supplementary table 1)"""
    activation: Activation = "relu"
    """activation of these layers"""
    ridge: NotNegativeFloat = 1e-5
    """regularisation of the least squares (rllab's linear_feature_baseline)"""
    learning_rate: PositiveFloat = 1e-3
    """Adam step size of the network (authors' scripts)"""
    epochs: PositiveInt = 5
    """passes over the batch per fit (authors' trpo_emi_mujoco.py; 3 in trpo_emi_atari.py)"""
    minibatch: PositiveInt = 64
    """rows per gradient step (authors' trpo_emi_mujoco.py; 512 in trpo_emi_atari.py)"""


def features(obs: Tensor, clock: Tensor) -> Tensor:
    """[n, *observation], [n] to [n, 2D + 4]: clipped obs, its square, a cubic in time, and 1."""
    o = obs.reshape(len(obs), -1).to(torch.float64).clamp(-10, 10)
    # In float32: float64 would change the last digits of every committed run.
    t = clock[:, None] / 100.0
    return torch.cat([o, o**2, t, t**2, t**3, torch.ones_like(t)], dim=1)


class LinearFeatureValue(nn.Module):
    """Ridge regression on `features`; predicts 0 before the first fit.

    In PyTorch, because the threads of NumPy's BLAS compete with PyTorch's: a fit of 5,000 rows took
    110 ms instead of 1.5 ms.
    """

    def __init__(self, observation_space: gymnasium.Space, config: ValueConfig) -> None:
        super().__init__()
        if is_image(observation_space) or observation_space.shape is None:
            raise UserError("the linear value function needs vectors: use value.kind=network")
        self.ridge = config.ridge
        size = 2 * int(np.prod(observation_space.shape)) + 4
        self.register_buffer("coefficients", torch.zeros(size, dtype=torch.float64))
        self.coefficients: Tensor

    def predict(self, obs: Rows, clock: IntArray) -> FloatArray:
        x = features(as_tensor(obs), torch.as_tensor(clock))
        return (x @ self.coefficients).numpy()

    def fit(
        self, obs: Rows, clock: IntArray, target: FloatArray, rng: np.random.Generator
    ) -> dict[str, float]:
        x, y = features(as_tensor(obs), torch.as_tensor(clock)), torch.as_tensor(target)
        gram, moment = x.T @ x, x.T @ y
        identity = torch.eye(len(gram), dtype=torch.float64)
        ridge = self.ridge
        # As rllab does: with constant features, the system can be singular at the first ridge.
        for _ in range(5):
            system = gram + ridge * identity
            solution = torch.linalg.lstsq(system, moment[:, None], driver="gelsd").solution[:, 0]
            if solution.isfinite().all():
                self.coefficients.copy_(solution)
                break
            ridge *= 10
        return {"value/loss": (x @ self.coefficients - y).square().mean().item()}


class NetworkValue(nn.Module):
    """An MLP (vectors) or the paper's convolutions (images), fitted by Adam on squared errors.

    Adam's moments are kept over the whole run; an incomplete last minibatch is dropped.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        config: ValueConfig,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.config = config
        self.trunk, width = trunk(observation_space, config.hidden, config.activation, generator)
        self.head = linear(width, 1, generator)
        self.to(device)
        self.optimizer = torch.optim.Adam(
            self.parameters(), lr=config.learning_rate, fused=True, foreach=False
        )

    def forward(self, obs: Tensor) -> Tensor:
        return self.head(self.trunk(obs)).flatten()

    def predict(self, obs: Rows, clock: IntArray) -> FloatArray:
        return in_pieces(self, self.head.weight.device, obs).double().cpu().numpy()

    def fit(
        self, obs: Rows, clock: IntArray, target: FloatArray, rng: np.random.Generator
    ) -> dict[str, float]:
        size = min(self.config.minibatch, len(obs))
        device = self.head.weight.device
        goal = as_tensor(target.astype(np.float32), device)
        loss = torch.zeros(())
        for _ in range(self.config.epochs):
            order = rng.permutation(len(obs))
            for start in range(0, len(obs) - size + 1, size):
                rows = order[start : start + size]
                loss = (self(as_tensor(obs[rows], device)) - goal[rows]).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return {"value/loss": loss.item()}

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        expect_adam(state[EXTRA]["optimizer"], self.optimizer, f"{place}.optimizer")

    def set_extra_state(self, state: dict[str, Any]) -> None:
        load_optimizer(self.optimizer, state["optimizer"])


AnyValue = LinearFeatureValue | NetworkValue


def make_value(
    observation_space: gymnasium.Space,
    config: ValueConfig,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> AnyValue:
    if config.kind == "linear":
        return LinearFeatureValue(observation_space, config)
    return NetworkValue(observation_space, config, generator, device)


def explained_variance(predicted: FloatArray, target: FloatArray) -> float:
    """1 − Var(target − predicted) / Var(target); 0 if the target is constant."""
    variance = float(np.var(target))
    return 0.0 if variance == 0 else 1 - float(np.var(target - predicted)) / variance
