"""What every method promises, on vectors and images, with continuous and discrete actions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from known_unknown import CONTINUOUS, DISCRETE, IMAGE, VECTOR, WORLDS, Kind, auc, transitions

from emi.batch import Rows, Transitions
from emi.runs.checkpoint import load_latest, save
from emi.intrinsic import (
    EMIConfig,
    EX2Config,
    ICMConfig,
    IntrinsicConfig,
    Method,
    RNDConfig,
    SimHashConfig,
    VIMEConfig,
    score_and_learn,
    make_intrinsic,
)

# Small enough to learn a few hundred transitions in a moment.
METHODS: dict[str, IntrinsicConfig] = {
    "emi": EMIConfig(minibatch=32),
    "emi-d": EMIConfig(reward="diversity", minibatch=64, lambda_info=0.05, bandwidth=1.0),
    "ex2": EX2Config(
        updates=5,
        first_updates=5,
        min_replay=200,
        minibatch=32,
        learning_rate=1e-3,
        kl_weight=1e-3,
    ),
    "icm": ICMConfig(minibatch=64, learning_rate=1e-3),
    "rnd": RNDConfig(features=32, hidden=(32,), learning_rate=1e-3),
    "simhash": SimHashConfig(),
    "ae-simhash": SimHashConfig(
        autoencoder=True,
        key_bits=8,
        ae_filters=4,
        ae_hidden=32,
        ae_code=32,
        ae_vector_code=16,
        ae_updates=5,
        ae_every=2,
    ),
    "vime": VIMEConfig(updates=100, learning_rate=1e-2, min_replay=100),
}
# Those that need more steps before they can rank.
THOROUGH: dict[str, dict[str, Any]] = {
    "ex2": {"updates": 50, "first_updates": 50},
    "ae-simhash": {"ae_updates": 60, "ae_every": 100},
}
VECTORS_ONLY = {"vime"}


def cases() -> Iterator[Any]:
    for method in METHODS:
        for world in WORLDS:
            if method not in VECTORS_ONLY or world.startswith("vector"):
                yield pytest.param(method, world, id=f"{method}-{world}")


EVERYWHERE = pytest.mark.parametrize(("method", "world"), list(cases()))


def make(method: str, world: str, seed: int = 0, **changes: Any) -> Method:
    return make_intrinsic(*WORLDS[world], dataclasses.replace(METHODS[method], **changes), seed)


def visit(world: str, n: int, seed: int, kind: Kind = "known") -> Transitions:
    return transitions(*WORLDS[world], n, seed, kind)


def joined(*parts: Transitions) -> Transitions:
    columns = ([getattr(p, name) for p in parts] for name in ("obs", "action", "next_obs"))
    return Transitions(*(np.concatenate(column) for column in columns))


def taught(method: str, world: str, batches: int, **changes: Any) -> Method:
    """A method that has been in the known part of the world."""
    made = make(method, world, **changes)
    for k in range(batches):
        made.learn(visit(world, 200, k))
    return made


def state_of(method: Method) -> dict[str, Any]:
    return dict(method.state_dict())


def assert_same(a: Any, b: Any, where: str = "state") -> None:
    assert type(a) is type(b), where
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}/{i}")
    else:
        assert a == b, where


def copied(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    return [copied(value) for value in state] if isinstance(state, list) else state


@EVERYWHERE
def test_bonuses_are_finite_and_scoring_changes_nothing(method: str, world: str) -> None:
    batch = visit(world, 40, 0)
    for made in (make(method, world), taught(method, world, batches=2)):
        before = copied(state_of(made))
        bonus = made.reward(batch)
        assert bonus.shape == (len(batch),)
        assert torch.isfinite(bonus).all()
        assert not bonus.requires_grad
        assert torch.equal(bonus, made.reward(batch))
        assert_same(before, state_of(made))


@EVERYWHERE
def test_one_transition_is_a_batch(method: str, world: str) -> None:
    made, one = make(method, world), visit(world, 1, 0)
    for _ in range(3):
        bonus, scalars = score_and_learn(made, one)
        assert bonus.shape == (1,)
        assert torch.isfinite(bonus).all()
        assert scalars
        assert all(math.isfinite(value) for value in scalars.values())


@EVERYWHERE
def test_scalars_keep_their_names(method: str, world: str) -> None:
    made = make(method, world)
    names = [list(made.learn(visit(world, 250, k))) for k in range(3)]
    assert names[0] == names[1] == names[2]
    prefix = {"emi-d": "emi", "ae-simhash": "simhash"}.get(method, method)
    assert all(name.startswith(f"{prefix}/") for name in names[0])
    assert all(f"`{name}`" in (type(made).__doc__ or "") for name in names[0])


def advantage(made: Method, world: str, seed: int, kind: Kind = "unknown") -> float:
    """AUC of the unknown over the known in one batch, scored in the order of the method."""
    parts = visit(world, 140, seed), visit(world, 20, seed + 1, kind)
    bonus, _ = score_and_learn(made, joined(*parts))
    return auc(bonus.numpy(), np.arange(len(bonus)) >= len(parts[0]))


# EMI-D pays for leaving the crowd of a batch, new or not: see the test after this one.
@pytest.mark.parametrize(
    ("method", "world"), [case for case in cases() if case.values[0] != "emi-d"]
)
def test_the_unknown_is_paid_more_than_the_known_until_it_is_known(method: str, world: str) -> None:
    made = taught(method, world, batches=6, **THOROUGH.get(method, {}))
    first = advantage(made, world, 7)
    assert first >= 0.8
    for k in range(5):
        made.learn(visit(world, 200, 50 + k, "unknown"))
    assert advantage(made, world, 9) < first - 0.1


@pytest.mark.parametrize("world", ["vector-continuous", "vector-discrete"])
def test_diversity_is_paid_for_leaving_the_crowd(world: str) -> None:
    """Of a φ that has not learnt to draw the new state in; images it never saw land anywhere."""
    made = taught("emi-d", world, batches=6)
    batch = joined(visit(world, 150, 7), visit(world, 50, 8, "leaving"))
    assert auc(made.reward(batch).numpy(), np.arange(200) >= 150) >= 0.8


@EVERYWHERE
def test_the_whole_state_round_trips(method: str, world: str, tmp_path: Any) -> None:
    """Weights, replay, counts, moments, optimizers and generators, through a checkpoint's files."""
    first, second = taught(method, world, batches=2), make(method, world, seed=99)
    save(tmp_path, 1, {"method": state_of(first)})
    second.load_state_dict(load_latest(tmp_path).state["method"])
    assert_same(state_of(first), state_of(second))
    for k in range(2):
        more = visit(world, 250, 30 + k, "unknown")
        ours, theirs = score_and_learn(first, more), score_and_learn(second, more)
        assert torch.equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
    assert_same(state_of(first), state_of(second))


