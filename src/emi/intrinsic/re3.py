"""RE3: reward states that are far from their nearest neighbours among recent states.

The distance to the k-th nearest neighbour estimates how rarely states are visited; a policy that
maximises its logarithm maximises the entropy of its states. Distances are measured in the output of
a fixed random network. Nothing is trained.

Seo, Chen, Shin, Lee, Abbeel, Lee: State Entropy Maximization with Random Encoders for Efficient
Exploration, ICML 2021. "Authors" is their code, younggyoseo/RE3.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Transitions, in_pieces
from emi.intrinsic.contract import Finish, IntrinsicReward
from emi.intrinsic.moments import Moments, RunningMoments
from emi.intrinsic.pool import Pool
from emi.intrinsic.reading import Reading, normalized
from emi.intrinsic.rnd import BLOCK_ROWS, encoder
from emi.nets import Flat, linear, newest_entries
from emi.settings import PositiveInt

CHUNK = 2**22  # distances in memory at a time


@dataclass(frozen=True)
class RE3Config:
    """Settings of `emi.RE3`."""

    k: PositiveInt = 3
    """the distance is that to the k-th nearest neighbour (paper; authors' rad_re3/config.yaml)"""
    pool_size: PositiveInt = 10_000
    """number of recent states among which neighbours are searched, with those of the batch
    (authors' a2c_re3, train.py)"""
    features: PositiveInt = 64
    """outputs of the random network (authors' a2c_re3)"""
    hidden: tuple[PositiveInt, ...] = (64, 64)
    """hidden layers of the random network instead of convolutions, for vectors (ours)"""


def kth_distance(rows: Tensor, among: Tensor, own: Tensor, k: int) -> Tensor:
    """‖y − y^kNN‖₂ of each row of [n, d] to its k-th nearest in `among` [m, d]; [n].

    `own` [n] is the place of a row in `among`, which is not its neighbour; −1 if it is not there.
    With fewer than k neighbours, the distance to the farthest; without any, 0.
    """
    k = min(k, len(among) - 1)
    if k == 0:
        return rows.new_zeros(len(rows))
    # Centred, so that ½‖c‖² − y·c, which orders the neighbours c of y, loses few digits. It is one
    # product of (y, 1) and (−c, ½‖c‖²); adding the square afterwards would take as long.
    centre = among.mean(0)
    rows, among = rows - centre, among - centre
    factor = torch.cat([-among, among.square().sum(1, keepdim=True) / 2], 1).T
    size, found = max(1, CHUNK // len(among)), []
    for y, place in zip(rows.split(size), own.split(size), strict=True):
        order = torch.cat([y, y.new_ones(len(y), 1)], 1) @ factor
        inside = (place >= 0).nonzero()[:, 0]
        order[inside, place[inside]] = torch.inf
        nearest = order.topk(k, dim=1, largest=False).indices
        found.append((y[:, None] - among[nearest]).norm(dim=2).amax(1))
    return torch.cat(found)


class RE3(IntrinsicReward):
    """bonus = log(1 + d / σ), d the distance of s' to its k-th neighbour, σ the deviation of all d.

    Actions are not used. Scalars of `learn`, before training: `re3/distance` (mean of d over the
    batch), `re3/distance_std` (σ) and `re3/pool` (number of earlier states that are kept).
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: RE3Config = RE3Config(),  # noqa: B008 - frozen
        seed: int = 0,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.reading = Reading(observation_space)
        self.entries, shape = newest_entries(self.reading.space)
        layers, width = encoder(self.entries, shape, config.hidden, rng)
        top = linear(width, config.features, rng, init="orthogonal")
        self.encoder = nn.Sequential(*layers, top).requires_grad_(False)
        self._vectors = isinstance(self.entries, Flat)
        self.observed = RunningMoments(shape) if self._vectors and normalize else None
        self.distances = RunningMoments()
        # Vectors are kept as they are, because their normalisation changes; images are embedded.
        self.pool = Pool(config.pool_size, shape if self._vectors else (config.features,))

    def _kept(self, obs: Batched) -> Tensor:
        """What the pool keeps of observations that `reading` returned."""
        return in_pieces(self.entries if self._vectors else self._encoded, self.device, obs)

    def _encoded(self, obs: Tensor) -> Tensor:
        return torch.cat([self.encoder(self.entries(part)) for part in obs.split(BLOCK_ROWS)])

    def _embedded(self, kept: Tensor, moments: Moments | RunningMoments | None) -> Tensor:
        """y, [n, features], of rows that `_kept` returned."""
        if not self._vectors:
            return kept
        rows = kept if moments is None else normalized(kept, moments)
        return in_pieces(self._encoded, self.device, rows)

    def _distance(self, kept: Tensor) -> Tensor:
        """d of each row, [n], among the last `pool_size` states, of which the batch is part."""
        moments: Moments | RunningMoments | None = self.observed
        if self.observed is not None and self.observed.count == 0:
            moments = Moments.of(kept)
        y, size = self._embedded(kept, moments), self.config.pool_size
        earlier = self.pool.newest(size - len(y))
        if earlier is None:
            among = y[-size:]
        else:
            among = torch.cat([self._embedded(earlier.to(self.device), moments), y])
        own = torch.arange(len(y), device=y.device) + len(among) - len(y)
        return kth_distance(y, among, own, self.config.k)

    def reward(self, batch: Transitions) -> Tensor:
        return self._scored(batch)[0]

    def learn(self, batch: Transitions) -> dict[str, float]:
        return self.score(batch)[1]()

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Search the neighbours once: scoring and learning both need the distances."""
        bonus, distance, moments, kept = self._scored(batch)

        def finish() -> dict[str, float]:
            self.distances.store(moments)
            if self.observed is not None:
                self.observed.update(kept)
            scalars = {
                "re3/distance": distance.mean().item(),
                "re3/distance_std": moments.variance.sqrt().item(),
                "re3/pool": float(len(self.pool)),
            }
            self.pool.add(kept)
            return scalars

        return bonus, finish

    @torch.no_grad()
    def _scored(self, batch: Transitions) -> tuple[Tensor, Tensor, Moments, Tensor]:
        """The bonuses, the distances, the moments of all distances, and what the pool keeps."""
        kept = self._kept(self.reading(batch).next_obs)
        distance = self._distance(kept)
        moments = self.distances.with_rows(distance)
        sigma = moments.variance.sqrt()
        bonus = torch.log1p(distance / torch.where(sigma > 0, sigma, 1.0))
        return bonus.to(torch.float32), distance, moments, kept
