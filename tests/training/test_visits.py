"""The record of visited states: exact counts, bounded size, the same however slots were merged."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from emi.agent.rollout import Rollout
from emi.envs.positions import Map
from emi.errors import UserError
from emi.training import visits
from emi.training.presets import resolve
from emi.training.trainer import Trainer
from emi.training.visits import SLOTS, Distinct, Visits, widest

SPACE = Box(-np.inf, np.inf, (3,), np.float32)
SMALL = {"steps": 800, "steps_per_iteration": 100, "num_envs": 2, "threads": 1, "coverage": True}


def rollout_of(obs: np.ndarray, position: np.ndarray | None = None) -> Rollout:
    """A rollout of one environment that reached the observations [n, ...], from the first one."""
    n = len(obs)
    no = np.zeros((n, 1), bool)
    return Rollout(
        pool=np.concatenate([obs[:1], obs]),
        index=np.arange(n)[:, None],
        next_index=np.arange(1, n + 1)[:, None],
        action=np.zeros((n, 1, 1)),
        reward=np.zeros((n, 1)),
        terminated=no,
        truncated=no,
        clock=np.arange(n)[:, None],
        valid=~no,
        episode_returns=np.zeros(0),
        position=None if position is None else position[:, None],
    )


def nowhere() -> None:
    return None


def test_a_known_walk_is_counted_exactly() -> None:
    """A 3 × 2 grid with a wall at (1, 1): right, right, up, down, against the wall, left."""
    walk = np.array([[1, 0], [2, 0], [2, 1], [2, 0], [2, 0], [1, 0]], float)
    free = np.array([[True, True], [True, False], [True, True]])
    record = Visits(SPACE)
    obs = np.arange(18, dtype=np.float32).reshape(6, 3)
    bonus = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    numbers = record.add(
        rollout_of(obs, walk), bonus, lambda: Map((0.0, 0.0), (1.0, 1.0), free, ("x", "y"))
    )
    arrays = record.arrays()
    assert arrays["visits"].tolist() == [[[0, 0], [2, 0], [3, 1]]]
    assert arrays["bonus"].tolist() == [[[0, 0], [7, 0], [11, 3]]]
    np.testing.assert_array_equal(arrays["free"], free)
    assert bytes(arrays["names"]) == b"x\ny"
    assert arrays["steps"].tolist() == [6]
    assert numbers["coverage/cells"] == 3
    p = np.array([2, 3, 1]) / 6
    assert numbers["coverage/entropy"] == pytest.approx(-(p * np.log(p)).sum())
    # A second batch adds to it: the cell above the start is new.
    numbers = record.add(rollout_of(obs[:1], np.array([[0.0, 1.0]])), np.array([9.0]), nowhere)
    assert record.arrays()["visits"].sum(0).tolist() == [[0, 1], [2, 0], [3, 1]]
    assert record.arrays()["steps"].tolist() == [6, 7]
    assert numbers["coverage/cells"] == 4


def test_the_upper_border_of_a_map_belongs_to_its_last_cells() -> None:
    record = Visits(SPACE)
    corner = np.array([[100.0, 100.0], [0.0, 99.0]])
    grid = Map((0.0, 0.0), (50.0, 50.0), np.ones((2, 2), bool))
    record.add(rollout_of(np.zeros((2, 3), np.float32), corner), np.zeros(2), lambda: grid)
    assert record.arrays()["visits"].tolist() == [[[0, 1], [0, 1]]]


def test_the_widest_columns_are_chosen_once() -> None:
    record = Visits(SPACE)
    obs = np.array([[0, 5, 0], [0.1, 5, 9]], np.float32)
    record.add(rollout_of(obs), np.zeros(2), nowhere)
    later = np.array([[0.1, 99, 9]], np.float32)
    record.add(rollout_of(later), np.zeros(1), nowhere)
    assert bytes(record.arrays()["names"]) == b"observation 0\nobservation 2"
    assert widest(np.array([[0.0], [1.0]])) == (0,)


@pytest.mark.parametrize("axes", [(0, 3), (0, 1, 2)])
def test_axes_must_exist(axes: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="coverage_axes must be one or two columns of a vector"):
        Visits(SPACE, axes)


def test_the_record_does_not_depend_on_when_slots_were_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a record computed from all batches at once: 150 iterations are 38 slots of four."""
    monkeypatch.setattr(visits, "STATES", 32)
    rng = np.random.default_rng(0)
    batches = [
        (1 + 0.1 * k) * rng.normal(size=(rng.integers(20, 40), 3)).astype(np.float32)
        for k in range(150)
    ]
    record = Visits(SPACE, (0, 2))
    for k, obs in enumerate(batches):
        record.add(rollout_of(obs), np.full(len(obs), float(k)), nowhere)
    arrays = record.arrays()
    ends = np.cumsum([len(obs) for obs in batches])
    np.testing.assert_array_equal(arrays["steps"], [*ends[3::4], ends[-1]])
    assert len(arrays["visits"]) == 38
    per_slot = arrays["visits"].sum((1, 2))
    np.testing.assert_array_equal(per_slot, np.diff([0, *ends[3::4], ends[-1]]))
    expected = [
        sum(k * len(batches[k]) for k in range(s, min(s + 4, 150))) for s in range(0, 150, 4)
    ]
    np.testing.assert_allclose(arrays["bonus"].sum((1, 2)), expected)
    # Sampled state p is of iteration p mod 4 of its slot; the last slot has two iterations.
    assert len(arrays["states"]) == 37 * 32 + 16
    rows, values = arrays["states"].reshape(-1, 3), arrays["state_bonus"]
    for slot, k in ((0, 0), (0, 3), (20, 82), (37, 149)):
        own = rows[(arrays["state_slot"] == slot) & (values == k)]
        places = np.arange(32)[k % 4 :: 4]
        expected_rows = batches[k][((places + 0.5) * len(batches[k]) / 32).astype(int)]
        np.testing.assert_array_equal(own, expected_rows)


