"""PseudoCounts: reward states with few similar states earlier in the same episode.

The similarity of s' to its k nearest states of the episode, summed over them, is a soft count of
visits n; the bonus is about 1/√n. It is the episodic part of NGU alone, without the life-long
novelty of RND. States are compared in inverse-dynamics features, and all of them are forgotten when
the episode ends.

Badia, Sprechmann, Vitvitskyi, Guo, Piot, Kapturowski, Tieleman, Arjovsky, Pritzel, Bolt, Blundell:
Never Give Up: Learning Directed Exploration Strategies, ICLR 2020. Their code is not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium
import torch
from torch import Tensor

from emi.batch import Columns, Transitions
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.episodes import Memory, Streams, consecutive, embed_visits
from emi.intrinsic.inverse import InverseDynamics
from emi.intrinsic.neighbours import Nearest, Neighbours
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class PseudoCountsConfig:
    """Settings of `emi.PseudoCounts`."""

    neighbours: PositiveInt = 10
    """k, the number of nearest states (NGU, appendix)"""
    kernel_epsilon: PositiveFloat = 1e-3
    """ε of the kernel (NGU, section 2; its appendix lists 1e-4)"""
    cluster_distance: NotNegativeFloat = 0.008
    """ξ: states that are closer, in units of the mean squared distance, count as equal (NGU)"""
    constant: PositiveFloat = 1e-3
    """c, added to √n (NGU)"""
    max_similarity: PositiveFloat = 8.0
    """s_m: no bonus if √n + c is larger, which needs k > 63 (NGU)"""
    capacity: PositiveInt = 30_000
    """states of an episode that are remembered, the newest (NGU, appendix)"""
    width: PositiveInt = 32
    """outputs of φ, the controllable state (NGU, appendix)"""
    hidden: tuple[PositiveInt, ...] = (64,)
    """layers of φ before the last, for vectors, tanh (ours: as ICM's; the original has images)"""
    learning_rate: PositiveFloat = 5e-4
    """Adam step size of the inverse model (NGU, appendix)"""
    epochs: PositiveInt = 3
    """passes of the inverse model over each batch (ours: as ICM's)"""
    minibatch: PositiveInt = 512
    """minibatch of the inverse model; an incomplete last one is dropped (ours: as ICM's)"""


SMALLEST = 1e-8  # of d_m²: the rounding of φ is not a distance


def episodic_bonus(found: Nearest, config: PseudoCountsConfig) -> Tensor:
    """1 / (√n + c), n = Σ ε / (max(d²/d_m² − ξ, 0) + ε) over the neighbours; 0 if √n + c > s_m.

    Algorithm 1 of NGU. `found` has d² [time, env, k] and d_m² [time, env]; returns [time, env].
    """
    scale = found.mean[:, :, None].clamp(min=SMALLEST)
    distance = (found.squared / scale - config.cluster_distance).clamp(min=0)
    count = (config.kernel_epsilon / (distance + config.kernel_epsilon)).sum(2)
    similarity = count.sqrt() + config.constant
    return torch.where(similarity > config.max_similarity, 0, 1 / similarity)


class PseudoCounts(IntrinsicReward):
    """The features φ with their inverse model, and φ of the states of each current episode.

    Scalars of `learn`: `pseudo_counts/loss_inverse` and, for discrete actions,
    `pseudo_counts/inverse_accuracy` (the loss of the inverse model, and the share of actions that
    it predicts; means over minibatches, before each gradient step), and `pseudo_counts/distance`,
    the root of the running mean d_m² over all environments.
    """

    episodic = True

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: PseudoCountsConfig = PseudoCountsConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
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
        self.memory = Neighbours(config.width, config.neighbours, config.capacity)

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.encoder.embed_state(obs)

    def reward(self, batch: Transitions) -> Tensor:
        return self._score(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Compare the states once: scoring and the memory both need it."""
        bonus, memory = self._score(batch)

        def finish() -> dict[str, float]:
            self.memory.store(memory)
            scalars = self.encoder.learn(batch)
            scalars["distance"] = self.memory.mean_square.sqrt().item()
            return {f"pseudo_counts/{name}": value for name, value in scalars.items()}

        return bonus, finish

    def scorer(self) -> Scorer:
        return consecutive(self._score)

    def forget(self, envs: Sequence[int]) -> None:
        self.memory.forget(envs)

    @torch.no_grad()
    def _score(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        """The bonuses [n], and the memory after the batch."""
        known = len(self.memory if before is None else before["length"])
        streams = Streams.of(batch, self.device, known)
        read, first = self.encoder.reading(batch), self.memory.first(streams, before)
        start, after = embed_visits(self.encoder.embed_read, read, streams, first)
        found, memory = self.memory.visit(streams, start, after, before)
        return streams.flat(episodic_bonus(found, self.config)).float(), memory
