"""Episodic visit counts: how often the current episode has visited a state.

visits = VisitCounts(observation_space, reading.space, cell=0.25, steps=5_000)
counts, rows = visits.count(batch)      # N_ep(s') of each row, and the memory after the batch
visits.learn(batch, rows)               # when the method learns
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple
from torch import Tensor, nn

from emi.batch import Transitions, in_pieces, pieces
from emi.intrinsic.episodes import EpisodicMemory, Memory, Streams
from emi.intrinsic.moments import RunningMoments
from emi.intrinsic.reading import normalized
from emi.nets import Pixels, newest_entries

FAR = 2.0**40  # cells from the origin at which floats are clipped: integers would overflow


def is_exact(space: gymnasium.Space) -> bool:
    """Whether observations are integers, so that the same state has the same numbers.

    Text is not read, so it does not matter.
    """
    if isinstance(space, Dict | Tuple):
        entries = space.values() if isinstance(space, Dict) else space
        return all(map(is_exact, entries))
    return not isinstance(space, Box) or space.dtype.kind != "f"


def multipliers(n: int) -> Tensor:
    """n fixed 64-bit integers that look random: the sequence of SplitMix64 with the seed 0."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((z ^ (z >> np.uint64(31))).view(np.int64))


def rank_in_window(segment: Tensor, key: Tensor, number: Tensor, window: int) -> Tensor:
    """For each row, how many rows j have its segment and key, and number_j in (number − window,
    number]; itself included. All are integers [n]; the numbers of a segment must ascend.
    """
    order = torch.argsort(key, stable=True)
    order = order[torch.argsort(segment[order], stable=True)]
    segment, key, number = segment[order], key[order], number[order]
    new = torch.ones_like(segment, dtype=torch.bool)
    new[1:] = (segment[1:] != segment[:-1]) | (key[1:] != key[:-1])
    # Ascends over all rows: a group after the other, and the numbers within a group.
    place = (new.cumsum(0) - 1) * (int(number.max()) + 1)
    oldest = torch.searchsorted(place + number, place + (number - window + 1).clamp(min=0))
    ranks = torch.empty_like(oldest)
    ranks[order] = torch.arange(len(order), device=order.device) - oldest + 1
    return ranks


class VisitCounts(nn.Module):
    """N_ep(s'): how often the current episode has reached s', this time included.

    Two states are the same if a 64-bit hash of their entries is. Integers and images (the newest
    frame) are compared exactly. Floats are compared by the cell of a grid with sides of `cell`
    standard deviations, by the running moments of all states that were learned; before the first
    of them, exactly. The last `steps` visits of an episode are remembered and counted. The state
    that an episode starts from is not a visit.
    """

    factors: Tensor

    def __init__(
        self, observation_space: gymnasium.Space, space: Box, *, cell: float, steps: int
    ) -> None:
        """`space` is what `Reading` makes of the observation space."""
        super().__init__()
        self.cell, self.steps = cell, steps
        self.entries, shape = newest_entries(space)
        floats = not (isinstance(self.entries, Pixels) or is_exact(observation_space))
        self.observed = RunningMoments(shape) if floats else None
        self.register_buffer("factors", multipliers(int(np.prod(shape))), persistent=False)
        start = {"keys": torch.zeros(steps, dtype=torch.int64), "visits": torch.tensor(0)}
        self.memory = EpisodicMemory(**start)

    def _codes(self, obs: Tensor) -> Tensor:
        """What is compared, as integers [n, entries]."""
        if isinstance(self.entries, Pixels):
            return self.entries.frames(obs).flatten(1).to(torch.int64)
        if not obs.is_floating_point():
            return obs.reshape(len(obs), -1).to(torch.int64)
        rows = self.entries(obs)
        if self.observed is not None and self.observed.count > 0:
            cells = (normalized(rows, self.observed) / self.cell).floor()
            return cells.clamp(-FAR, FAR).to(torch.int64)
        return (rows + 0.0).view(torch.int32).to(torch.int64)  # the bits; −0 becomes 0

    def keys(self, obs: Tensor) -> Tensor:
        """The hash Σ cᵢ mᵢ mod 2⁶⁴ of each row; [n, *observation] to [n]."""
        return (self._codes(obs) * self.factors).sum(1)

    @torch.no_grad()
    def count(self, batch: Transitions, before: Memory | None = None) -> tuple[Tensor, Memory]:
        """N_ep(s') of each row, [n], and the memory after the batch.

        `batch` is as `Reading` returns it; `before` is the memory before it, None for the stored
        one.
        """
        device, window = self.factors.device, self.steps
        streams = Streams.of(batch, device)
        rows = self.memory.rows(streams.envs, before)
        old_keys, old_visits = (rows[name][: streams.envs] for name in ("keys", "visits"))

        # Visits of the episodes that the batch continues, [past, env], the oldest first.
        past = min(window, int(old_visits.max()))
        old_number = old_visits - past + torch.arange(past, device=device)[:, None]
        old_key = old_keys.gather(1, (old_number % window).T).T

        # Visits of the batch, [time, env]: their episodes, and their numbers in these.
        key = streams.grid(in_pieces(self.keys, device, batch.next_obs))
        time = torch.arange(len(streams), device=device)[:, None]
        episode = streams.ended.cumsum(0) - streams.ended.to(torch.int64)
        first = torch.cat([streams.ended.new_ones(1, streams.envs), streams.ended[:-1]])
        began = torch.where(first, time, 0).cummax(0).values
        number = time - began + torch.where(episode == 0, old_visits, 0)

        env = torch.arange(streams.envs, device=device)
        segment = env * (len(streams) + 1) + episode
        old_segment = (env * (len(streams) + 1)).expand_as(old_number)
        kept = torch.cat([old_number >= 0, streams.present])
        ranks = torch.zeros_like(kept, dtype=torch.int64)
        ranks[kept] = rank_in_window(
            torch.cat([old_segment, segment])[kept],
            torch.cat([old_key, key])[kept],
            torch.cat([old_number, number])[kept],
            window,
        )

        # What is remembered: the visits of the episodes that go on.
        last = torch.where(streams.present, time, 0).amax(0)
        goes_on = streams.present[0] & ~streams.ended.gather(0, last[None])[0]
        length = number.gather(0, last[None])[0] + 1
        self.memory.begin(rows, streams.ended.any(0))
        keys, visits = (rows[name][: streams.envs] for name in ("keys", "visits"))
        newest = streams.present & goes_on & (episode == episode.gather(0, last[None]))
        newest &= number >= length - window  # no slot is written twice
        keys[env.expand_as(number)[newest], (number % window)[newest]] = key[newest]
        visits[goes_on] = length[goes_on]
        return streams.flat(ranks[past:]), rows

    def learn(self, batch: Transitions, rows: Memory) -> None:
        """Remember what `count` returned; update the moments of floats.

        The cells move with the moments. The visits of this batch are remembered by their new cells,
        so that the next batch finds them; earlier ones keep their old cells.
        """
        if self.observed is not None:
            for (part,) in pieces(batch.next_obs, device=self.factors.device):
                self.observed.update(self.entries(part))
            rows = self.count(batch)[1]
        self.memory.store(rows)