def test_the_size_is_bounded() -> None:
    record = Visits(Box(-1, 1, (2_000,), np.float32))
    obs = np.random.default_rng(0).normal(size=(50, 2_000)).astype(np.float32)
    for k in range(3 * SLOTS):
        record.add(rollout_of((k + 1) * obs), np.zeros(50), nowhere)
    assert sum(array.nbytes for array in record.arrays().values()) < 22_000_000


def test_distinct_frames() -> None:
    images = Box(0, 255, (1, 40, 40), np.uint8)
    record = Visits(images)
    frames = np.zeros((5, 1, 40, 40), np.uint8)
    frames[1, 0, 3, 3] = frames[4, 0, 3, 3] = 1
    frames[2, 0, 0, 0] = 255
    assert record.add(rollout_of(frames), np.zeros(5), nowhere) == {"coverage/frames": 3}
    assert record.add(rollout_of(frames[:2]), np.zeros(2), nowhere) == {"coverage/frames": 3}
    assert record.arrays()["frames"].tolist() == [3, 3]
    assert "visits" not in record.arrays()


def test_many_frames_are_estimated() -> None:
    distinct = Distinct()
    hashes = np.random.default_rng(0).integers(0, 2**64, 200_000, np.uint64)
    for part in np.split(np.concatenate([hashes, hashes]), 40):
        distinct.add(part)
    assert distinct.count == pytest.approx(200_000, rel=0.03)  # 0.8 % is one standard error


