"""The nearest states of the same episode: distances in feature space, and the memory they need.

neighbours = Neighbours(width=32, k=10, capacity=30_000)
streams = Streams.of(batch, device, len(neighbours))
start, after = embed_visits(embed, batch, streams, neighbours.first(streams))
found, memory = neighbours.visit(streams, start, after)
neighbours.store(memory)                            # when the method learns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from emi.intrinsic.episodes import Memory, Streams
from emi.stored_state import EXTRA, expect, expect_tensor

BLOCK_ENTRIES = 2**21  # distances that are computed at once


class Nearest(NamedTuple):
    """The neighbours of every row [time, env]."""

    squared: Tensor  # [time, env, k], squared distances, ascending; inf where there are fewer
    mean: Tensor  # [time, env], the running mean of squared distances, with those of this row


def nearest(path: Tensor, query: Tensor, begin: Tensor, end: Tensor, k: int) -> Tensor:
    """Squared distances of each query to the k nearest places of a part of its path.

    `path` [env, places, d] and `query` [env, time, d]; the part is from `begin` to before `end`,
    [env, time] each. Returns [env, time, k], ascending; inf where there are fewer than k.
    """
    envs, length, _ = query.shape
    block = max(1, BLOCK_ENTRIES // max(1, envs * path.shape[1]))
    out = query.new_full((envs, length, k), torch.inf)
    for t in range(0, length, block):
        low, high = begin[:, t : t + block, None], end[:, t : t + block, None]
        lowest, highest = int(low.min()), int(high.max())
        # Exact: the faster expansion of the square would give equal states a distance.
        distance = torch.cdist(
            query[:, t : t + block],
            path[:, lowest:highest],
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        place = torch.arange(lowest, highest, device=path.device)
        distance.masked_fill_((place < low) | (place >= high), torch.inf)
        some = min(k, highest - lowest)
        out[:, t : t + block, :some] = distance.topk(some, largest=False).values.square_()
    return out


def trimmed(phi: Tensor, length: Tensor) -> Tensor:
    """The last `length` [env] of [env, places, d], as few places as hold them; zeros before."""
    longest = int(length.max())
    phi = phi[:, phi.shape[1] - longest :]
    kept = torch.arange(longest, device=phi.device) >= longest - length[:, None]
    return torch.where(kept[:, :, None], phi, 0)


class Neighbours(nn.Module):
    """The features of the states of each current episode, at most the last `capacity` of them.

    The running mean of squared distances to the k nearest states is one for each environment, over
    all its episodes. The memory is as long as the longest current episode. All of it is part of the
    state: `phi` [env, places, d] has the newest state last, `length` [env] counts the states, and
    `sum` and `count` [env] are of squared distances.
    """

    def __init__(self, width: int, k: int, capacity: int) -> None:
        super().__init__()
        self.width, self.k, self.capacity = width, k, capacity
        self._memory = self._empty(1, torch.device("cpu"))

    def __len__(self) -> int:
        """The number of environments so far."""
        return len(self._memory["length"])

    def _empty(self, envs: int, device: torch.device) -> Memory:
        doubles = torch.zeros(2, envs, dtype=torch.float64, device=device)
        return {
            "phi": torch.zeros(envs, 0, self.width, dtype=torch.float32, device=device),
            "length": torch.zeros(envs, dtype=torch.int64, device=device),
            "sum": doubles[0],
            "count": doubles[1],
        }

    def _before(self, streams: Streams, before: Memory | None) -> Memory:
        """The memory, or `before`, with a row for every stream."""
        memory = self._memory if before is None else before
        memory = {name: value.to(streams.row.device) for name, value in memory.items()}
        new = self._empty(streams.envs - len(memory["length"]), streams.row.device)
        new["phi"] = new["phi"].new_zeros(len(new["phi"]), *memory["phi"].shape[1:])
        return {name: torch.cat([value, new[name]]) for name, value in memory.items()}

    def first(self, streams: Streams, before: Memory | None = None) -> Tensor:
        """[time, env]: whether a row is the first of its episode."""
        return streams.first(self._before(streams, before)["length"] == 0)

    def visit(
        self, streams: Streams, start: Tensor, after: Tensor, before: Memory | None = None
    ) -> tuple[Nearest, Memory]:
        """The neighbours of every s', and the memory after the batch; nothing is stored.

        `start` and `after` are what `embed_visits` returns. The neighbours of s' are earlier states
        of its episode: the first s, and every s' since. `streams` has a stream for every
        environment of the memory.
        """
        memory = self._before(streams, before)
        length, kept = memory["length"], memory["phi"].shape[1]
        first, present = streams.first(length == 0), streams.present
        envs = torch.arange(streams.envs, device=after.device).expand(len(streams), -1)
        # The path of each environment: the memory, then the new states. [time, env]: the place of
        # s' in it; a first s is at the place before.
        time = torch.arange(len(streams), device=after.device)[:, None]
        place = kept + time + first.cumsum(0)
        places = kept + len(streams) + int(first.sum(0).max())
        path = after.new_zeros(streams.envs, places, self.width)
        path[:, :kept] = memory["phi"]
        path[envs[first], place[first] - 1] = start[first]
        path[envs[present], place[present]] = after[present]

        begin = torch.where(first, place - 1, -1).cummax(0).values
        begin = torch.where(begin < 0, kept - length, begin)
        oldest = torch.maximum(begin, place - self.capacity)
        query = after.transpose(0, 1).contiguous()
        squared = nearest(path, query, oldest.T, place.T, self.k).transpose(0, 1)

        known = squared.isfinite() & present[:, :, None]
        total = torch.where(known, squared, 0).sum(2, dtype=torch.float64).cumsum(0)
        total, count = memory["sum"] + total, memory["count"] + known.sum(2).cumsum(0)
        found = Nearest(squared, total / count.clamp(min=1))

        steps = present.sum(0)
        last = (steps - 1).clamp(min=0)[None]
        moved, over = steps > 0, streams.ended.gather(0, last)[0]
        end = torch.where(moved, place.gather(0, last)[0] + 1, kept)
        now = torch.where(moved, end - begin.gather(0, last)[0], length)
        now = now.clamp(max=self.capacity).masked_fill(moved & over, 0)
        # Right-aligned, as they are stored.
        longest = int(now.max())
        index = (end[:, None] - longest + torch.arange(longest, device=after.device)).clamp(min=0)
        newest = path.gather(1, index[:, :, None].expand(-1, -1, self.width))
        phi = trimmed(newest, now)
        return found, {"phi": phi, "length": now, "sum": total[-1], "count": count[-1]}

    def store(self, memory: Memory) -> None:
        """Remember what `visit` returned."""
        self._memory = memory

    def forget(self, envs: Sequence[int]) -> None:
        """Begin a new episode in these environments, in what is stored."""
        length = self._memory["length"].clone()
        length[[env for env in envs if env < len(length)]] = 0
        phi = trimmed(self._memory["phi"], length)
        self._memory = self._memory | {"phi": phi, "length": length}

    @property
    def mean_square(self) -> Tensor:
        """The running mean of squared distances over all environments, []."""
        return self._memory["sum"].sum() / self._memory["count"].sum().clamp(min=1)

    def get_extra_state(self) -> dict[str, Any]:
        return dict(self._memory)

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        found = state[EXTRA]
        phi, length = found["phi"], found["length"]
        grid = isinstance(phi, Tensor) and phi.ndim == 3 and len(phi) > 0
        expect(grid, phi, f"{place}.phi", "a tensor [env, places, features]")
        envs, places, _ = phi.shape
        expect(places <= self.capacity, phi, f"{place}.phi", f"{self.capacity} places or fewer")
        expect_tensor(phi, (envs, places, self.width), torch.float32, f"{place}.phi")
        expect_tensor(length, (envs,), torch.int64, f"{place}.length", low=0)
        expect(bool((length <= places).all()), length, f"{place}.length", f"{places} or less")
        for name in ("sum", "count"):
            expect_tensor(found[name], (envs,), torch.float64, f"{place}.{name}", low=0)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_stored({EXTRA: state}, "the memory of neighbours")
        self._memory = {name: state[name].clone() for name in self._memory}
