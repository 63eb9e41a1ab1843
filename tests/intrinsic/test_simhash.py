"""SimHash against exact counts and small NumPy versions of its code, and the rounds of AE-SimHash.

The networks of the autoencoder have tests of their own, in test_autoencoder.py.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from emi.batch import Transitions
from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.simhash import PRIMES, Counts, SimHash, SimHashConfig, bonus, simhash

VECTOR = Box(-np.inf, np.inf, (4,))
IMAGE = Box(0, 255, (2, 36, 36), np.uint8)
ACTIONS = Discrete(3)
SMALL = SimHashConfig(
    autoencoder=True, ae_code=16, ae_hidden=16, ae_filters=4, ae_updates=4, ae_minibatch=8
)


def batch(obs: Any) -> Transitions:
    return Transitions(obs, np.zeros(len(obs), np.int64), np.zeros_like(obs))


def vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *IMAGE.shape), dtype=np.uint8)


def numbers(code: torch.Tensor) -> list[int]:
    """Each row of bits as one whole number, of any length."""
    return [sum(1 << i for i, bit in enumerate(row) if bit) for row in code.tolist()]


def test_the_code_is_the_signs_of_a_projection() -> None:
    A = torch.tensor([[1.0, 0.0], [0.0, -2.0], [1.0, 1.0]], dtype=torch.float64)
    g = torch.tensor([[3.0, 1.0], [-1.0, 0.5], [0.0, 0.0]])
    # Zero counts as +1: there is no third value, and no bit that depends on the sign of a zero.
    assert simhash(g, A).tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 1]]
    assert simhash(-g[2:], A).all()


def test_the_code_of_vectors_against_numpy() -> None:
    method, obs = SimHash(VECTOR, ACTIONS), vectors(50)
    assert method.A.shape == (32, 4)
    expected = obs.astype(np.float64) @ method.A.numpy().T >= 0
    np.testing.assert_array_equal(method.code(obs).numpy(), expected)


def test_the_code_of_images_is_of_the_newest_frame_between_minus_one_and_one() -> None:
    method, obs = SimHash(IMAGE, ACTIONS), images(10)
    frame = obs[:, 1].reshape(10, -1) / 127.5 - 1
    np.testing.assert_array_equal(method.code(obs).numpy(), frame @ method.A.numpy().T >= 0)


def test_the_projection_is_standard_normal_and_never_changes() -> None:
    method = SimHash(Box(-1, 1, (500,)), ACTIONS, SimHashConfig(key_bits=64))
    A = method.A.clone()
    assert A.mean().item() == pytest.approx(0, abs=0.02)
    assert A.std().item() == pytest.approx(1, abs=0.02)
    method.learn(batch(np.ones((3, 500), np.float32)))
    assert torch.equal(A, method.A)


def test_scale_does_not_matter_but_the_origin_does() -> None:
    method, obs = SimHash(VECTOR, ACTIONS), vectors(50)
    assert torch.equal(method.code(obs), method.code(100 * obs))
    assert not torch.equal(method.code(obs), method.code(obs + 1))


def test_the_bonus_is_one_over_the_root_of_the_count() -> None:
    assert bonus(torch.tensor([0, 1, 4, 100])).tolist() == pytest.approx([1, 1, 0.5, 0.1])


def test_a_slot_is_the_code_modulo_a_prime() -> None:
    counts = Counts(70)  # more bits than a machine word has
    code = torch.rand(20, 70, generator=torch.Generator().manual_seed(0)) < 0.5
    expected = [[n % p + i * max(PRIMES) for i, p in enumerate(PRIMES)] for n in numbers(code)]
    assert counts.slots(code).tolist() == expected


def test_counts_are_those_of_a_dictionary() -> None:
    counts, exact = Counts(16), Counter[int]()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        code = torch.rand(400, 16, generator=generator) < torch.linspace(0.02, 0.3, 16)
        counts.add(counts.slots(code))
        exact.update(numbers(code))
        seen = counts.of(counts.slots(code)).tolist()
        assert seen == [exact[number] for number in numbers(code)]
    assert max(exact.values()) > 10
    assert counts.occupied() == len(exact) / 999931


def test_a_count_is_wrong_only_where_all_six_slots_are_shared() -> None:
    """One shared slot is the usual case in a table that fills up; it must not be heard."""
    counts = Counts(32)
    code = torch.zeros(2, 32, dtype=torch.bool)
    code[1] = torch.tensor([bool(999931 >> i & 1) for i in range(32)])  # 0 in the first table
    slots = counts.slots(code)
    assert slots[0, 0] == slots[1, 0]
    counts.add(slots[[0, 0, 0, 1]])
    assert counts.of(slots).tolist() == [3, 1]


def test_rows_that_share_a_code_count_one_by_one() -> None:
    """`table[slots] += 1` would count them once."""
    method = SimHash(VECTOR, ACTIONS)
    obs = np.repeat(vectors(2), [9, 4], axis=0)
    scores, _ = score_and_learn(method, batch(obs))
    np.testing.assert_allclose(scores, [1 / 3] * 9 + [1 / 2] * 4, rtol=1e-6)


def test_counts_stay_at_the_largest_number() -> None:
    counts = Counts(8)
    slots = counts.slots(torch.ones(5, 8, dtype=torch.bool))
    counts.tables.view(-1)[slots[0]] = 2**31 - 4
    counts.add(slots)
    assert counts.of(slots).tolist() == [2**31 - 1] * 5


def test_the_batch_is_counted_before_it_is_scored() -> None:
    method, obs = SimHash(VECTOR, ACTIONS), vectors(1)
    assert method.learns_first
    for n in range(1, 5):
        scores, scalars = score_and_learn(method, batch(obs))
        assert scores.item() == pytest.approx(1 / math.sqrt(n))
        assert scalars["simhash/new_codes"] == (n == 1)
    assert method.reward(batch(-obs)).item() == 1  # never counted: as if once


def test_the_state_is_scored_and_not_its_successor() -> None:
    method, obs = SimHash(VECTOR, ACTIONS), vectors(1)
    method.learn(batch(np.repeat(obs, 4, axis=0)))
    there, back = np.zeros(1, np.int64), Transitions(-obs, np.zeros(1, np.int64), obs)
    assert method.reward(Transitions(obs, there, -obs)).item() == 0.5
    assert method.reward(back).item() == 1


@pytest.mark.parametrize("autoencoder", [False, True])
def test_the_order_of_a_batch_does_not_matter(autoencoder: bool) -> None:
    obs = np.concatenate([vectors(60), vectors(40)])
    order = np.random.default_rng(1).permutation(100)
    config = SimHashConfig(autoencoder=autoencoder, ae_updates=1, ae_every=2)
    one, two = (SimHash(VECTOR, ACTIONS, config) for _ in range(2))
    for method in (one, two):
        method.learn(batch(obs))
    straight, shuffled = (score_and_learn(m, batch(o)) for m, o in ((one, obs), (two, obs[order])))
    assert torch.equal(straight[0][torch.from_numpy(order)], shuffled[0])
    assert straight[1] == shuffled[1]


def test_the_shares_that_are_reported() -> None:
    method, obs = SimHash(VECTOR, ACTIONS), vectors(4)
    assert len(set(numbers(method.code(obs)))) == 4
    method.learn(batch(obs[:3]))
    # Rows of the batch that share a new code are all new.
    scalars = method.learn(batch(obs[[0, 1, 3, 3, 3]]))
    assert scalars == {"simhash/new_codes": 3 / 5, "simhash/occupied": 4 / 999931}


def test_the_memory_of_counts_does_not_grow() -> None:
    method = SimHash(VECTOR, ACTIONS)
    before = {name: value.nbytes for name, value in method.state_dict().items()}
    for seed in range(3):
        method.learn(batch(vectors(1000, seed)))
    assert {name: value.nbytes for name, value in method.state_dict().items()} == before
    assert before["counts.tables"] == 6 * 999983 * 4


@pytest.mark.parametrize(("space", "draw"), [(VECTOR, vectors), (IMAGE, images)])
def test_what_is_hashed_are_the_rounded_bits_of_the_autoencoder(space: Box, draw: Any) -> None:
    method, obs = SimHash(space, ACTIONS, SMALL), draw(30)
    method.learn(batch(obs))
    method.train()  # a caller's mode is not ours: noise and batch statistics stay out of hashing
    code, net = method.code(obs), method.net.eval()
    with torch.no_grad():
        b = net.encode(net.rows(torch.as_tensor(obs)))
    signs = np.where(b.numpy() >= 0.5, 1.0, -1.0)
    assert method.A.shape == (32, 16)
    np.testing.assert_array_equal(code.numpy(), signs @ method.A.numpy().T >= 0)


def test_a_code_is_a_row_s_own() -> None:
    """With batch statistics a code would depend on the other rows."""
    method, obs = SimHash(IMAGE, ACTIONS, SMALL), images(20)
    method.learn(batch(obs))
    alone = torch.cat([method.code(obs[i : i + 1]) for i in range(20)])
    assert torch.equal(method.code(obs), alone)


def test_batch_norm_learns_in_training_and_holds_still_in_hashing() -> None:
    method, obs = SimHash(IMAGE, ACTIONS, SMALL), images(20)
    method.learn(batch(obs))

    def steps() -> set[float]:
        state = method.net.state_dict()
        return {value.item() for name, value in state.items() if name.endswith("batches_tracked")}

    assert steps() == {4}
    method.reward(batch(obs))
    method.learn(batch(obs))  # no training: every fifth batch has one
    assert steps() == {4}


def test_the_autoencoder_is_trained_before_the_first_hash_and_then_every_few_batches() -> None:
    config = SimHashConfig(autoencoder=True, ae_every=3, ae_updates=7)
    method, trained, scalars = SimHash(VECTOR, ACTIONS, config), [], []
    for k in range(7):
        before = {name: value.clone() for name, value in method.net.state_dict().items()}
        scalars.append(method.learn(batch((k + 1) * vectors(20, k))))
        after = method.net.state_dict()
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        # Codes hold still in between, so the scale must too.
        assert moved in (set(), set(before))
        trained.append(bool(moved))
    assert trained == [True, False, False, True, False, False, True]
    names = ("simhash/ae_loss", "simhash/ae_penalty", "simhash/ae_updates")
    last = [tuple(s[name] for name in names) for s in scalars]
    assert last[0] == last[1] == last[2] != last[3] == last[4] == last[5] != last[6]
    assert last[0][2] == 7


def test_counts_outlive_a_training_of_the_autoencoder() -> None:
    config = SimHashConfig(autoencoder=True, ae_every=1, ae_updates=2)
    method = SimHash(VECTOR, ACTIONS, config)
    for seed in range(3):
        method.learn(batch(vectors(50, seed)))
    assert method.counts.tables.sum(1).tolist() == [150] * 6


def test_the_pool_keeps_the_newest_observations_as_they_are_learnt() -> None:
    method = SimHash(IMAGE, ACTIONS, SimHashConfig(**{**vars(SMALL), "ae_pool": 12}))
    obs = images(20)
    method.learn(batch(obs[:10]))
    method.learn(batch(obs[10:]))
    rows = method.pool.rows
    assert rows.dtype == torch.uint8
    assert rows.shape == (12, 1, 36, 36)
    kept = {row.tobytes() for row in rows.numpy()}
    assert kept == {(frame // 4)[None].tobytes() for frame in obs[8:, 1]}


def test_a_training_lowers_the_loss_and_makes_the_code_binary() -> None:
    rng = np.random.default_rng(0)
    obs = np.tanh(rng.normal(size=(1000, 2)) @ rng.normal(size=(2, 4))).astype(np.float32)
    config = SimHashConfig(
        autoencoder=True, ae_every=1, ae_updates=100, ae_learning_rate=3e-3, ae_lambda=1.0
    )
    method = SimHash(VECTOR, ACTIONS, config)
    first = method.learn(batch(obs))
    for _ in range(4):
        last = method.learn(batch(obs))
    assert last["simhash/ae_loss"] < 0.5 * first["simhash/ae_loss"]
    assert last["simhash/ae_penalty"] < 0.5 * first["simhash/ae_penalty"]
    assert len(set(numbers(method.code(obs)))) > 20  # and states are still distinguished


def test_the_reported_losses_are_those_of_the_decoder_that_sees_noise() -> None:
    """One step from a copy of the same state: the loss, the penalty of the code without noise."""
    config = SimHashConfig(autoencoder=True, ae_updates=1)
    obs, method, twin = vectors(40), *(SimHash(VECTOR, ACTIONS, config) for _ in range(2))
    scalars = method.learn(batch(obs))
    rng = twin.descent.generator
    twin.pool.add(torch.from_numpy(obs))
    rows = twin.pool.draw(32, rng)
    noise = 0.6 * torch.rand(32, 16, generator=rng) - 0.3
    twin.net.adapt(torch.from_numpy(obs))
    b = twin.net.encode(rows)
    assert scalars["simhash/ae_loss"] == pytest.approx(twin.net.loss(b + noise, rows).item())
    penalty = torch.minimum(b**2, (1 - b) ** 2).mean().item()
    assert scalars["simhash/ae_penalty"] == pytest.approx(penalty)


def test_lambda_weighs_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimHashConfig(autoencoder=True, ae_updates=1, ae_lambda=7.0)
    method, minimised = SimHash(VECTOR, ACTIONS, config), []
    monkeypatch.setattr(method.descent, "step", lambda loss: minimised.append(loss.item()))
    scalars = method.learn(batch(vectors(40)))
    total = scalars["simhash/ae_loss"] + 7 * scalars["simhash/ae_penalty"]
    assert minimised == pytest.approx([total])


def test_a_training_ends_when_five_blocks_made_no_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emi.intrinsic.simhash.BLOCK", 2)
    config = SimHashConfig(autoencoder=True, ae_updates=25, ae_minibatch=2, ae_lambda=0.5)
    method = SimHash(VECTOR, ACTIONS, config)
    # Losses of the blocks: progress twice, then none that reaches 1e-4 below the best, 0.5.
    blocks = [1.0, 0.5, 0.49995, 0.6, 0.49991, 0.55, 0.5]
    losses = iter([loss for loss in blocks for _ in range(2)])
    weight = next(method.net.parameters())
    monkeypatch.setattr(method.net, "loss", lambda b, rows: 0 * weight.sum() + next(losses))
    monkeypatch.setattr("emi.intrinsic.simhash.binary_penalty", lambda b: torch.zeros(()))
    assert method.learn(batch(vectors(5)))["simhash/ae_updates"] == 14
    # The penalty is part of what has to fall.
    losses, penalties = iter([1.0] * 25), iter([0.25 - 0.01 * k for k in range(25)])
    monkeypatch.setattr(
        "emi.intrinsic.simhash.binary_penalty", lambda b: torch.tensor(next(penalties))
    )
    method.batches.zero_()
    assert method.learn(batch(vectors(5)))["simhash/ae_updates"] == 25
    monkeypatch.setattr("emi.intrinsic.simhash.binary_penalty", lambda b: torch.zeros(()))
    # Progress, however late, starts the wait anew; then the limit ends it, in the midst of a block.
    losses = iter([1 - 0.001 * (k // 8) for k in range(25)])
    method.batches.zero_()
    assert method.learn(batch(vectors(5)))["simhash/ae_updates"] == 25


@pytest.mark.parametrize("minibatch", [1, 8])
@pytest.mark.parametrize(("space", "draw"), [(VECTOR, vectors), (IMAGE, images)])
def test_one_observation_and_minibatches_of_one(space: Box, draw: Any, minibatch: int) -> None:
    config = SimHashConfig(**{**vars(SMALL), "ae_minibatch": minibatch})
    method = SimHash(space, ACTIONS, config)
    scores, scalars = score_and_learn(method, batch(draw(1)))
    assert scores.tolist() == [1]
    assert all(math.isfinite(value) for value in scalars.values())


def test_observations_that_are_all_zero_are_learnt() -> None:
    method = SimHash(VECTOR, ACTIONS, SMALL)
    scores, scalars = score_and_learn(method, batch(np.zeros((4, 4), np.float32)))
    assert scores.tolist() == [0.5] * 4
    assert all(math.isfinite(value) for value in scalars.values())


def test_unsupported_spaces_raise_a_user_error() -> None:
    with pytest.raises(ValueError, match="observations must be a Box"):
        SimHash(Dict({"a": VECTOR}), ACTIONS)
