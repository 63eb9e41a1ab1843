"""Which Box a space becomes, and how its observations are flattened."""

from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from emi.errors import UserError
from emi.spaces import choose_entry, flat_space, flatten_rows, is_image, readable

IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
NESTED = spaces.Dict(
    {
        # The order is that of the space: Gymnasium sorts the keys of a plain dict.
        "b": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
        "a": spaces.Box(-2.0, 2.0, (1, 2)),
        "name": spaces.Text(5),
        "c": spaces.Dict({"bytes": spaces.Box(0, 255, (2,), np.uint8), "title": spaces.Text(3)}),
        "d": spaces.MultiDiscrete([2, 3]),
    }
)
# In the order a, b.0, b.1, c.bytes, d.
OBSERVATION = {
    "b": (6, np.array([1, 0], np.int8)),
    "a": np.array([[0.5, -1.5]], np.float32),
    "name": "ab",
    "c": {"bytes": np.array([0, 255], np.uint8), "title": "x"},
    "d": np.array([1, 2]),
}
VECTOR = [0.5, -1.5, 0, 1, 0, 1, 0, -1, 1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("space", "obs", "vector"),
    [
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete([[2], [2]], start=[[3], [0]]), [[4], [0]], [0, 1, 1, 0]),
        (spaces.MultiBinary((2, 2)), [[1, 0], [0, 1]], [1, 0, 0, 1]),
        (spaces.Box(-9.0, 9.0, (2, 1)), [[3.0], [4.0]], [3, 4]),
        (spaces.Box(0.0, 9.0, ()), 3.0, [3]),
        (spaces.Box(0, 255, (3,), np.uint8), [0, 255, 51], [-1, 1, -0.6]),
        (spaces.Box(-4, 4, (1, 2), np.int64), [[-4, 2]], [-1, 0.5]),
        (spaces.Box(7, 7, (1,), np.int64), [7], [0]),
        (spaces.Box(0, 255, (1, 1, 2), np.uint8), [[[0, 255]]], [-1, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (1, 0), [0, 1, 1, 0]),
        (NESTED, OBSERVATION, VECTOR),
    ],
)
def test_an_observation_becomes_a_vector(space: Space, obs: Any, vector: list[float]) -> None:
    found = flatten_rows(space, obs)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vector, atol=1e-7)
    assert found in flat_space(space)


def test_bounds_of_the_vector() -> None:
    box = flat_space(spaces.Tuple([spaces.Box(-3, 5, (1, 1)), spaces.Box(0, 9, (1,), np.int8)]))
    assert (box.low.tolist(), box.high.tolist(), box.dtype) == ([-3, -1], [5, 1], np.float32)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-np.inf, np.inf, np.int16), (0, 2**31 - 1, np.int32), (-(2**63), 0, np.int64)],
)
def test_integers_without_bounds_are_not_scaled(low: float, high: float, dtype: Any) -> None:
    """The limits of a wide type stand for "no bound": scaled by them, everything would be 0."""
    space = spaces.Box(low, high, (2,), dtype)
    assert flatten_rows(space, np.array([7, 0], dtype)).tolist() == [7, 0]


