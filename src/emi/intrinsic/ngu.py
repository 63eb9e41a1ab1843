"""NGU: reward states that are new in the episode, more so if they are new in all of training.

The episodic bonus is that of `PseudoCounts`. It is multiplied by a modulator in [1, L] that grows
with the error of RND, and falls to 1 as a state becomes known over many episodes: the agent then
still visits all states of an episode, but does not prefer any.

Badia, Sprechmann, Vitvitskyi, Guo, Piot, Kapturowski, Tieleman, Arjovsky, Pritzel, Bolt, Blundell:
Never Give Up: Learning Directed Exploration Strategies, ICLR 2020. Their code is not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import gymnasium
import torch
from torch import Tensor

from emi.batch import Columns, Transitions
from emi.intrinsic.contract import Finish, IntrinsicReward, Scorer
from emi.intrinsic.moments import Moments, RunningMoments
from emi.intrinsic.pseudo_counts import PseudoCounts, PseudoCountsConfig
from emi.intrinsic.rnd import RND, RNDConfig
from emi.settings import PositiveFloat


@dataclass(frozen=True)
class NGUConfig:
    """Settings of `emi.NGU`."""

    max_modulator: PositiveFloat = 5.0
    """L, the largest modulator (paper)"""
    episodic: PseudoCountsConfig = field(default_factory=PseudoCountsConfig)
    """the episodic bonus: settings of `emi.PseudoCounts` (paper)"""
    lifelong: RNDConfig = field(default_factory=RNDConfig)
    """the life-long novelty: settings of `emi.RND` (as RND's; `discount` is not used)"""


def modulator(error: Tensor, moments: Moments | RunningMoments, highest: float) -> Tensor:
    """min(max(1 + (error − μ) / σ, 1), L), equation 1 and section 2; [n] to [n]."""
    sigma = moments.variance.sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return (1 + (error.double() - moments.mean) / sigma).clamp(1, highest)


class NGU(IntrinsicReward):
    """The pseudo-counts of each episode, RND, and the moments of its errors.

    Scalars of `learn`: those of `PseudoCounts` as `ngu/loss_inverse`, `ngu/inverse_accuracy`
    (discrete actions) and `ngu/distance`; `ngu/episodic` and `ngu/modulator`, the means of both
    factors of the bonus; `ngu/loss_rnd` and `ngu/clipped`, those of `RND`.
    """

    episodic = True

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NGUConfig = NGUConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        spaces = observation_space, action_space
        self.counts = PseudoCounts(*spaces, config.episodic, seed, normalize=normalize)
        self.rnd = RND(*spaces, config.lifelong, seed)
        self.errors = RunningMoments()

    def embed_state(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.counts.embed_state(obs)

    def _error(self, batch: Transitions) -> Tensor:
        """The error of RND for s', [n]."""
        return self.rnd.error(self.rnd.reading(batch).next_obs)

    def _modulator(self, error: Tensor) -> Tensor:
        """By the moments of earlier batches; those of the first batch are its own."""
        moments = self.errors if self.errors.count > 0 else Moments.of(error)
        return modulator(error, moments, self.config.max_modulator).float()

    def reward(self, batch: Transitions) -> Tensor:
        return self.counts.reward(batch) * self._modulator(self._error(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Compute both factors once: scoring and learning need them."""
        episodic, finish_counts = self.counts.score(batch)
        error = self._error(batch)
        alpha = self._modulator(error)

        def finish() -> dict[str, float]:
            self.errors.update(error)
            counts = {k.partition("/")[2]: v for k, v in finish_counts().items()}
            rnd = self.rnd.distill(self.rnd.reading(batch))
            scalars = counts | {
                "episodic": episodic.mean().item(),
                "modulator": alpha.mean().item(),
                "loss_rnd": rnd["rnd/loss"],
                "clipped": rnd["rnd/clipped"],
            }
            return {f"ngu/{name}": value for name, value in scalars.items()}

        return episodic * alpha, finish

    def scorer(self) -> Scorer:
        score = self.counts.scorer()
        return lambda batch: score(batch) * self._modulator(self._error(batch))

    def forget(self, envs: Sequence[int]) -> None:
        self.counts.forget(envs)
