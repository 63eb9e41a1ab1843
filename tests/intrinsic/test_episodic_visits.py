"""Episodic visit counts against a dictionary that is emptied at the end of an episode."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.batch import Rows, Transitions
from emi.errors import UserError
from emi.images import FrameStack
from emi.intrinsic.episodes import Memory
from emi.intrinsic.reading import Reading
from emi.intrinsic.visits import VisitCounts, is_exact, multipliers, rank_in_window

INTEGERS = Box(0, 9, (2,), np.int64)
FLOATS = Box(-np.inf, np.inf, (2,))
IMAGE = FrameStack(Box(0, 255, (2, 36, 36), np.uint8), 2)


def visits_of(space: gymnasium.Space, cell: float = 0.5, steps: int = 1_000) -> VisitCounts:
    return VisitCounts(space, Reading(space).space, cell=cell, steps=steps)


def random_batch(n: int, envs: int, seed: int, states: int = 3) -> Transitions:
    """Rows of several environments in a random order of environments, with random ends."""
    rng = np.random.default_rng(seed)
    next_obs = rng.integers(0, states, (n, 2))
    index = rng.integers(0, envs, n)
    return Transitions(next_obs, np.zeros(n), next_obs, index, rng.random(n) < 0.1)


class ByHand:
    """The counts of one row after the other; the last `steps` visits of an episode count."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.seen: dict[int, deque[Any]] = {}

    def __call__(self, batch: Transitions) -> list[int]:
        counts = []
        for state, env, ended in zip(batch.next_obs, batch.env_index, batch.ended, strict=True):
            seen = self.seen.setdefault(int(env), deque(maxlen=self.steps))
            seen.append(tuple(state))
            counts.append(Counter(seen)[tuple(state)])
            if ended:
                seen.clear()
        return counts


@pytest.mark.parametrize("steps", [1, 2, 5, 17, 1_000])
@pytest.mark.parametrize("seed", range(3))
def test_random_ends_over_many_batches(steps: int, seed: int) -> None:
    visits, by_hand = visits_of(INTEGERS, steps=steps), ByHand(steps)
    for number in range(6):
        batch = random_batch(40 + number, 3 + number % 2, 10 * seed + number)
        counts, rows = visits.count(batch)
        assert torch.equal(counts, visits.count(batch)[0])  # counting stores nothing
        assert counts.tolist() == by_hand(batch)
        visits.learn(batch, rows)


def test_parts_of_a_batch_count_like_the_whole() -> None:
    visits, batch = visits_of(INTEGERS, steps=7), random_batch(60, 3, 0)
    before: Memory | None = None
    parts = []
    for start in range(0, 60, 4):
        counts, before = visits.count(batch[start : start + 4], before)
        parts.append(counts)
    assert torch.equal(torch.cat(parts), visits.count(batch)[0])


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_memory_is_empty_on_the_first_step_of_every_episode(mode: AutoresetMode) -> None:
    """With states that are all equal, the count is the number t of the step in its episode."""
    envs = OracleVectorEnv(3, mode)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(*spaces, PolicyConfig(hidden=(2,)), torch.Generator().manual_seed(0))
    visits, episodes, longest = visits_of(INTEGERS), 0, 0
    for number in range(3):
        rollout = collect(envs, policy, 120, np.random.default_rng(number), seed=number)
        batch = rollout.transitions(lambda action: action)
        episode, t = batch.next_obs[:].T.astype(np.int64)
        equal = dataclasses.replace(batch, next_obs=np.zeros((len(t), 2), np.int64))
        counts, rows = visits.count(equal)
        assert counts.tolist() == t.tolist()
        visits.learn(equal, rows)
        episodes, longest = episodes + len(set(episode)), max(longest, t.max())
    assert episodes > 30
    assert longest > 8


def test_the_count_is_carried_in_the_state() -> None:
    visits, other = visits_of(INTEGERS, steps=4), visits_of(INTEGERS, steps=4)
    one = np.ones((3, 2), np.int64)
    batch = Transitions(one, np.zeros(3), one, np.zeros(3, np.int64), np.zeros(3, bool))
    visits.learn(batch, visits.count(batch)[1])
    other.load_state_dict(visits.state_dict())
    assert other.count(batch)[0].tolist() == [4, 4, 4]  # the last four
    assert visits.state_dict()["memory._extra_state"]["keys"].shape == (1, 4)
    other.memory.forget([0])
    assert other.count(batch)[0].tolist() == [1, 2, 3]