@EVERYWHERE
def test_a_loaded_state_is_a_copy(method: str, world: str) -> None:
    first, second = taught(method, world, batches=2), make(method, world)
    second.load_state_dict(first.state_dict())
    before = copied(state_of(first))
    second.learn(visit(world, 250, 3))
    assert_same(before, state_of(first))


@EVERYWHERE
def test_the_seed_decides_everything(method: str, world: str) -> None:
    batch = visit(world, 40, 20)

    def bonus(seed: int, global_seed: int) -> torch.Tensor:
        torch.manual_seed(global_seed)
        np.random.seed(global_seed)  # noqa: NPY002 - the generator nobody may read
        before = torch.get_rng_state()
        made = make(method, world, seed)
        for k in range(2):
            made.learn(visit(world, 250, k))
        assert torch.equal(before, torch.get_rng_state())
        return made.reward(batch)

    assert torch.equal(bonus(5, 0), bonus(5, 1))
    # A count is the same under most projections: it is the projection that differs.
    if not method.endswith("simhash"):
        assert not torch.equal(bonus(5, 0), bonus(6, 0))


@EVERYWHERE
def test_arrays_tensors_and_rows_are_alike(method: str, world: str) -> None:
    made, batch = taught(method, world, batches=2), visit(world, 30, 4)
    tensors = Transitions(*(torch.as_tensor(x) for x in (batch.obs, batch.action, batch.next_obs)))
    pool = np.concatenate([batch.obs[:], batch.next_obs[:]])
    n = len(batch)
    rows = Transitions(Rows(pool, np.arange(n)), batch.action, Rows(pool, np.arange(n, 2 * n)))
    expected = made.reward(batch)
    assert torch.equal(expected, made.reward(tensors))
    assert torch.equal(expected, made.reward(rows))
    made.learn(rows)
    made.learn(tensors)


