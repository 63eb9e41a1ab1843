"""Value functions V(s), the baselines of the advantages.

Each predicts from observations and the time in the episode (`[n, ...]`, `[n]` → `[n]`). It is
fitted to discounted returns after the advantages of a batch are computed, so that an iteration uses
the baseline of the iteration before.

`predict_after` values the states after the last step of a batch, where an episode was cut or timed
out. These values are part of the returns that the next fit is made to. No return of the batch
starts at such a state, so that nothing but the fit's extrapolation determines them.
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
from emi.bfloat16 import Arithmetic, reader
from emi.errors import UserError
from emi.images import is_image
from emi.nets import Activation, linear, load_optimizer, trunk
from emi.settings import (
    FractionOrZero,
    NotNegativeFloat,
    NotNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from emi.stored_state import EXTRA, expect, expect_adam, expect_keys


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
    memory: FractionOrZero = 0.0
    """ρ, weight of the earlier batches in the least squares, per iteration; 0: the newest batch
    only, as in the paper (ours; see docs/keeping.md)"""
    memory_episodes: NotNegativeInt = 0
    """N: each rewarded episode of a batch takes a share 1/N of the weight of the earlier ones;
    0: rewards do not matter (ours)"""
    learning_rate: PositiveFloat = 1e-3
    """Adam step size of the network (authors' scripts)"""
    epochs: PositiveInt = 5
    """passes over the batch per fit (authors' trpo_emi_mujoco.py; 3 in trpo_emi_atari.py)"""
    minibatch: PositiveInt = 64
    """rows per gradient step (authors' trpo_emi_mujoco.py; 512 in trpo_emi_atari.py)"""
    arithmetic: Arithmetic = "float32"
    """of the convolutions while they are fitted, on images (ours; see docs/deviations.md)"""


def features(obs: Tensor, clock: Tensor) -> Tensor:
    """[n, *observation], [n] to [n, 2D + 4]: clipped obs, its square, a cubic in time, and 1."""
    o = obs.reshape(len(obs), -1).to(torch.float64).clamp(-10, 10)
    # In float32: float64 would change the last digits of every committed run.
    t = clock[:, None] / 100.0
    return torch.cat([o, o**2, t, t**2, t**3, torch.ones_like(t)], dim=1)


def past_weight(memory: float, episodes: int, rewarded: int) -> float:
    """ρ · max(0, 1 − n/N), the weight of earlier batches when n episodes were rewarded; N = 0: ρ.

    The memory then holds about N rewarded episodes: it is long while rewards are rare, and follows
    the policy closely when most episodes are rewarded.
    """
    return memory * (max(0.0, 1 - rewarded / episodes) if episodes > 0 else 1.0)


class LinearFeatureValue(nn.Module):
    """Ridge regression on `features`; predicts 0 before the first fit.

    With a `memory`, the sums XᵀX and Xᵀy of earlier batches are kept with a decaying weight w, see
    `past_weight`: G ← w G + XᵀX, m ← w m + Xᵀy.

    `predict_after` uses a second fit, without the features of time. With them, the value of a state
    after the last step T would be the continuation of the returns γ^(T−t) V(s_T) to t = T, which is
    V(s_T) again: a fit to itself, without a discount, that drifts and then diverges. Its values are
    also clipped to the range of the returns of the last fit. The returns are then bounded by
    max |r| / (1 − γ), however badly the fit extrapolates:
    |R_t| ≤ max |r| (1 − γⁿ) / (1 − γ) + γⁿ |V(s_T)|.

    In PyTorch, because the threads of NumPy's BLAS compete with PyTorch's: a fit of 5,000 rows took
    110 ms instead of 1.5 ms.
    """

    coefficients: Tensor
    after: Tensor | None  # coefficients without the features of time
    after_range: Tensor | None  # [2], the lowest and the highest return of the last fit
    gram: Tensor | None  # XᵀX of all batches so far, with their weights; None without a memory
    moment: Tensor | None  # Xᵀy

    def __init__(self, observation_space: gymnasium.Space, config: ValueConfig) -> None:
        super().__init__()
        if is_image(observation_space) or observation_space.shape is None:
            raise UserError("the linear value function needs vectors: use value.kind=network")
        self.ridge = config.ridge
        size = 2 * int(np.prod(observation_space.shape)) + 4
        self.register_buffer("coefficients", torch.zeros(size, dtype=torch.float64))
        # None, and absent from checkpoints, until an episode is cut.
        self.register_buffer("after", None)
        self.register_buffer("after_range", None)
        self.memory, self.memory_episodes = config.memory, config.memory_episodes
        kept = config.memory > 0
        square = torch.zeros(size, size, dtype=torch.float64) if kept else None
        self.register_buffer("gram", square)
        self.register_buffer("moment", torch.zeros(size, dtype=torch.float64) if kept else None)

    def predict(self, obs: Rows, clock: IntArray) -> FloatArray:
        x = features(as_tensor(obs), torch.as_tensor(clock))
        return (x @ self.coefficients).numpy()

    def predict_after(self, obs: Rows) -> FloatArray:
        if self.after is None or self.after_range is None:
            return np.zeros(len(obs))
        x = _without_time(features(as_tensor(obs), torch.zeros(len(obs), dtype=torch.int64)))
        return (x @ self.after).clamp(*self.after_range).numpy()

    def fit(
        self,
        obs: Rows,
        clock: IntArray,
        target: FloatArray,
        rng: np.random.Generator,
        *,
        cut: bool = False,
        rewarded: int = 0,
    ) -> dict[str, float]:
        """Fit to returns; `rewarded` is the number of rewarded episodes, for the memory."""
        x, y = features(as_tensor(obs), torch.as_tensor(clock)), torch.as_tensor(target)
        gram, moment = x.T @ x, x.T @ y
        if self.gram is not None and self.moment is not None:
            weight = past_weight(self.memory, self.memory_episodes, rewarded)
            gram = self.gram.mul_(weight).add_(gram)
            moment = self.moment.mul_(weight).add_(moment)
        solution = _ridge_regression(gram, moment, self.ridge)
        if solution is not None:
            self.coefficients.copy_(solution)
        if cut:
            known = _without_time(torch.arange(len(gram))[None])[0]
            solution = _ridge_regression(gram[known][:, known], moment[known], self.ridge)
            if solution is not None:
                self.after, self.after_range = solution, torch.stack([y.min(), y.max()])
        return {"value/loss": (x @ self.coefficients - y).square().mean().item()}

    def absent_state(self) -> dict[str, Tensor]:
        """The buffers that are None until an episode is cut, as they are then."""
        zeros = self.coefficients.new_zeros
        return {"after": zeros(len(self.coefficients) - 3), "after_range": zeros(2)}

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        if "after" in state or "after_range" in state:
            memory = () if self.gram is None else ("gram", "moment")
            expect_keys(state, ("coefficients", *memory, *self.absent_state()), place)
            low, high = state["after_range"].tolist()
            expect(low <= high, low, f"{place}.after_range", f"a range below {high}")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # PyTorch would not load a buffer that is None.
        for name, zeros in self.absent_state().items():
            setattr(self, name, zeros if f"{prefix}after" in state_dict else None)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _without_time(features: Tensor) -> Tensor:
    """[n, 2D + 4] features to [n, 2D + 1]."""
    return torch.cat([features[:, :-4], features[:, -1:]], dim=1)


def _ridge_regression(gram: Tensor, moment: Tensor, ridge: float) -> Tensor | None:
    """Solve (XᵀX + ridge·I) w = Xᵀy for w; None if no solution is finite."""
    identity = torch.eye(len(gram), dtype=torch.float64)
    # As rllab does: with constant features, the system can be singular at the first ridge.
    for _ in range(5):
        system = gram + ridge * identity
        solution = torch.linalg.lstsq(system, moment[:, None], driver="gelsd").solution[:, 0]
        if solution.isfinite().all():
            return solution
        ridge *= 10
    return None


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
        self._reader = reader(self.trunk[0], config.arithmetic)
        self.to(device)
        self.optimizer = torch.optim.Adam(
            self.parameters(), lr=config.learning_rate, fused=True, foreach=False
        )

    def forward(self, obs: Tensor) -> Tensor:
        return self.head(self.trunk(obs)).flatten()

    def _while_fitted(self, obs: Tensor) -> Tensor:
        """`forward` with the arithmetic of the config."""
        return self.head(self._reader.features(self.trunk[1:], self._reader.read(obs))).flatten()

    def predict(self, obs: Rows, clock: IntArray) -> FloatArray:
        return self.predict_after(obs)

    def predict_after(self, obs: Rows) -> FloatArray:
        return in_pieces(self, self.head.weight.device, obs).double().cpu().numpy()

    def fit(
        self,
        obs: Rows,
        clock: IntArray,
        target: FloatArray,
        rng: np.random.Generator,
        *,
        cut: bool = False,
        rewarded: int = 0,
    ) -> dict[str, float]:
        size = min(self.config.minibatch, len(obs))
        device = self.head.weight.device
        goal = as_tensor(target.astype(np.float32), device)
        loss = torch.zeros(())
        for _ in range(self.config.epochs):
            order = rng.permutation(len(obs))
            for start in range(0, len(obs) - size + 1, size):
                rows = order[start : start + size]
                predicted = self._while_fitted(as_tensor(obs[rows], device))
                loss = (predicted - goal[rows]).square().mean()
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