def test_rows_of_a_replay_buffer_are_refused() -> None:
    one = np.ones((2, 2), np.int64)
    with pytest.raises(UserError, match="on-policy"):
        visits_of(INTEGERS).count(Transitions(one, np.zeros(2), one, np.full(2, -1)))


def test_ranks_by_hand() -> None:
    segment, key, number = torch.tensor(
        [[0, 0, 0, 1, 0, 1], [7, -7, 7, 7, 7, 7], [0, 1, 2, 0, 3, 1]]
    )
    assert rank_in_window(segment, key, number, 100).tolist() == [1, 1, 2, 1, 3, 2]
    assert rank_in_window(segment, key, number, 2).tolist() == [1, 1, 1, 1, 2, 2]


def test_integers_and_images_are_exact_and_floats_are_not() -> None:
    nested = Dict({"a": Discrete(3), "b": Tuple([MultiBinary(2), MultiDiscrete([2, 3])])})
    assert is_exact(nested)
    assert is_exact(Dict({"image": Box(0, 9, (7, 7, 3), np.uint8), "mission": Text(5)}))
    assert not is_exact(Dict({"a": Discrete(3), "b": FLOATS}))
    assert visits_of(nested).observed is None
    assert visits_of(IMAGE).observed is None
    assert visits_of(FLOATS).observed is not None


def counts_of(visits: VisitCounts, next_obs: Any) -> list[int]:
    n = len(next_obs)
    return visits.count(Transitions(next_obs, np.zeros(n), next_obs))[0].tolist()


def test_images_are_compared_by_their_newest_frame() -> None:
    visits = visits_of(IMAGE)
    frames = np.zeros((4, 2, 36, 36), np.uint8)
    frames[1, 0] = 5  # an older frame
    frames[2, 1, 35, 35] = 1  # one pixel of the newest
    frames[3, 1, 35, 34] = 1  # another one
    assert counts_of(visits, frames) == [1, 2, 1, 1]
    assert counts_of(visits, Rows(frames, np.array([2, 0, 2, 3]))) == [1, 1, 2, 1]


def test_floats_are_compared_by_cells_of_the_learned_moments() -> None:
    visits = visits_of(FLOATS, cell=0.5)
    near = np.float32([[0.1, 10], [0.2, 10], [0.1, 10], [-0.0, 10], [0.0, 10]])
    assert counts_of(visits, near) == [1, 1, 2, 1, 2]  # exact before the first training
    # Mean (0, 10), standard deviation (1, 100).
    seen = np.float32([[1, 110], [-1, -90], [1, -90], [-1, 110]])
    ended = np.array([False, False, False, True])
    batch = Transitions(seen, np.zeros(4), seen, None, ended)
    visits.learn(batch, visits.count(batch)[1])
    points = np.float32(
        [[0.1, 10], [0.4, 10], [0.6, 10], [-0.1, 10], [0.1, 59], [0.1, 61], [0.1, 9], [1e30, 0]]
    )
    assert counts_of(visits, points) == [1, 2, 1, 1, 3, 1, 1, 1]


def test_floats_of_the_last_batch_are_found_again_although_the_cells_move() -> None:
    """An episode of one environment over three batches, each seen again in the next."""
    visits = visits_of(FLOATS, cell=0.25)
    rng = np.random.default_rng(0)
    path = rng.normal(size=(3, 50, 2)).astype(np.float32) * np.float32([[[1]], [[2]], [[4]]])
    for number in range(3):
        states = path[number]
        batch = Transitions(states, np.zeros(50), states)
        visits.learn(batch, visits.count(batch)[1])
        assert min(counts_of(visits, states)) >= 2


def test_hashes_of_different_states_differ() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(60)] * 3), -1).reshape(-1, 3)
    keys = visits_of(Box(0, 59, (3,), np.int64)).keys(torch.from_numpy(grid))
    assert len(keys.unique()) == 60**3
    # The published first outputs of SplitMix64 with the seed 0.
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [value % 2**64 for value in multipliers(3).tolist()] == first


def test_other_environments_keep_their_memory() -> None:
    visits = visits_of(INTEGERS)
    one = np.ones((2, 2), np.int64)
    both = Transitions(one, np.zeros(2), one, np.array([0, 2]), np.zeros(2, bool))
    visits.learn(both, visits.count(both)[1])
    alone = Transitions(one, np.zeros(2), one, np.array([0, 0]), np.zeros(2, bool))
    assert visits.count(alone)[0].tolist() == [2, 3]
    visits.learn(alone, visits.count(alone)[1])
    assert visits.count(both)[0].tolist() == [4, 2]