@EVERYWHERE
def test_pieces_make_no_difference(
    method: str, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, batch = taught(method, world, batches=2), visit(world, 50, 4)
    whole = made.reward(batch)
    monkeypatch.setattr("emi.batch.PIECE_ROWS", 16)
    torch.testing.assert_close(made.reward(batch), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in VECTORS_ONLY])
def test_only_the_newest_frame_counts(method: str) -> None:
    world = "image-discrete"
    made, batch = taught(method, world, batches=2), visit(world, 30, 4)

    def changed(frame: int) -> Transitions:
        obs, next_obs = np.array(batch.obs), np.array(batch.next_obs)
        obs[:, frame] = 255 - obs[:, frame]
        next_obs[:, frame] = 255 - next_obs[:, frame]
        return Transitions(obs, batch.action, next_obs)

    assert torch.equal(made.reward(batch), made.reward(changed(0)))
    assert not torch.equal(made.reward(batch), made.reward(changed(1)))


@pytest.mark.parametrize("method", METHODS)
def test_unsupported_spaces_get_a_sentence(method: str) -> None:
    config = METHODS[method]
    with pytest.raises(ValueError, match=r"Box") as caught:
        make_intrinsic(Dict({"a": VECTOR}), DISCRETE, config)
    assert "\n" not in str(caught.value)
    if method in ("emi", "emi-d", "icm", "vime"):  # those that read actions
        with pytest.raises(ValueError, match="actions must be a Box or Discrete"):
            make_intrinsic(VECTOR, MultiDiscrete([2, 2]), config)


@pytest.mark.parametrize("method", sorted(VECTORS_ONLY))
def test_methods_for_vectors_say_so(method: str) -> None:
    with pytest.raises(ValueError, match="needs vectors"):
        make_intrinsic(IMAGE, CONTINUOUS, METHODS[method])


@pytest.mark.parametrize("method", METHODS)
def test_observations_of_any_shape_and_actions_that_start_anywhere(method: str) -> None:
    shape = Box(-np.inf, np.inf, (2, 3))
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 40, 2, 3)).astype(np.float32)
    made = make_intrinsic(shape, Discrete(3, start=-1), METHODS[method])
    batch = Transitions(obs, rng.integers(-1, 2, 40), next_obs)
    bonus, _ = score_and_learn(made, batch)
    assert bonus.shape == (40,)
    assert torch.isfinite(bonus).all()


@pytest.mark.parametrize("method", METHODS)
def test_an_action_that_cannot_move_is_no_obstacle(method: str) -> None:
    """A locked actuator: its bounds are one value, and it is divided by nothing."""
    actions = Box(np.float32([0.5, -1]), np.float32([0.5, 1]))
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 40, 3)).astype(np.float32)
    action = np.stack([np.full(40, 0.5), rng.uniform(-1, 1, 40)], 1).astype(np.float32)
    made = make_intrinsic(Box(-np.inf, np.inf, (3,)), actions, METHODS[method])
    for _ in range(2):
        bonus, scalars = score_and_learn(made, Transitions(obs, action, next_obs))
        assert torch.isfinite(bonus).all()
        assert np.isfinite([*scalars.values()]).all()
