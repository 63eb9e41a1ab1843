"""Disagreement: reward transitions on which an ensemble of forward models disagrees.

Several models predict the features of the next state. Where they were trained on many similar
transitions, they agree. This holds for noise too: all models predict its mean, so that an outcome
that cannot be predicted gives no lasting bonus.

Pathak, Gandhi, Gupta: Self-Supervised Exploration via Disagreement, ICML 2019. "Authors" is their
code, pathak22/exploration-by-disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from emi.batch import Batched, Transitions, as_tensor, in_pieces, of_both
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.bonus_scale import BonusScale
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.moments import RunningMoments
from emi.intrinsic.reading import Reading
from emi.intrinsic.rnd import BLOCK_ROWS, CLIP, encoder
from emi.nets import linear, newest_entries
from emi.settings import Fraction, NotNegativeInt, PositiveFloat, PositiveInt
from emi.stored_state import EXTRA

SLOPE = 0.2  # of the leaky ReLU: TensorFlow's


@dataclass(frozen=True)
class DisagreementConfig:
    """Settings of `emi.Disagreement`."""

    models: PositiveInt = 5
    """number of forward models (paper; authors' run.py)"""
    features: PositiveInt = 512
    """outputs of the fixed random network φ (authors' run.py)"""
    hidden: tuple[PositiveInt, ...] = (128, 128)
    """hidden layers of φ instead of convolutions, for vectors (ours: as RND's)"""
    units: PositiveInt = 512
    """units of each layer of a forward model (authors' run.py)"""
    blocks: NotNegativeInt = 4
    """residual blocks of a forward model, two layers each (authors' dynamics.py)"""
    keep: Fraction = 0.8
    """probability that a transition of a minibatch trains a model (authors' dynamics.py)"""
    discount: Fraction = 0.99
    """discount of the running sum of bonuses; the bonus is divided by the standard deviation of
    this sum (authors' run.py)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (authors' run.py)"""
    epochs: PositiveInt = 3
    """passes over each batch (authors' run.py)"""
    minibatches: PositiveInt = 8
    """minibatches per pass, one gradient step each (authors' run.py)"""


# Ours: on a small task, the authors' networks, which are for images, take most of the time.
FOR_VECTORS = DisagreementConfig(features=32, units=64, blocks=1)


def disagreement(predicted: Tensor) -> Tensor:
    """Variance over the models, mean over the features; [models, n, d] to [n]."""
    # Not `var`, which takes ten times as long over the first axis.
    return (predicted - predicted.mean(0)).square().mean((0, 2))


def model_errors(predicted: Tensor, phi_next: Tensor) -> Tensor:
    """‖f_k(φ(s), a) − φ(s')‖² / d; [models, n, d] and [n, d] to [models, n]."""
    return (predicted - phi_next).square().mean(2)


class Layers(nn.Module):
    """A linear layer of each model, computed at once: [models, n, inputs] to [models, n, outputs].

    The action [n, a] is appended to the input of every layer.
    """

    def __init__(self, models: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        drawn = [linear(inputs, outputs, generator).weight.detach().T for _ in range(models)]
        self.weight = nn.Parameter(torch.stack(drawn))
        self.bias = nn.Parameter(torch.zeros(models, 1, outputs, dtype=torch.float32))

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        action = action.expand(len(self.weight), *action.shape)
        return torch.baddbmm(self.bias, torch.cat([x, action], 2), self.weight)


class ForwardModels(nn.Module):
    """The forward models f_k: (φ(s), a) to predictions of φ(s')."""

    def __init__(self, config: DisagreementConfig, actions: int, rng: torch.Generator) -> None:
        super().__init__()
        k, d, units = config.models, config.features, config.units
        self.first = Layers(k, d + actions, units, rng)
        self.blocks = nn.ModuleList(
            Layers(k, units + actions, units, rng) for _ in range(2 * config.blocks)
        )
        self.last = Layers(k, units + actions, d, rng)

    def forward(self, phi: Tensor, action: Tensor) -> Tensor:
        """[n, d] and [n, a] to [models, n, d]."""
        x = leaky_relu(self.first(phi.expand(len(self.first.weight), *phi.shape), action), SLOPE)
        for inner, outer in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = x + outer(leaky_relu(inner(x, action), SLOPE), action)
        return self.last(x, action)


class Disagreement(IntrinsicReward):
    """Fixed random features φ and an ensemble of forward models on them.

    Scalars of `learn`: `disagreement/loss` (error of a model before each gradient step, mean over
    the models and steps), `disagreement/variance` (mean bonus of the batch before its division) and
    `disagreement/bonus_scale` (the divisor).
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: DisagreementConfig = DisagreementConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=normalize)
        entries, shape = newest_entries(self.reading.space)
        layers, width = encoder(entries, shape, config.hidden, rng)
        top = linear(width, config.features, rng, init="orthogonal")
        self.phi = nn.Sequential(entries, *layers, top).requires_grad_(False)
        self.models = ForwardModels(config, self.actions.size, rng)
        self.sums = RunningMoments()
        self._scale = BonusScale(self.sums, config.discount)
        self.descent = Descent(self.models.parameters(), config.learning_rate, rng)

    def _phi(self, obs: Batched) -> Tensor:
        def of(part: Tensor) -> Tensor:
            if self.reading.normalizes:  # an entry that rarely changes would decide the variance
                part = part.clamp(-CLIP, CLIP)
            return torch.cat([self.phi(block) for block in part.split(BLOCK_ROWS)])

        return in_pieces(of, self.device, obs)

    def _variance(self, batch: Transitions) -> Tensor:
        """The bonus before its division, [n], of a batch as `reading` returns it."""

        def of(phi: Tensor, action: Tensor) -> Tensor:
            blocks = zip(phi.split(BLOCK_ROWS), self.actions(action).split(BLOCK_ROWS), strict=True)
            return torch.cat([disagreement(self.models(*block)) for block in blocks])

        return in_pieces(of, self.device, self._phi(batch.obs), batch.action)

    def reward(self, batch: Transitions) -> Tensor:
        return self._scale.divide(self._variance(self.reading(batch)), batch.env_index)

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Compute the variance once: scoring and learning both need it."""
        variance = self._variance(self.reading(batch))
        bonus, store = self._scale.divided(variance, batch.env_index)

        def finish() -> dict[str, float]:
            store()
            return {
                "disagreement/loss": self._learn(self.reading.learn(batch)),
                "disagreement/variance": variance.mean().item(),
                "disagreement/bonus_scale": self._scale.value,
            }

        return bonus, finish

    @torch.enable_grad()
    def _learn(self, batch: Transitions) -> float:
        """Train every model on its own part of each minibatch; the mean loss of a model."""
        config, rng, losses = self.config, self.descent.generator, []
        phi, phi_next = of_both(self._phi, batch.obs, batch.next_obs)
        action = self.actions(as_tensor(batch.action, self.device))
        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=rng)
            for chosen in order.tensor_split(min(config.minibatches, len(order))):
                rows = chosen.to(self.device)
                errors = model_errors(self.models(phi[rows], action[rows]), phi_next[rows])
                drawn = torch.rand(errors.shape, generator=rng, dtype=torch.float32)
                kept = drawn.to(self.device) < config.keep
                # A sum over the models, which share no parameter.
                self.descent.step((errors * kept).mean(1).sum() / config.keep)
                losses.append(errors.detach().mean())
        return torch.stack(losses).mean().item()

    def get_extra_state(self) -> dict[str, Any]:
        return self._scale.stored()

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        self._scale.check_stored(state[EXTRA], place)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._scale.restore(state)
