"""EMI: reward transitions that a linear model of the dynamics does not explain.

States and actions are embedded so that (φ(s), ψ(a)) is informative of φ(s') and (φ(s), φ(s')) of
ψ(a): mutual information is maximised, without a decoder. In the embedding, the dynamics are linear
up to a sparse error, φ(s') ≈ φ(s) + ψ(a) + S(s, a). The prediction error is the bonus.

Kim, Kim, Jeong, Levine, Song: EMI: Exploration with Mutual Information, ICML 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Columns, Transitions, as_tensor, in_pieces, union
from emi.bfloat16 import Arithmetic, reader
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.gradients.emi import Networks, Weights, steps_by_hand
from emi.intrinsic.information import gaussian_kl, jsd_bound, jsd_loss
from emi.intrinsic.reading import Reading
from emi.nets import Activation, Pixels, linear, mlp, newest_entries, trunk
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class EMIConfig:
    """Settings of `emi.EMI`."""

    embedding_dim: PositiveInt = 2
    """d, the dimension of φ, ψ and S (paper, section 5.1)"""
    reward: Literal["prediction_error", "diversity"] = "prediction_error"
    """the bonus: r_e of equation 8 (EMI), or r_d of supplementary section 2 (EMI-D)"""
    lambda_error: NotNegativeFloat = 5.0
    """λ_error, weight of ‖S‖² (paper: 5 SparseHalfCheetah, 0.001 SwimmerGather, 100 images)"""
    lambda_info: NotNegativeFloat = 1.0
    """λ_info, weight of the information term (paper: 1 MuJoCo, 0.1 images)"""
    kl_target: Literal["none", "action", "state"] = "none"
    """which embeddings are regularised towards N(0, I) (paper, section 4.2: those of actions, on
    images only)"""
    kl_weight: NotNegativeFloat = 0.0
    """weight of this KL (authors' scripts: 0.5 images, 0.1 EMI-D on MuJoCo; not in the paper)"""
    bandwidth: PositiveFloat = 5.0
    """σ of the diversity kernel (authors' trpo_emi_mujoco.py; not in the paper)"""
    diversity_weight: NotNegativeFloat = 0.0
    """w in the bonus r_e + w · r_d; with η = 0.001, w = 100 adds 0.1 · r_d, the default of the
    authors' trpo_emi_mujoco.py (paper: 0)"""
    information_term: bool = True
    """use the information term; False is the ablation without it"""
    error_model: bool = True
    """use the error model; False is the ablation with S ≡ 0"""
    state_hidden: tuple[PositiveInt, ...] = (64, 32)
    """for vectors: hidden layers of φ, and of S before the action is appended (paper: as policy)"""
    state_activation: Activation = "tanh"
    """activation of these layers (paper: as the policy, hence tanh; the authors' code has ReLU)"""
    action_hidden: PositiveInt = 64
    """hidden units of ψ, ReLU (paper)"""
    information_hidden: tuple[PositiveInt, ...] = (64, 64)
    """hidden layers of T_S and T_A, ReLU (paper)"""
    error_hidden: PositiveInt = 256
    """units of the layer of S that reads features and action, concatenated; ReLU (paper)"""
    error_action_layer: bool = False
    """a learned linear layer on the action before it is concatenated (authors' code; not in the
    paper)"""
    learning_rate: PositiveFloat = 1e-3
    """Adam step size (paper, supplementary section 1)"""
    epochs: PositiveInt = 3
    """passes over each batch (paper, supplementary section 1)"""
    minibatch: PositiveInt = 512
    """minibatch size; an incomplete last minibatch is dropped (paper; authors' code)"""
    arithmetic: Arithmetic = "float32"
    """of the convolutions while they learn, on images (ours; see docs/deviations.md)"""


class Losses(NamedTuple):
    """The terms of equation 7 on one minibatch, unweighted, and the two information bounds."""

    linear: Tensor  # ‖φ' − φ − ψ − S‖², mean over the batch
    error: Tensor  # ‖S‖²
    info: Tensor  # L_info
    kl: Tensor  # KL(P_ψ ‖ N(0, I)), or the same with P_φ
    bound_state: Tensor  # lower bound on I(φ, ψ; φ'); at most log 4
    bound_action: Tensor  # lower bound on I(φ, φ'; ψ); at most log 4


# Of a product with few rows, the last bits of a row depend on how many there are.
SHARED_ROWS = 512
KERNEL_ROWS = 32  # rows of the n × n kernel computed at once: few enough for the cache


class ErrorModel(nn.Module):
    """S(s, a), the non-linear part of a transition: features of s ⊕ a → 256 → d."""

    def __init__(
        self, space: gymnasium.Space, action_size: int, config: EMIConfig, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.state, width = trunk(
            space, config.state_hidden, config.state_activation, rng, newest_frame=True
        )
        sizes = [width + action_size, config.error_hidden, config.embedding_dim]
        self.joint = mlp(sizes, "relu", rng)
        self.action = linear(action_size, action_size, rng) if config.error_action_layer else None

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.join(self.state(obs), action)

    def join(self, features: Tensor, action: Tensor) -> Tensor:
        """S from features of s, the output of `state`, and a."""
        if self.action is not None:
            action = self.action(action)
        return self.joint(torch.cat([features, action], dim=1))


def prediction_error(phi: Tensor, psi: Tensor, error: Tensor, phi_next: Tensor) -> Tensor:
    """r_e = ‖φ(s) + ψ(a) + S(s, a) − φ(s')‖², equation 8; [n, d] each, to [n]."""
    return (phi + psi + error - phi_next).square().sum(1)


def crowding(phi: Tensor, reference: Tensor, bandwidth: float) -> Tensor:
    """g(s) = 1/n Σᵢ exp(−‖φ(s) − φ(sᵢ)‖² / 2σ²); [m, d], [n, d] to [m]."""
    scale = 1 / (bandwidth * 2**0.5)
    a, b = phi * scale, reference * scale
    squares = b.square().sum(1)
    out = torch.empty(len(a), dtype=a.dtype, device=a.device)
    for start in range(0, len(a), KERNEL_ROWS):
        rows = a[start : start + KERNEL_ROWS]
        distance = torch.addmm(squares, rows, b.T, alpha=-2).add_(rows.square().sum(1, True))
        # Rounding can make the distance of a state to itself slightly negative.
        out[start : start + KERNEL_ROWS] = distance.clamp_(min=0).neg_().exp_().mean(1)
    return out


def diversity(phi: Tensor, phi_next: Tensor, bandwidth: float) -> Tensor:
    """r_d = g(s) − g(s'), supplementary equation 1: high if s' is less crowded than s; to [n]."""
    return crowding(phi, phi, bandwidth) - crowding(phi_next, phi, bandwidth)


class EMI(IntrinsicReward):
    """The embeddings φ and ψ, the error model S and the statistics networks T_S and T_A.

    Scalars of `learn`, means over its minibatches: `emi/loss_linear`, `emi/loss_error`,
    `emi/loss_info` (the terms of equation 7, unweighted), `emi/loss_kl`, `emi/bound_state` and
    `emi/bound_action` (lower bounds on the two mutual informations, at most log 4). On the last
    minibatch, after training: `emi/state_norm`, `emi/action_norm` and `emi/error_norm`, the mean
    norms of φ, ψ and S.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: EMIConfig = EMIConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        # Score by prediction error before training on a batch, by diversity after (authors' code).
        self.learns_first = config.reward == "diversity"
        rng, d = torch.Generator().manual_seed(seed), config.embedding_dim
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=normalize)
        space = self.reading.space
        self.entries, _ = newest_entries(space)
        features, width = trunk(
            space, config.state_hidden, config.state_activation, rng, newest_frame=True
        )
        self.phi = nn.Sequential(*features, linear(width, d, rng))
        self.psi = mlp([self.actions.size, config.action_hidden, d], "relu", rng)
        self.S = ErrorModel(space, self.actions.size, config, rng)
        self.T_S = mlp([3 * d, *config.information_hidden, 1], "relu", rng)
        self.T_A = mlp([3 * d, *config.information_hidden, 1], "relu", rng)
        self.descent = Descent(self.parameters(), config.learning_rate, rng)
        self.reader = reader(self.entries, config.arithmetic)

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.embed_read(self.reading.observations(obs))

    def embed_read(self, obs: Batched) -> Tensor:
        """φ of observations as `reading` returns them."""
        return in_pieces(self.phi, self.device, self.entries.newest(obs))

    def embed_action(self, action: Batched) -> Tensor:
        """ψ(a): [n, *action] to [n, d]."""
        return in_pieces(lambda a: self.psi(self.actions(a)), self.device, action)

    def error(self, obs: Columns, action: Batched) -> Tensor:
        """S(s, a): [n, *observation], [n, *action] to [n, d]; zeros without the error model."""
        return self._S(self.reading.observations(obs), action)

    def _S(self, obs: Batched, action: Batched) -> Tensor:
        """S of observations as `reading` returns them."""
        if not self.config.error_model:
            shape = len(action), self.config.embedding_dim
            return torch.zeros(shape, dtype=torch.float32, device=self.device)
        return in_pieces(
            lambda s, a: self.S(s, self.actions(a)),
            self.device,
            self.entries.newest(obs),
            action,
        )

    def _embed_states(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """φ(s) and φ(s') [n, d]: most states are both, and are embedded once."""
        if len(batch) >= SHARED_ROWS and (both := union(batch.obs, batch.next_obs)):
            phi = self.embed_read(both.rows)
            return phi[both.first], phi[both.second]
        return self.embed_read(batch.obs), self.embed_read(batch.next_obs)

    def reward(self, batch: Transitions) -> Tensor:
        config, batch = self.config, self.reading(batch)
        if config.reward == "diversity":
            return self._diversity(batch)
        error = self._prediction_error(batch)
        if config.diversity_weight == 0:
            return error
        return error + config.diversity_weight * self._diversity(batch)

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """With both terms: r_e before training on the batch, r_d after it (authors' code)."""
        config = self.config
        if config.reward == "diversity" or config.diversity_weight == 0:
            return super().score(batch)
        error = self._prediction_error(self.reading(batch))
        scalars = self.learn(batch)
        after = self._diversity(self.reading(batch))
        return error + config.diversity_weight * after, lambda: scalars

    def _prediction_error(self, batch: Transitions) -> Tensor:
        phi, phi_next = self._embed_states(batch)
        psi = self.embed_action(batch.action)
        return prediction_error(phi, psi, self._S(batch.obs, batch.action), phi_next)

    def _diversity(self, batch: Transitions) -> Tensor:
        return diversity(*self._embed_states(batch), self.config.bandwidth)

    @torch.enable_grad()
    def learn(self, batch: Transitions) -> dict[str, float]:
        batch = self.reading.learn(batch)
        m, epochs, history = min(len(batch), self.config.minibatch), self.config.epochs, []
        columns = self.entries.newest(batch.obs), batch.action, self.entries.newest(batch.next_obs)
        with self._steps(m) as step:
            for rows in self.descent.minibatches(len(batch), m, epochs):
                obs, action, next_obs = (as_tensor(c[rows], self.device) for c in columns)
                history.append(step(obs, self.actions(action), next_obs))
        linear, error, info, kl, bound_state, bound_action = torch.stack(history).mean(0).tolist()
        vectors = self.embed_read(obs), self.embed_action(action), self._S(obs, action)
        state_norm, action_norm, error_norm = (v.norm(dim=1).mean().item() for v in vectors)
        return {
            "emi/loss_linear": linear,
            "emi/loss_error": error,
            "emi/loss_info": info,
            "emi/loss_kl": kl,
            "emi/bound_state": bound_state,
            "emi/bound_action": bound_action,
            "emi/state_norm": state_norm,
            "emi/action_norm": action_norm,
            "emi/error_norm": error_norm,
        }

    def step(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Take one gradient step on a minibatch; return the entries of `Losses`, [6]."""
        losses = self.losses(obs, action, next_obs)
        self.descent.step(self.objective(losses))
        return torch.stack(losses).detach()

    def _steps(self, m: int) -> AbstractContextManager[Callable[[Tensor, Tensor, Tensor], Tensor]]:
        """`step` for many minibatches of m rows; on vectors without autograd, with its bits."""
        if isinstance(self.entries, Pixels) or self.S.action is not None:
            return nullcontext(self.step)
        config = self.config
        weights = Weights(
            config.lambda_error if config.error_model else None,
            config.lambda_info if config.information_term else None,
            config.kl_weight,
            config.kl_target,
        )
        nets = Networks(self.phi, self.psi, self.S.state, self.S.joint, self.T_S, self.T_A)
        return steps_by_hand(nets, weights, self.descent, m)

    def losses(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Losses:
        """The terms of the loss on one minibatch of m rows.

        `action` is the output of `ActionVectors`. The first half of the minibatch is the joint
        sample D; D_s and D_a take φ(s') and ψ(a) from the second half (supplementary section 3).
        """
        config, m = self.config, len(obs)
        # The first layer of φ and of S is the same: images are read once.
        _, read, features = self.reader
        states = read(torch.cat([obs, next_obs]))
        phi, phi_next = self.phi[-1](features(self.phi[1:-1], states)).split(m)
        psi = self.psi(action)
        zero = phi.new_zeros(())

        error = torch.zeros_like(phi)
        if config.error_model:
            error = self.S.join(features(self.S.state[1:], states[:m]), action)
        linear_loss = prediction_error(phi, psi, error, phi_next).mean()
        error_loss = error.square().sum(1).mean()

        bound_state = bound_action = info = zero
        half = m // 2
        if config.information_term and half > 0:
            s, a, n = phi[:half], psi[:half], phi_next[:half]
            other_a, other_n = psi[half : 2 * half], phi_next[half : 2 * half]
            d = torch.cat([s, a, n], 1)
            d_s, d_a = torch.cat([s, a, other_n], 1), torch.cat([s, other_a, n], 1)
            loss_state = jsd_loss(*self.T_S(torch.cat([d, d_s])).flatten().split(half))
            loss_action = jsd_loss(*self.T_A(torch.cat([d, d_a])).flatten().split(half))
            info = loss_state + loss_action
            bound_state, bound_action = jsd_bound(loss_state), jsd_bound(loss_action)

        match config.kl_target:
            case "action":
                kl = gaussian_kl(psi)
            case "state":
                kl = gaussian_kl(phi)
            case "none":
                kl = zero
        return Losses(linear_loss, error_loss, info, kl, bound_state, bound_action)

    def objective(self, losses: Losses) -> Tensor:
        """Equation 7 with its weights, and the KL regulariser of section 4.2."""
        config = self.config
        return (
            losses.linear
            + config.lambda_error * losses.error
            + config.lambda_info * losses.info
            + config.kl_weight * losses.kl
        )
