"""How methods read observations: nested spaces, channels, normalisation, and bad numbers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Text,
    Tuple,
    flatten,
)

import emi
from emi.batch import Rows, Transitions
from emi.intrinsic.contract import find_method
from emi.intrinsic.reading import Reading
from emi.intrinsic.table import METHODS

ACTIONS = Discrete(3)
READERS = [name for name, entry in METHODS.items() if entry.home and name != "noise"]
NESTED = Dict(
    {
        "place": Box(-1, 1, (2,), np.float32),
        "kind": Discrete(3, start=1),
        "more": Tuple([MultiBinary(2), MultiDiscrete([2, 3])]),
    }
)


def rows_of(space: Space, n: int, seed: int = 0) -> Any:
    """n observations as vector environments return them: a column for each entry."""
    space.seed(seed)
    if isinstance(space, Dict):
        return {key: rows_of(inner, n, seed + i) for i, (key, inner) in enumerate(space.items())}
    if isinstance(space, Tuple):
        return tuple(rows_of(inner, n, seed + i) for i, inner in enumerate(space.spaces))
    return np.stack([np.asarray(space.sample()) for _ in range(n)])


def batch_of(space: Space, n: int = 64, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions(rows_of(space, n, seed), rng.integers(0, 3, n), rows_of(space, n, seed + 50))


def built(name: str, space: Space, **options: Any) -> emi.IntrinsicReward:
    method = find_method(name).build(space, ACTIONS, 0, **options)
    assert method is not None
    return method


def test_nested_observations_are_flattened_in_the_order_of_the_space() -> None:
    read = Reading(NESTED)(batch_of(NESTED, 5))
    assert read.obs.shape == (5, 2 + 3 + 2 + 5)
    NESTED.seed(0)
    one = NESTED.sample()
    row = {
        "place": one["place"][None],
        "kind": np.array([one["kind"]]),
        "more": tuple(part[None] for part in one["more"]),
    }
    found = Reading(NESTED)(Transitions(row, [0], row)).obs[0]
    entries = [flatten(NESTED[key], one[key]) for key in NESTED.spaces]
    np.testing.assert_array_equal(found, np.concatenate(entries))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "space",
    [
        NESTED,
        Tuple([Box(-1, 1, (2,)), Discrete(2)]),
        Discrete(4),
        MultiDiscrete([2, 3]),
        MultiBinary(3),
        Box(0, 255, (7, 7, 3), np.uint8),
        Dict({"mission": Text(5), "image": Box(0, 255, (7, 7, 3), np.uint8)}),
    ],
    ids=["dict", "tuple", "discrete", "multidiscrete", "multibinary", "minigrid", "text"],
)
def test_every_method_reads_every_space(name: str, space: Space) -> None:
    method, batch = built(name, space), batch_of(space, 40)
    bonus, scalars = emi.score_and_learn(method, batch)
    assert bonus.shape == (40,)
    assert torch.isfinite(bonus).all()
    assert scalars
    emi.diagnose(method, batch)


@pytest.mark.parametrize("channels", [2, 4, 5, 8])
@pytest.mark.parametrize("name", [name for name in READERS if name != "vime"])
def test_all_channels_of_an_image_are_read(name: str, channels: int) -> None:
    """Planes that are not known to be frames, such as RGBA, are not cut."""
    space = Box(0, 255, (64, 64, channels), np.uint8)
    method, batch = built(name, space), batch_of(space, 12)
    if name in ("ex2", "simhash", "ae-simhash"):  # the first bonus of these is constant
        assert method.reading.space is space  # type: ignore[union-attr]
        entries = method.net.pixels if name == "ae-simhash" else None  # type: ignore[union-attr]
        entries = entries or getattr(method, "entries", None) or method.flat[0]  # type: ignore[union-attr]
        assert entries.channels == channels
        return
    changed = {"obs": np.array(batch.obs), "next_obs": np.array(batch.next_obs)}
    for column in changed.values():
        column[..., :-1] = 255 - column[..., :-1]
    other = Transitions(changed["obs"], batch.action, changed["next_obs"])
    assert not torch.equal(method.reward(batch), method.reward(other))


def test_stacks_of_colour_frames_and_float_images_use_convolutions() -> None:
    for space in (
        Box(0, 255, (4, 84, 84, 3), np.uint8),
        Box(0, 1, (84, 84, 3), np.float32),
        emi.stacked(Box(0, 255, (4, 84, 84, 3), np.uint8), 4),
    ):
        method = emi.EMI(space, ACTIONS)
        assert sum(p.numel() for p in method.parameters()) < 2_000_000
        assert emi.score_and_learn(method, batch_of(space, 4))[0].shape == (4,)


def test_declared_stacks_are_cut_to_the_newest_frame() -> None:
    space = Box(0, 255, (4, 40, 40), np.uint8)
    batch = batch_of(space, 6)
    older = np.array(batch.next_obs)
    older[:, :3] = 0
    other = Transitions(batch.obs, batch.action, older)
    whole, newest = (emi.EMI(s, ACTIONS) for s in (space, emi.stacked(space, 4)))
    assert not torch.equal(whole.reward(batch), whole.reward(other))
    assert torch.equal(newest.reward(batch), newest.reward(other))


@pytest.mark.parametrize("place", ["obs", "action", "next_obs"])
@pytest.mark.parametrize("name", READERS)
def test_a_bad_number_changes_nothing(name: str, place: str) -> None:
    space, actions = Box(-np.inf, np.inf, (3,)), Box(-1, 1, (2,))
    method = find_method(name).build(space, actions, 0)
    assert method is not None
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.normal(size=(40, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, (40, 2)).astype(np.float32),
        "next_obs": rng.normal(size=(40, 3)).astype(np.float32),
    }
    emi.score_and_learn(method, Transitions(**columns))
    before = copy.deepcopy(method.state_dict())
    columns[place][17, 1] = np.nan
    words = {"obs": "observation", "action": "action", "next_obs": "successor"}
    bad = Transitions(**columns)
    pool = np.concatenate([columns["obs"], columns["next_obs"]])
    lazy = Transitions(Rows(pool, np.arange(40)), columns["action"], Rows(pool, np.arange(40, 80)))
    tensors = Transitions(*(torch.as_tensor(column) for column in columns.values()))
    for batch in (bad, lazy, tensors):
        for way in (method.reward, method.learn, lambda b: emi.score_and_learn(method, b)):
            with pytest.raises(emi.UserError, match=rf"the {words[place]}.* of row 17 is NaN"):
                way(batch)
    assert_equal_states(before, method.state_dict())


def assert_equal_states(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal_states(a[key], b[key])
    elif isinstance(a, list | tuple):
        for x, y in zip(a, b, strict=True):
            assert_equal_states(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("name", ["emi", "icm", "ex2"])
def test_bytes_do_not_saturate_the_first_layer(name: str) -> None:
    """Of raw bytes, such as the memory of an Atari console, 99 % of tanh units would be ± 1."""
    space = Box(0, 255, (128,), np.uint8)
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (2, 600, 128)).astype(np.uint8)
    batch = Transitions(obs[0], rng.integers(0, 3, 600), obs[1])

    def saturated(normalize: bool) -> float:
        method = find_method(name).build(space, ACTIONS, 0, normalize=normalize)
        assert method is not None
        method.learn(batch)
        if name == "ex2":
            assert isinstance(method, emi.EX2)
            x = method.inputs(method.rows(torch.as_tensor(obs[0]), torch.zeros(600)))
            W = method.weights.detach()[: 2 * 129 * 32].reshape(2, 129, 32)[0, :128]
            return (torch.tanh(x @ W).abs() > 0.99).float().mean().item()
        read = method.reading(batch).obs  # type: ignore[operator, union-attr]
        first = method.phi[:3](torch.as_tensor(read))  # type: ignore[index, union-attr]
        return (first.abs() > 0.99).float().mean().item()

    assert saturated(normalize=False) > 0.9
    assert saturated(normalize=True) < 0.25


def test_one_entry_can_be_selected() -> None:
    inner = NESTED["more"][0]  # type: ignore[index]
    method = emi.SelectObservation(emi.RND(inner, ACTIONS), "more", 0)
    batch = batch_of(NESTED, 20)
    alone = Transitions(batch.obs["more"][0], batch.action, batch.next_obs["more"][0])
    expected, _ = emi.score_and_learn(emi.RND(inner, ACTIONS), alone)
    assert torch.equal(emi.score_and_learn(method, batch)[0], expected)
    with pytest.raises(emi.UserError, match=r"have no entry \['les'\]"):
        emi.SelectObservation(emi.RND(inner, ACTIONS), "les").reward(batch)


def test_moments_are_frozen_while_a_batch_is_scored() -> None:
    space = Box(-np.inf, np.inf, (1,))
    method = emi.EMI(space, ACTIONS)
    first = Transitions(np.array([[0.0], [4.0]]), [0, 1], np.array([[6.0], [6.0]]))
    moments = method.reading.observed
    assert moments is not None
    assert method.reading(first).next_obs.tolist() == [[2], [2]]  # by its own moments
    method.reward(first)
    assert moments.count == 0
    method.learn(first)
    assert (moments.count, moments.mean, moments.variance) == (2, 2, 4)
    second = Transitions(np.array([[8.0], [8.0]]), [0, 1], np.array([[2.0], [2.0]]))
    assert method.reading(second).obs.tolist() == [[3], [3]]  # by those of the first batch
    assert "reading.observed.mean" in method.state_dict()
    assert not any(
        "reading" in key for key in emi.EMI(space, ACTIONS, normalize=False).state_dict()
    )
