"""Episodic memory: what a method knows of the current episode of each environment.

memory = EpisodicMemory(inverse=torch.eye(d))       # the memory at the start of an episode
streams = Streams.of(batch, device)                 # the rows of each environment, in time order
rows = memory.rows(streams.envs)                    # a copy that may be changed
for t in range(len(streams)):                       # score step t with `rows`, and add it to them
    memory.begin(rows, streams.ended[t])            # forget where an episode ended
memory.store(rows)                                  # when the method learns
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from emi.batch import Batched, Transitions
from emi.errors import UserError
from emi.stored_state import EXTRA, expect, expect_tensor

Memory = dict[str, Tensor]
"""What is remembered, by name: [env, *shape] each."""


@dataclass(frozen=True)
class Streams:
    """The rows of a batch on a grid [time, env]: step t of an environment is its t-th row."""

    row: Tensor  # [time, env], the row of the batch; 0 where there is none
    present: Tensor  # [time, env], whether there is one
    ended: Tensor  # [time, env], whether an episode ended after it
    place: Tensor  # [n], the flat place of each row in the grid

    @classmethod
    def of(cls, batch: Transitions, device: torch.device, envs: int = 0) -> Streams:
        """The streams of a batch, at least `envs`; UserError if its rows are in no order."""
        n = len(batch)
        zeros = torch.zeros(n, dtype=torch.int64, device=device)
        env = zeros if batch.env_index is None else torch.as_tensor(batch.env_index, device=device)
        if bool((env < 0).any()):
            raise UserError(
                "a bonus with an episodic memory needs the steps of an episode in their order, and "
                "rows of a replay buffer have none: use an on-policy trainer or another method"
            )
        env = env.to(torch.int64)
        counts = torch.bincount(env, minlength=envs)
        order = torch.argsort(env, stable=True)
        first = counts.cumsum(0) - counts  # of each environment, in `order`
        time = torch.empty_like(env)
        time[order] = torch.arange(n, device=device) - first[env[order]]
        length, envs = int(counts.max()), len(counts)
        place = time * envs + env
        present = torch.zeros(length * envs, dtype=torch.bool, device=device)
        present[place] = True
        row = torch.zeros(length * envs, dtype=torch.int64, device=device)
        row[place] = torch.arange(n, device=device)
        ended = torch.zeros_like(present)
        if batch.ended is not None:
            ended[place] = torch.as_tensor(batch.ended, device=device).to(torch.bool)
        shape = (length, envs)
        return cls(row.view(shape), present.view(shape), ended.view(shape), place)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def envs(self) -> int:
        return self.row.shape[1]

    def first(self, fresh: Tensor) -> Tensor:
        """[time, env]: whether a row is the first of its episode.

        `fresh` [env]: whether the environment begins the batch with a new episode.
        """
        return torch.cat([fresh[None], self.ended[:-1]]) & self.present

    def grid(self, values: Tensor) -> Tensor:
        """[n, ...] to [time, env, ...]; where there is no row, some other row."""
        return values[self.row]

    def flat(self, grid: Tensor) -> Tensor:
        """[time, env, ...] to [n, ...], the inverse of `grid`."""
        return grid.flatten(0, 1)[self.place]


def embed_visits(
    embed: Callable[[Batched], Tensor], batch: Transitions, streams: Streams, first: Tensor
) -> tuple[Tensor, Tensor]:
    """φ(s) where `first` [time, env], else 0; and φ(s') of all rows; both [time, env, d].

    An episode visits the first s and then every s': a memory of them holds each state once.
    """
    after = embed(batch.next_obs)
    start = torch.zeros_like(after)
    which = streams.flat(first).nonzero().flatten().cpu()
    if len(which) > 0:
        start[which] = embed(batch.obs[which.numpy()])
    return streams.grid(start), streams.grid(after)


def consecutive(
    score: Callable[[Transitions, Memory | None], tuple[Tensor, Memory]],
) -> Callable[[Transitions], Tensor]:
    """A function that scores one part of a batch after the other, the `scorer` of the contract.

    `score` returns the bonuses of a part and the memory after it; it is given the memory before
    it, None for the stored one.
    """
    memory: Memory | None = None

    def score_next(batch: Transitions) -> Tensor:
        nonlocal memory
        bonus, memory = score(batch, memory)
        return bonus

    return score_next


class EpisodicMemory(nn.Module):
    """Named tensors [env, *shape] that start every episode as `start` and are part of the state.

    There is a row for every environment seen so far. A method scores with a copy and stores it
    when it learns, so that scoring changes nothing.
    """

    def __init__(self, **start: Tensor) -> None:
        super().__init__()
        self._names = tuple(start)
        for name, value in start.items():
            # Not part of the state: a function of the settings.
            self.register_buffer(f"start_{name}", value, persistent=False)
        self._rows: Memory = {name: value[None].clone() for name, value in start.items()}

    def start(self, name: str) -> Tensor:
        """What an environment remembers at the start of an episode, [*shape]."""
        return self.get_buffer(f"start_{name}")

    def rows(self, envs: int, before: Memory | None = None) -> Memory:
        """A copy of the memory, or of `before`, with rows for at least so many environments."""
        copies = {}
        for name, value in (self._rows if before is None else before).items():
            start = self.start(name)
            new = start.expand(max(0, envs - len(value)), *start.shape)
            copies[name] = torch.cat([value.to(start.device), new])
        return copies

    def begin(self, rows: Memory, where: Tensor) -> None:
        """Begin a new episode in the environments `where`, booleans for the first of `rows`."""
        if bool(where.any()):
            for name, value in rows.items():
                value[: len(where)][where] = self.start(name)

    def forget(self, envs: Sequence[int]) -> None:
        """Begin a new episode in these environments, in what is stored."""
        rows = self.rows(0)
        for name, value in rows.items():
            value[[env for env in envs if env < len(value)]] = self.start(name)
        self.store(rows)

    def store(self, rows: Memory) -> None:
        """Remember what a batch added to a copy."""
        self._rows = rows

    def scorer(
        self, score: Callable[[Transitions, Memory | None], tuple[Tensor, Memory]]
    ) -> Callable[[Transitions], Tensor]:
        """See `consecutive`."""
        return consecutive(score)

    def get_extra_state(self) -> dict[str, Any]:
        return dict(self._rows)

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        found = state[EXTRA]
        lengths = set()
        for name in self._names:
            start, value = self.start(name), found[name]
            rows = isinstance(value, Tensor) and value.ndim > 0 and len(value) > 0
            expect(rows, value, f"{place}.{name}", "a tensor with a row for each environment")
            shape = (len(value), *start.shape)
            expect_tensor(value, shape, start.dtype, f"{place}.{name}")
            lengths.add(len(value))
        expect(len(lengths) == 1, found, place, "as many rows of each kind")

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_stored({EXTRA: state}, "the episodic memory")
        # A copy: otherwise two memories would share tensors.
        self._rows = {name: state[name].clone() for name in self._names}
