"""Actions as vectors, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text

from emi.errors import UserError
from emi.intrinsic.actions import ActionVectors


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (Discrete(3), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (Discrete(3, start=5), [[5], [6]], [[1, 0, 0], [0, 1, 0]]),
        (MultiDiscrete([2, 3]), [[1, 0], [0, 2]], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (MultiDiscrete([3, 2, 2]), [[1, 0, 1]], [[0, 1, 0, 1, 0, 0, 1]]),
        (MultiDiscrete([2, 3], start=[-1, 7]), [[0, 8]], [[0, 1, 0, 1, 0]]),
        (MultiDiscrete(np.array([[2, 1], [1, 2]])), [[[1, 0], [0, 0]]], [[0, 1, 1, 1, 1, 0]]),
        (MultiBinary(3), [[1, 0, 0]], [[0, 1, 1, 0, 1, 0]]),
        (MultiBinary((1, 2)), [[[0, 1]], [[1, 1]]], [[1, 0, 0, 1], [0, 1, 0, 1]]),
    ],
    ids=str,
)
def test_one_hot_vectors_of_the_groups_are_concatenated(
    space: Space, action: list, expected: list
) -> None:
    vectors = ActionVectors(space)
    assert vectors.size == len(expected[0])
    # The dtype of the space, and those in which Stable-Baselines3 and other trainers pass actions.
    for dtype in (space.dtype, np.int64, np.float32):
        found = vectors(torch.as_tensor(np.array(action, dtype)))
        assert found.dtype == torch.float32
        assert found.tolist() == expected


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 3]), MultiBinary(2)], ids=str)
def test_a_row_for_each_action(space: Space, n: int) -> None:
    action = np.zeros((n, *(space.shape or ())), space.dtype)
    vectors = ActionVectors(space)
    assert vectors(torch.as_tensor(action)).shape == (n, vectors.size)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (Discrete(3), [3]),
        (Discrete(3), [-1]),
        (Discrete(3), [[0, 0, 0]]),  # three entries
        (MultiDiscrete([2, 3]), [[2, 0]]),  # no choice of the first group: not one of the second
        (MultiDiscrete([2, 3]), [[0, -1]]),
        (MultiDiscrete([2, 3]), [0]),  # one entry, for both groups
        (MultiDiscrete([3, 2]), [[1, 2]]),
        (MultiBinary(2), [[0, 2]]),
        (MultiBinary(2), [[0, 1, 1]]),
    ],
    ids=str,
)
def test_an_action_of_another_space_is_an_error(space: Space, action: list) -> None:
    with pytest.raises(RuntimeError):
        ActionVectors(space)(torch.as_tensor(action))


def test_vectors_are_no_state() -> None:
    """Checkpoints hold weights, not facts about the spaces."""
    for space in (Box(-1, 1, (2,)), Discrete(3), MultiDiscrete([2, 3]), MultiBinary(2)):
        assert not ActionVectors(space).state_dict()


@pytest.mark.parametrize("space", [Dict({"a": Discrete(2)}), Text(3)], ids=str)
def test_other_spaces_raise_a_user_error(space: Space) -> None:
    with pytest.raises(
        UserError,
        match=r"^actions must be a Box, Discrete, MultiDiscrete or MultiBinary space, got \w+\(",
    ):
        ActionVectors(space)
