"""NovelD: reward steps from known to novel states, once per episode.

Novelty is the error of RND. A step is rewarded by how much more novel its end is than its start,
so that the bonus is large at the boundary of what is known. A state that was visited before in the
same episode gives nothing, so that the agent cannot collect the bonus by going back and forth.

Zhang, Xu, Wang, Wu, Keutzer, Gonzalez, Tian: NovelD: A Simple yet Effective Exploration Criterion,
NeurIPS 2021. "Authors" is their code, tianjunz/NovelD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium
import torch
from torch import Tensor

from emi.batch import Batched, Transitions, of_both
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.episodes import Memory
from emi.intrinsic.rnd import RND, RNDConfig
from emi.intrinsic.visits import VisitCounts
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class NovelDConfig:
    """Settings of `emi.NovelD`."""

    alpha: NotNegativeFloat = 0.5
    """α, weight of the novelty of the start (paper; authors' arguments.py)"""
    cell: PositiveFloat = 0.25
    """floats are the same state in a cell of so many standard deviations (ours: the original counts
    grids of integers)"""
    steps: PositiveInt = 5_000
    """steps of an episode whose states are remembered (ours: the original has no limit)"""
    features: PositiveInt = 512
    """`features` of RND (RND's; authors' networks on MiniGrid are fully connected)"""
    hidden: tuple[PositiveInt, ...] = (128, 128)
    """`hidden` of RND, for vectors (RND's)"""
    learning_rate: PositiveFloat = 1e-4
    """Adam step size (authors' arguments.py)"""
    epochs: PositiveInt = 4
    """passes over each batch (RND's; the original passes once)"""
    minibatches: PositiveInt = 4
    """minibatches per pass, one gradient step each (RND's)"""


def novelty_difference(before: Tensor, after: Tensor, alpha: float) -> Tensor:
    """max(nov(s') − α nov(s), 0); [n] each to [n]."""
    return (after - alpha * before).clamp(min=0)


class NovelD(IntrinsicReward):
    """RND, and the states that each current episode has visited.

    Actions are not used. Scalars of `learn`: `noveld/loss` (of RND's predictor, before each
    gradient step, mean over the steps), `noveld/novelty` (mean of nov(s') over the batch, before
    training) and `noveld/first_visits` (share of the rows that reach a state for the first time in
    their episode).
    """

    episodic = True

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NovelDConfig = NovelDConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        own = RNDConfig(
            features=config.features,
            hidden=config.hidden,
            learning_rate=config.learning_rate,
            epochs=config.epochs,
            minibatches=config.minibatches,
        )
        self.rnd = RND(observation_space, action_space, own, seed)
        self.visits = VisitCounts(
            observation_space, self.rnd.reading.space, cell=config.cell, steps=config.steps
        )

    def novelty(self, obs: Batched) -> Tensor:
        """nov(s) = ‖f̂(s) − f(s)‖₂ of RND's networks; rows as `reading` returns them, to [n]."""
        return (self.config.features * self.rnd.error(obs)).sqrt()

    def reward(self, batch: Transitions) -> Tensor:
        return self._score(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Count the visits once: scoring and the memory both need them."""
        read = self.rnd.reading(batch)
        bonus, rows, novelty, counts = self._visited(read, None)

        def finish() -> dict[str, float]:
            self.visits.learn(read, rows)
            return {
                "noveld/loss": self.rnd.learn(batch)["rnd/loss"],
                "noveld/novelty": novelty.mean().item(),
                "noveld/first_visits": (counts == 1).float().mean().item(),
            }

        return bonus, finish

    def scorer(self) -> Scorer:
        return self.visits.memory.scorer(self._score)

    def forget(self, envs: Sequence[int]) -> None:
        self.visits.memory.forget(envs)

    def _score(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        return self._visited(self.rnd.reading(batch), before)[:2]

    @torch.no_grad()
    def _visited(
        self, batch: Transitions, before: Memory | None
    ) -> tuple[Tensor, Memory, Tensor, Tensor]:
        """The bonuses, the memory after the batch, nov(s') and N_ep(s')."""
        counts, rows = self.visits.count(batch, before)
        start, end = of_both(self.novelty, batch.obs, batch.next_obs)
        bonus = novelty_difference(start, end, self.config.alpha) * (counts == 1)
        return bonus, rows, end, counts
