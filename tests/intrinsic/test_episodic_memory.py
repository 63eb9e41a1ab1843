"""The grid of a batch, and the memory of episodes."""

import numpy as np
import pytest
import torch

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.episodes import EpisodicMemory, Memory, Streams

CPU = torch.device("cpu")


def batch_of(env_index: list[int] | None, ended: list[int] | None) -> Transitions:
    n = len(env_index or ended or [])
    obs = np.arange(n, dtype=np.float32)[:, None]
    return Transitions(
        obs,
        np.zeros(n, np.int64),
        obs,
        None if env_index is None else np.array(env_index),
        None if ended is None else np.array(ended, bool),
    )


def test_each_environment_has_its_rows_in_time_order() -> None:
    streams = Streams.of(batch_of([0, 2, 0, 2, 2], [0, 0, 1, 1, 0]), CPU)
    assert streams.present.tolist() == [[1, 0, 1], [1, 0, 1], [0, 0, 1]]
    assert streams.ended.tolist() == [[0, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert streams.row[streams.present].tolist() == [0, 1, 2, 3, 4]
    values = torch.tensor([5.0, 6.0, 7.0, 8.0, 9.0])
    assert streams.grid(values)[:, 2].tolist() == [6.0, 8.0, 9.0]
    assert torch.equal(streams.flat(streams.grid(values)), values)


def test_without_columns_all_rows_are_of_one_endless_episode() -> None:
    batch = Transitions(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)))
    streams = Streams.of(batch, CPU)
    assert (len(streams), streams.envs) == (3, 1)
    assert not streams.ended.any()


def test_rows_of_a_replay_buffer_are_refused() -> None:
    with pytest.raises(UserError, match="on-policy"):
        Streams.of(batch_of([-1, -1], None), CPU)


def visits(memory: EpisodicMemory, batch: Transitions, before: Memory | None = None):
    """The number of the step in its episode, 1 for the first."""
    streams = Streams.of(batch, CPU)
    rows, counts = memory.rows(streams.envs, before), []
    for t in range(len(streams)):
        rows["count"][: streams.envs] += streams.present[t]
        counts.append(rows["count"][: streams.envs].clone())
        memory.begin(rows, streams.ended[t])
    return streams.flat(torch.stack(counts)), rows


def test_a_memory_is_carried_across_batches_and_reset_at_ends() -> None:
    memory = EpisodicMemory(count=torch.tensor(0))
    first, rows = visits(memory, batch_of([0, 1, 0, 1, 0], [0, 0, 0, 1, 0]))
    assert first.tolist() == [1, 1, 2, 2, 3]
    assert visits(memory, batch_of([0], [0]))[0].tolist() == [1]  # nothing was stored
    memory.store(rows)
    second, _ = visits(memory, batch_of([2, 0, 1], None))
    assert second.tolist() == [1, 4, 1]


def test_a_scorer_scores_part_by_part_what_is_scored_at_once() -> None:
    memory = EpisodicMemory(count=torch.tensor(0))
    batch = batch_of([0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0])
    score = memory.scorer(lambda part, before: visits(memory, part, before))
    parts = [score(batch[0:1]), score(batch[1:2]), score(batch[2:6])]
    assert torch.equal(torch.cat(parts), visits(memory, batch)[0])


def test_a_stored_memory_is_checked() -> None:
    memory = EpisodicMemory(count=torch.tensor(0), sum=torch.zeros(2))
    memory.store(memory.rows(3))
    state = memory.state_dict()
    other = EpisodicMemory(count=torch.tensor(0), sum=torch.zeros(2))
    other.load_state_dict(state)
    assert len(other.rows(1)["sum"]) == 3
    forged = {"count": torch.zeros(3, dtype=torch.int64), "sum": torch.zeros(2, 2)}
    with pytest.raises(UserError, match="as many rows"):
        other.set_extra_state(forged)
    with pytest.raises(UserError, match="shape"):
        other.set_extra_state(forged | {"sum": torch.zeros(3, 5)})
