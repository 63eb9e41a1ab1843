"""E3B: reward states that differ from all earlier states of the same episode.

The states of an episode span an ellipsoid in feature space. The bonus is the squared length of
φ(s') in the metric of this ellipsoid: large in directions that the episode has not visited. It
generalises the count of a discrete state, for which it is about 1/n, to any features. At the end of
an episode the ellipsoid is forgotten.

Henaff, Raileanu, Jiang, Rocktäschel: Exploration via Elliptical Episodic Bonuses, NeurIPS 2022.
"Authors" is their code, facebookresearch/e3b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium
import torch
from torch import Tensor

from emi.batch import Columns, Transitions
from emi.images import is_image
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.emi import EMI, EMIConfig
from emi.intrinsic.episodes import EpisodicMemory, Memory, Streams, embed_visits
from emi.intrinsic.inverse import InverseDynamics
from emi.settings import PositiveFloat, PositiveInt
from emi.spaces import readable


@dataclass(frozen=True)
class E3BConfig:
    """Settings of `emi.E3B`."""

    ridge: PositiveFloat = 0.1
    """λ, the covariance at the start of an episode is λI (paper; authors' code)"""
    features: Literal["inverse", "emi"] = "inverse"
    """φ is trained to predict actions (paper), or is the φ of EMI (ours)"""
    width: PositiveInt = 32
    """d, outputs of φ (ours: a step costs d² operations; authors' code: 1024 on MiniHack)"""
    hidden: tuple[PositiveInt, ...] = (64,)
    """layers of φ before the last, for vectors, tanh (ours: as ICM's; the original has images)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size of the inverse model (authors' arguments.py)"""
    epochs: PositiveInt = 3
    """passes of the inverse model over each batch (ours: as ICM's; the original passes once)"""
    minibatch: PositiveInt = 512
    """minibatch of the inverse model; an incomplete last one is dropped (ours: as ICM's)"""


def visit(inverse: Tensor, phi: Tensor, visits: Tensor) -> Tensor:
    """b = φᵀ C⁻¹ φ, and C ← C + φφᵀ in place, by the formula of Sherman and Morrison.

    C⁻¹ ← C⁻¹ − C⁻¹φ φᵀC⁻¹ / (1 + b). `inverse` [env, d, d] is C⁻¹, `phi` is [env, d]; `visits`
    [env] is 1 where a state was visited, 0 where C stays. Returns b, [env].
    """
    u = torch.bmm(inverse, phi[:, :, None])[:, :, 0]
    b = (phi * u).sum(1)
    inverse.baddbmm_((u * (visits / (1 + b))[:, None])[:, :, None], u[:, None], alpha=-1)
    return b


def elliptical_bonuses(
    memory: EpisodicMemory, rows: Memory, streams: Streams, start: Tensor, after: Tensor
) -> Tensor:
    """b of every step, [time, env]; `rows` becomes the memory after the last.

    `start` and `after` are what `embed_visits` returns. The first state of an episode has no bonus,
    but is part of C (authors' code).
    """
    fresh, inverse = (rows[name][: streams.envs] for name in ("fresh", "inverse"))
    first = streams.first(fresh)
    begins, visits = first.any(1).tolist(), streams.present.to(after.dtype)
    bonuses = []
    for t in range(len(streams)):
        if begins[t]:
            visit(inverse, start[t], first[t].to(after.dtype))
        bonuses.append(visit(inverse, after[t], visits[t]))
        fresh[streams.present[t]] = False
        memory.begin(rows, streams.ended[t])
    return torch.stack(bonuses)


def emi_config(space: gymnasium.Space, width: int) -> EMIConfig:
    """EMI with d = `width`, and the weights that the paper has for this kind of observations."""
    if not is_image(space):
        return EMIConfig(embedding_dim=width)
    return EMIConfig(
        embedding_dim=width, lambda_error=100.0, lambda_info=0.1, kl_target="action", kl_weight=0.5
    )


class E3B(IntrinsicReward):
    """The features φ, and the inverse covariance of the states of each current episode.

    Scalars of `learn`: `e3b/loss_inverse` and, for discrete actions, `e3b/inverse_accuracy` (the
    loss of the inverse model, and the share of actions that it predicts; means over minibatches,
    before each gradient step), and `e3b/feature_norm`, the mean norm of φ(s') before training. With
    EMI's features, the scalars of `emi.EMI` replace the first two.
    """

    episodic = True

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: E3BConfig = E3BConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder: InverseDynamics | EMI
        if config.features == "emi":
            own = emi_config(readable(observation_space).box, config.width)
            self.encoder = EMI(observation_space, action_space, own, seed, normalize=normalize)
        else:
            self.encoder = InverseDynamics(
                observation_space,
                action_space,
                torch.Generator().manual_seed(seed),
                width=config.width,
                hidden=config.hidden,
                learning_rate=config.learning_rate,
                epochs=config.epochs,
                minibatch=config.minibatch,
                normalize=normalize,
            )
        # Doubles: thousands of updates must not add up their rounding.
        start = torch.eye(config.width, dtype=torch.float64) / config.ridge
        self.memory = EpisodicMemory(inverse=start, fresh=torch.tensor(True))

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.encoder.embed_state(obs)

    def reward(self, batch: Transitions) -> Tensor:
        return self._score(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Embed the states once: scoring and the memory both need them."""
        bonus, rows, norm = self._visited(batch, None)

        def finish() -> dict[str, float]:
            self.memory.store(rows)
            scalars = self.encoder.learn(batch)
            if isinstance(self.encoder, InverseDynamics):
                scalars = {f"e3b/{name}": value for name, value in scalars.items()}
            return scalars | {"e3b/feature_norm": norm.item()}

        return bonus, finish

    def scorer(self) -> Scorer:
        return self.memory.scorer(self._score)

    def forget(self, envs: Sequence[int]) -> None:
        self.memory.forget(envs)

    def _score(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        bonus, rows, _ = self._visited(batch, before)
        return bonus, rows

    @torch.no_grad()
    def _visited(self, batch: Transitions, before: Memory | None) -> tuple[Tensor, Memory, Tensor]:
        """The bonuses [n], the memory after the batch, and the mean norm of φ(s')."""
        streams = Streams.of(batch, self.device)
        rows = self.memory.rows(streams.envs, before)
        first = streams.first(rows["fresh"][: streams.envs])
        read = self.encoder.reading(batch)
        start, after = embed_visits(self.encoder.embed_read, read, streams, first)
        grids = start.double(), after.double()
        bonus = streams.flat(elliptical_bonuses(self.memory, rows, streams, *grids))
        return bonus.float(), rows, streams.flat(after).norm(dim=1).mean()