@pytest.mark.parametrize("env", ["SparseHalfCheetah", "gym:FrozenLake-v1", "BoxImage"])
def test_recording_changes_nothing_else_and_resumes_bit_for_bit(env: str) -> None:
    sizes = SMALL | ({"steps": 300} if env == "BoxImage" else {})
    config = resolve(env, "rnd", sizes)
    plain = Trainer(resolve(env, "rnd", sizes | {"coverage": False}))
    whole, first, second = Trainer(config), Trainer(config), Trainer(config)
    for k in range(config.iterations):
        expected = plain.iterate().metrics
        metrics = whole.iterate().metrics
        shared = {name: value for name, value in metrics.items() if name in expected}
        np.testing.assert_equal(shared, expected)
        assert {name.split("/")[0] for name in metrics.keys() - expected.keys()} == {"coverage"}
        if k == 1:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
        resumed = (first if k < 2 else second).iterate().metrics
        if k != 1:
            np.testing.assert_equal(resumed, metrics)
        else:  # `second` starts after one iteration, and repeats the second one
            np.testing.assert_equal(second.iterate().metrics, metrics)
    assert whole.visits is not None
    assert second.visits is not None
    for name, array in whole.visits.arrays().items():
        np.testing.assert_array_equal(second.visits.arrays()[name], array)
    for trainer in (plain, whole, first, second):
        trainer.close()


def test_chosen_columns_have_no_map() -> None:
    """The screen of NoisyTV, not the grid."""
    trainer = Trainer(resolve("NoisyTV", "trpo", SMALL | {"coverage_axes": (2, 3)}))
    trainer.iterate()
    assert trainer.visits is not None
    arrays = trainer.visits.arrays()
    assert bytes(arrays["names"]) == b"observation 2\nobservation 3"
    assert "free" not in arrays
    assert arrays["visits"].sum() == 100
    trainer.close()
    grid = Trainer(resolve("NoisyTV", "trpo", SMALL))
    grid.iterate()
    assert grid.visits is not None
    assert grid.visits.arrays()["free"].shape == (21, 21)
    grid.close()


def test_the_cheetah_is_where_its_centre_of_mass_is() -> None:
    trainer = Trainer(resolve("SparseHalfCheetah", "trpo", SMALL))
    trainer.iterate()
    assert trainer.visits is not None
    assert trainer.last_batch is not None
    rollout, _ = trainer.last_batch
    arrays = trainer.visits.arrays()
    x = np.asarray(rollout.pool)[rollout.flat(rollout.next_index), 17]
    low = arrays["first"][0] * 2.0 ** arrays["exponent"][0]
    high = low + arrays["visits"].shape[1] * 2.0 ** arrays["exponent"][0]
    assert low <= x.min() <= x.max() < high
    assert b"centre of mass" in bytes(arrays["names"])
    trainer.close()


def changed(state: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    return {**state, "visits": {**state["visits"], key: value}}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("iterations", 7, "visits.iterations is 7"),
        ("count", np.zeros((2, 2), np.int64), "visits.count is a tensor or array"),
        ("bonus", None, "visits.bonus is None"),
        ("grid", [[0, 0], [0, 0], [1, 10**9]], "visits.grid is 1000000000"),
        ("grid", "x", "visits.grid is 'x'"),
        ("axes", [0, 10**6], "visits.axes is 1000000"),
        ("names", [7], "visits.names is 7"),
        ("hashes", np.array([2, 1], np.uint64), "visits.hashes is a tensor or array"),
        ("free", np.ones((1, 1), np.int8), "visits.free is a tensor or array"),
    ],
)
def test_a_forged_state_is_refused(key: str, value: Any, sentence: str) -> None:
    config = resolve("gym:MountainCarContinuous-v0", "trpo", SMALL)
    trainer = Trainer(config)
    trainer.iterate()
    state = copy.deepcopy(trainer.state_dict())
    with pytest.raises(UserError, match=sentence):
        trainer.load_state_dict(changed(state, key, value))
    trainer.load_state_dict(state)
    trainer.close()


def test_a_state_with_infinite_numbers_is_refused() -> None:
    trainer = Trainer(resolve("gym:MountainCarContinuous-v0", "trpo", SMALL))
    trainer.iterate()
    state = copy.deepcopy(trainer.state_dict())
    state["visits"]["unit"][0, 0] = np.inf
    with pytest.raises(UserError, match=r"visits\.unit is .*, expected finite numbers"):
        trainer.load_state_dict(state)
    trainer.close()
