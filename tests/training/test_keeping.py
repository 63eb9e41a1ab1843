"""Options that keep a found reward: their formulas, and that a resumed run repeats every bit."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from emi.agent.policy import PolicyConfig, make_policy
from emi.errors import UserError
from emi.training.config import TrainConfig
from emi.training.keeping import (
    MIN_SCALE,
    History,
    gives_up,
    luby,
    raise_std,
    rewarded_episodes,
    step_scale,
    stored_history,
)
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SMALL = {"steps_per_iteration": 300, "num_envs": 3, "steps": 3000, "threads": 1}
EVERYTHING = {
    "gae_lambda": 0.9,
    "normalize_bonus": True,
    "value": {"memory": 0.9, "memory_episodes": 4},
    "streams": {"separate": True, "discount": 0.9, "gae_lambda": 0.8},
    "keeping": {"stake_power": 1.0, "stake_decay": 0.9, "patience": 2, "min_std": 0.9},
}


def small(**settings: Any) -> TrainConfig:
    return resolve("SparseHalfCheetah", "emi", SMALL | {"intrinsic.minibatch": 64} | settings)


def paying(trainer: Trainer, *iterations: int) -> Trainer:
    """Pay the first environment 1 per step in these iterations, from 0, and nothing in others."""
    step = trainer.envs.step

    def paid(actions: Any) -> Any:
        obs, _, terminated, truncated, info = step(actions)
        reward = np.zeros(len(obs))
        reward[0] = trainer.iteration in iterations
        return obs, reward, terminated, truncated, info

    trainer.envs.step = paid  # type: ignore[method-assign]
    return trainer


def std_of(trainer: Trainer) -> torch.Tensor:
    log_std = trainer.policy.log_std
    assert isinstance(log_std, torch.Tensor)
    return log_std.detach().exp()


def test_lubys_sequence() -> None:
    assert [luby(k) for k in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def test_the_step_is_in_proportion_to_the_stake() -> None:
    assert step_scale(0.5, 2.0, power=1) == 0.25
    assert step_scale(0.5, 2.0, power=2) == 0.0625
    assert step_scale(0.5, 2.0, power=0) == 1
    assert step_scale(3.0, 2.0, power=1) == 1  # never a longer step
    assert step_scale(0.5, 0.0, power=1) == 1  # no reward was found yet
    assert step_scale(0.0, 2.0, power=1) == MIN_SCALE  # the trust region stays positive


def test_the_history_of_a_policy() -> None:
    first = History().after(2.0, rewarded=True, decay=0.5)
    assert first == History(reference=2.0, rewarded=1)
    second = first.after(9.0, rewarded=False, decay=0.5)
    assert second == History(reference=1.0, rewarded=1, unrewarded=1)
    third = second.after(0.25, rewarded=True, decay=0.5)
    assert third == History(reference=0.5, rewarded=2)
    assert third.restarted() == History(restarts=1)


def test_patience_grows_with_rewards_and_with_lubys_sequence() -> None:
    assert gives_up(History(unrewarded=3), 3)
    assert not gives_up(History(unrewarded=2), 3)
    assert not gives_up(History(unrewarded=3, rewarded=1), 3)
    assert gives_up(History(unrewarded=4, rewarded=1), 3)
    assert not gives_up(History(unrewarded=5, restarts=2), 3)  # luby(3) is 2
    assert gives_up(History(unrewarded=6, restarts=2), 3)
    assert not gives_up(History(unrewarded=10**6), 0)


def test_episodes_with_a_reward_are_counted_once() -> None:
    reward = np.array([[1, 0, 0], [1, 0, -1], [0, 0, 0], [1, 0, 0]], float)
    ended = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], bool)
    # Environment 0 is rewarded in both of its episodes, 1 in none, 2 in its first.
    assert rewarded_episodes(reward, ended) == 3
    assert rewarded_episodes(0 * reward, ended) == 0


def test_the_floor_of_the_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    spaces = Box(-1, 1, (3,)), Box(-1, 1, (2,))
    policy = make_policy(*spaces, PolicyConfig(), generator)
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([math.log(0.2), math.log(0.8)]))  # type: ignore[operator]
    raise_std(policy, 0.5)
    torch.testing.assert_close(policy.log_std.detach().exp(), torch.tensor([0.5, 0.8]))  # type: ignore[operator]
    raise_std(make_policy(Box(-1, 1, (3,)), Discrete(2), PolicyConfig(), generator), 0.5)


def test_a_batch_without_a_reward_takes_a_smaller_step() -> None:
    config = small(steps_per_iteration=1500, steps=4500, keeping={"stake_power": 1.0})
    trainer = paying(Trainer(config), 1)
    first, second, third = (trainer.iterate().metrics for _ in range(3))
    assert first["keeping/step_scale"] == 1  # there is nothing to keep yet
    assert second["keeping/step_scale"] == 1  # rewarded
    assert 0 < third["keeping/step_scale"] < 1
    assert third["kl"] <= third["keeping/step_scale"] * trainer.config.trpo.max_kl
    assert first["kl"] > third["kl"]


def test_a_new_policy_is_drawn_after_the_patience() -> None:
    trainer = paying(Trainer(small(keeping={"patience": 2})), 3)
    seen = []
    restarts = []
    for _ in range(8):
        seen.append(trainer.policy.head.weight.detach().clone())  # type: ignore[union-attr]
        restarts.append(trainer.iterate().metrics["keeping/restarts"])
    # Two unrewarded iterations; then one, a reward, and three; then the third policy, luby(3) = 2.
    assert restarts == [0, 1, 1, 1, 1, 1, 2, 2]
    assert torch.equal(std_of(trainer), torch.ones(6)) is False
    fresh = paying(Trainer(small(keeping={"patience": 2})), 3)
    for _ in range(2):
        fresh.iterate()
    assert torch.equal(fresh.policy.head.weight, seen[2])  # type: ignore[union-attr, arg-type]
    assert torch.equal(std_of(fresh), torch.ones(6))


def test_the_noise_of_the_policy_stays_above_its_floor() -> None:
    trainer = Trainer(small(keeping={"min_std": 1.0}))
    for _ in range(3):
        trainer.iterate()
        assert (std_of(trainer) >= 1).all()


def test_two_streams_with_the_same_factors_are_one() -> None:
    """The linear value function is linear in its targets, so that advantages add up."""
    same = {"separate": True, "discount": 0.995, "gae_lambda": 1.0, "episodic": True}
    one, two = paying(Trainer(small()), 1), paying(Trainer(small(streams=same)), 1)
    for _ in range(3):
        a, b = one.iterate().metrics, two.iterate().metrics
        assert a["kl"] == pytest.approx(b["kl"], rel=1e-3)
        assert a["trpo/surrogate_gain"] == pytest.approx(b["trpo/surrogate_gain"], rel=1e-3)
    assert b["bonus_value/loss"] > 0


def test_a_bonus_that_outlasts_the_episode() -> None:
    """After an end the value is that of a start state: the targets rise by γ V of it."""
    targets = []
    for episodic in (True, False):
        streams = {"separate": True, "discount": 0.9, "gae_lambda": 1.0, "episodic": episodic}
        config = small(steps_per_iteration=1500, steps=3000, streams=streams)
        trainer = Trainer(config)
        trainer.iterate()
        rollout = trainer.collector.batch(1)
        assert trainer.bonus_value is not None
        stream = trainer._bonus_stream(trainer.bonus_value)
        estimates = trainer._estimate(rollout, 0 * rollout.reward, stream)
        targets.append(rollout.grid(estimates.target))
        start = rollout.grid(estimates.value)[0].mean()
    assert start > 0
    np.testing.assert_allclose(targets[1][-1] - targets[0][-1], 0.9 * start)
    np.testing.assert_allclose(targets[1][-3] - targets[0][-3], 0.9**3 * start)


@pytest.mark.parametrize("method", ["emi", "trpo"])
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_a_resumed_run_repeats_every_bit_with_all_options(method: str, kind: str) -> None:
    options = copy.deepcopy(EVERYTHING)
    options["value"] |= {"kind": kind}  # type: ignore[operator]
    config = resolve("SparseHalfCheetah", method, SMALL | options)
    whole = paying(Trainer(config), 1)
    for _ in range(3):
        whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    resumed = paying(Trainer(config), 1)
    resumed.load_state_dict(state)
    for _ in range(5):  # with a restart
        a, b = whole.iterate().metrics, resumed.iterate().metrics
        assert {k: v for k, v in a.items() if v == v} == {k: v for k, v in b.items() if v == v}
    assert whole.history.restarts > 0
    assert whole.history == resumed.history
    for p, q in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(p, q)


def test_without_the_options_a_checkpoint_is_what_it_was() -> None:
    assert Trainer(small()).state_dict().keys() == {
        *("iteration", "steps", "action_rng", "value_rng", "policy", "value", "intrinsic")
    }
    assert Trainer(small()).state_dict()["value"].keys() == {"coefficients"}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"reference": math.nan}, "keeping.reference"),
        ({"reference": -1.0}, "keeping.reference"),
        ({"restarts": 4}, "keeping.restarts"),
        ({"rewarded": True}, "keeping.rewarded"),
        ({"unknown": 1}, "keeping"),
    ],
)
def test_a_stored_history_is_checked(change: dict[str, Any], place: str) -> None:
    assert stored_history(History(1.0, 2, 1, 3).state(), 3) == History(1.0, 2, 1, 3)
    with pytest.raises(UserError, match=place):
        stored_history(History().state() | change, 3)


def test_a_second_thread_changes_no_bit_with_all_options() -> None:
    """The next batch is collected early, with the policy that was just drawn."""
    trainers = [Trainer(small(**EVERYTHING, threads=threads)) for threads in (1, 2)]
    try:
        for _ in range(6):
            a, b = (trainer.iterate().metrics for trainer in trainers)
            assert {k: v for k, v in a.items() if v == v} == {k: v for k, v in b.items() if v == v}
        assert a["keeping/restarts"] > 0
    finally:
        for trainer in trainers:
            trainer.close()