@pytest.mark.parametrize(
    "space",
    [
        *(NESTED, spaces.Discrete(4), spaces.MultiDiscrete([[2, 3]]), spaces.MultiBinary((2, 2))),
        *(spaces.Box(0, 9, (2, 3), np.int32), spaces.Box(-1.0, 1.0, (2, 1)), IMAGE),
        spaces.Dict({"only": IMAGE, "text": spaces.Text(4)}),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_batch_is_flattened_like_its_rows(space: Space) -> None:
    space.seed(0)
    rows = [space.sample() for _ in range(3)]
    expected = np.stack([flatten_rows(space, row) for row in rows])
    batch = _stacked(space, rows)
    np.testing.assert_array_equal(flatten_rows(space, batch), expected)
    assert expected.shape == (3, *flat_space(space).shape)
    # What was flattened stays as it is.
    box = flat_space(space)
    assert flat_space(box) == box
    np.testing.assert_array_equal(flatten_rows(box, expected), expected)
    if not any(isinstance(part, spaces.Text) for part in getattr(space, "values", list)()):
        assert _shapes(batch) == _shapes(batch_space(space, 3).sample())


def _stacked(space: Space, rows: list[Any]) -> Any:
    """A batch, as vector environments return it."""
    if isinstance(space, spaces.Dict):
        return {key: _stacked(space[key], [row[key] for row in rows]) for key in space}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(each, [row[i] for row in rows]) for i, each in enumerate(space))
    return np.stack([np.asarray(row) for row in rows])


def _shapes(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _shapes(part) for key, part in batch.items()}
    return [_shapes(part) for part in batch] if isinstance(batch, tuple) else batch.shape


def test_vectors_of_floats_and_images_stay_as_they_are() -> None:
    for space in (spaces.Box(-1.0, 1.0, (3,), np.float64), IMAGE):
        assert flat_space(space) is space
        sample = space.sample()
        assert flatten_rows(space, sample) is sample


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        *(((36, 36), True), ((35, 36), False), ((7, 7, 3), False), ((84, 84, 3), True)),
        *(((4, 52, 52), True), ((4, 52, 35), False), ((36, 36, 36), True), ((36, 36, 1), True)),
        *(((128,), False), ((2, 84, 84, 3), False)),
    ],
)
def test_images_have_a_smallest_size(shape: tuple[int, ...], image: bool) -> None:
    assert is_image(spaces.Box(0, 255, shape, np.uint8)) is image
    assert not is_image(spaces.Box(0, 255, shape, np.int16))


def test_text_is_left_out() -> None:
    assert readable(NESTED).left_out == ("c.title", "name")
    assert readable(spaces.Discrete(2)).left_out == ()
    single = readable(spaces.Dict({"image": IMAGE, "mission": spaces.Text(9)}))
    assert (single.box, single.left_out) == (IMAGE, ("mission",))
    for nothing in (spaces.Text(3), spaces.Dict({"a": spaces.Text(3)}), spaces.Dict({})):
        with pytest.raises(UserError, match=r"have no entry that networks can read$"):
            flat_space(nothing)


def test_an_image_among_other_entries_must_be_chosen() -> None:
    space = spaces.Dict({"x": spaces.Dict({"image": IMAGE, "direction": spaces.Discrete(4)})})
    with pytest.raises(UserError) as caught:
        flat_space(space)
    assert str(caught.value) == (
        "the observations hold an image of 84×84×3 in 'x.image' and other entries, which no network"
        " here reads together: choose one of 'x.direction', 'x.image' with --observation"
    )
    chosen, pick = choose_entry(space, "x.image")
    assert chosen is IMAGE
    sample = space.sample()
    assert pick(sample) is sample["x"]["image"]


def test_an_entry_is_chosen_by_its_key() -> None:
    space, pick = choose_entry(NESTED, "b")
    assert (space, pick(OBSERVATION)) == (NESTED["b"], OBSERVATION["b"])
    space, pick = choose_entry(NESTED, "b.0")
    assert (space, pick(OBSERVATION)) == (spaces.Discrete(3, start=5), 6)
    with pytest.raises(UserError) as caught:
        choose_entry(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), "c")
    assert str(caught.value) == ("the observations have no entry 'c': choose one of 'a', 'b'")
    with pytest.raises(
        UserError, match=r"Discrete\(2\) have no entries: leave out --observation c"
    ):
        choose_entry(spaces.Discrete(2), "c")


def test_what_cannot_be_read_is_one_sentence() -> None:
    graph = spaces.Sequence(spaces.Discrete(2))
    with pytest.raises(
        UserError, match=r"^observations of the type Sequence cannot be read: only "
    ):
        flat_space(graph)
    with pytest.raises(UserError, match=r"Sequence in 'g' .*choose another entry with"):
        flat_space(spaces.Dict({"g": graph, "a": spaces.Discrete(2)}))


@pytest.mark.parametrize("value", [2, -1])
def test_a_number_outside_the_space_is_not_hidden(value: int) -> None:
    with pytest.raises(UserError, match=rf"^the observation {value} is not in Discrete\(2\)$"):
        flatten_rows(spaces.Discrete(2), value)
