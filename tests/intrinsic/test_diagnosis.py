"""Diagnoses of bonuses that work, and of each way in which one can fail."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

import emi
from emi import Transitions
from emi.intrinsic.diagnosis import diagnose


def walk(n: int = 600, *, crossing: bool = False, images: bool = False) -> Transitions:
    """Episodes of 50 small steps to the right from 0; `crossing`: s' of the last is the next s."""
    rng = np.random.default_rng(0)
    clock = np.arange(n) % 50
    place = np.stack([0.2 * clock + rng.normal(0, 0.02, n), rng.normal(0, 0.02, n)], 1)
    after = np.stack([place[:, 0] + 0.2, rng.normal(0, 0.02, n)], 1)
    if crossing:
        ends = np.flatnonzero(clock == 49)[:-1]
        after[ends] = place[ends + 1]
    action = rng.integers(0, 2, n)
    if images:
        return Transitions(picture(place), action, picture(after))
    return Transitions(place.astype(np.float32), action, after.astype(np.float32))


def picture(place: np.ndarray) -> np.ndarray:
    lit = np.abs(np.arange(40) - 4 * place[:, :1]) < 3
    return np.repeat(np.where(lit, 200, 10).astype(np.uint8)[:, None, :], 40, axis=1)


class Counts(emi.IntrinsicReward):
    """1/√n of the cell of s, plus what a test adds."""

    def __init__(self, extra: Any = lambda batch: 0.0, weight: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(64))
        self.extra, self.weight = extra, weight

    def cell(self, batch: Transitions) -> Tensor:
        return (torch.as_tensor(batch.obs)[:, 0] * 4).long().clamp(0, 63)

    def reward(self, batch: Transitions) -> Tensor:
        bonus = self.weight / (1 + self.counts[self.cell(batch)]).sqrt()
        return bonus + self.extra(batch)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.counts += torch.bincount(self.cell(batch), minlength=64)
        return {}


def way(batch: Transitions) -> Tensor:
    return torch.as_tensor(batch.next_obs - batch.obs).square().sum(1)


def discounted(reward: np.ndarray) -> np.ndarray:
    out = np.zeros(len(reward))
    for t in reversed(range(len(reward))):
        out[t] = reward[t] + (0.9 * out[t + 1] if t % 50 < 49 and t + 1 < len(reward) else 0.0)
    return out


def test_a_bonus_that_works() -> None:
    counts = Counts()
    counts.learn(walk(100))
    before = counts.counts.clone()
    found = diagnose(counts, walk(), reward=np.ones(600), eta=0.5, advantages=discounted, passes=3)
    assert found.good
    assert [found.answers[name].good for name in found.answers] == [True] * 7
    assert found.answers["ranks"].value == 1.0
    assert found.answers["falls"].value > 0.4
    intrinsic = 0.5 * counts.reward(walk()).sum().item()
    assert found.answers["share"].value == pytest.approx(intrinsic / (intrinsic + 600), rel=1e-6)
    # It was trained meanwhile, and is restored.
    assert torch.equal(counts.counts, before)
    assert str(found).count("\n") == 6
    assert "✓ ranks       unseen transitions have a larger bonus" in str(found)
    assert found.as_dict()["finite"]["good"] is True


@pytest.mark.parametrize(
    ("method", "question", "words"),
    [
        (Counts(lambda batch: float("nan")), "finite", "600 of 600 bonuses are NaN or infinite"),
        (Counts(weight=0.0), "varies", "every transition has the same bonus"),
        (
            Counts(lambda batch: torch.as_tensor(batch.obs)[:, 0] * -9),
            "ranks",
            "in 0% of all pairs",
        ),
    ],
)
def test_what_is_wrong_is_named(method: Counts, question: str, words: str) -> None:
    found = diagnose(method, walk())
    assert not found.good
    assert found.answers[question].good is False
    assert words in found.answers[question].text
    assert f"✗ {question}" in str(found)


def test_successors_taken_across_resets_are_noticed() -> None:
    surprised = Counts(way, weight=0.01)
    assert diagnose(surprised, walk()).answers["resets"].good
    answer = diagnose(surprised, walk(crossing=True)).answers["resets"]
    assert answer.good is False
    assert answer.value > 0.9
    assert answer.text.startswith("11 steps are more than 20 times as long as the median step; ")
    assert answer.text.endswith("is next_obs the true successor where episodes end?")
    # A bonus that does not care for them is not to blame.
    assert diagnose(Counts(), walk(crossing=True)).answers["resets"].good


@pytest.mark.parametrize(("length", "good"), [(30, False), (15, False), (4, None)])
def test_resets_are_noticed_in_short_episodes_too(length: int, good: bool | None) -> None:
    """If a fourth of the steps are resets, long steps are usual and nothing can be decided."""
    rng, clock = np.random.default_rng(0), np.arange(600) % length
    steps = rng.normal(0, 0.01, (600, 2))
    episode = np.arange(600) // length
    start = rng.uniform(-5, 5, (600, 2))[episode]
    walked = np.cumsum(steps, 0)
    place = start + walked - walked[episode * length] + steps
    after = place + np.roll(steps, -1, 0)
    ends = np.flatnonzero(clock == length - 1)[:-1]
    after[ends] = place[ends + 1]
    batch = Transitions(place.astype(np.float32), np.zeros(600, int), after.astype(np.float32))
    answer = diagnose(Counts(way, weight=0.0), batch).answers["resets"]
    assert answer.good is good
    assert answer.value > 0.9
    if good is None:
        assert answer.text.endswith("too many to decide whether they are resets")


def test_a_method_without_a_bonus_before_training_is_trained_first() -> None:
    actions, rows = Box(-1, 1, (1,)), walk()
    batch = Transitions(rows.obs, np.zeros((600, 1), np.float32), rows.next_obs)
    method = emi.VIME(SPACES[False], actions)
    assert not method.reward(batch).any()
    found = diagnose(method, batch, reward=np.ones(600), advantages=discounted, passes=2)
    assert (found.answers["share"].good, found.answers["advantages"].good) == (True, True)
    assert not method.reward(batch).any()  # as it was


def test_a_bonus_that_is_always_zero() -> None:
    never = diagnose(Counts(weight=0.0), walk(), reward=np.ones(600), advantages=discounted)
    assert never.answers["share"].good is False
    assert (
        "does the method need more transitions before it gives a bonus?"
        in never.answers["share"].text
    )
    assert never.answers["advantages"].good is None
    assert not never.good


def test_a_bonus_that_comes_too_late_for_the_advantages() -> None:
    fixed = discounted(np.ones(600))
    answer = diagnose(Counts(), walk(), advantages=lambda reward: fixed).answers["advantages"]
    assert (answer.good, answer.value) == (False, 0.0)
    assert "is it added before advantages are computed?" in answer.text


def test_a_zero_eta_gives_no_bonus() -> None:
    found = diagnose(Counts(), walk(), reward=np.ones(600), eta=0.0, advantages=discounted)
    assert found.answers["share"].good is False
    assert found.answers["advantages"].good is False


def test_questions_without_data_are_not_answered() -> None:
    found = diagnose(Counts(), walk())
    assert found.good
    assert [found.answers[name].good for name in ("share", "advantages")] == [None, None]


def test_a_failure_on_the_way_leaves_the_method_as_it_was() -> None:
    class Failing(Counts):
        def learn(self, batch: Transitions) -> dict[str, float]:
            super().learn(batch)
            raise RuntimeError("mine")

    counts = Failing()
    with pytest.raises(RuntimeError, match="mine"):
        diagnose(counts, walk())
    assert counts.counts.sum() == 0


def test_too_few_or_equal_transitions() -> None:
    with pytest.raises(ValueError, match="needs 20 transitions or more, got 19"):
        diagnose(Counts(), walk(19))
    equal = Transitions(np.zeros((30, 2), np.float32), np.zeros(30, int), np.zeros((30, 2)))
    assert diagnose(Counts(), equal).answers["ranks"].good is None


SPACES = {False: Box(-np.inf, np.inf, (2,)), True: Box(0, 255, (40, 40), np.uint8)}


@pytest.mark.parametrize("images", [False, True])
def test_a_real_method(images: bool) -> None:
    found = diagnose(emi.RND(SPACES[images], Discrete(2)), walk(images=images), passes=5)
    assert found.good, str(found)


def test_a_method_that_knows_directions_only() -> None:
    # Nearly all of these states lie in one direction from 0.
    found = diagnose(emi.SimHash(SPACES[False], Discrete(2)), walk(), passes=5)
    assert found.answers["ranks"].good is False


def test_a_bonus_for_something_else_is_neither_good_nor_bad() -> None:
    found = diagnose(Counts(lambda batch: 9 * torch.as_tensor(batch.obs)[:, 1], 1e-6), walk())
    assert (found.answers["ranks"].good, found.answers["falls"].good) == (None, None)
    assert "neither is preferred" in str(found)
    assert found.good


@pytest.mark.parametrize("method", [emi.E3B, emi.PseudoCounts])
def test_a_method_that_forgets_at_the_end_of_an_episode(method: type[emi.IntrinsicReward]) -> None:
    """Novelty is that within an episode: the transitions are read as one."""
    batch = walk()
    episodes = dataclasses.replace(batch, ended=np.arange(600) % 50 == 49)
    made = method(Box(-np.inf, np.inf, (2,)), Discrete(2))  # type: ignore[call-arg]
    answers = diagnose(made, episodes, reward=np.zeros(600), passes=3).answers
    assert [name for name in ("varies", "ranks", "falls") if answers[name].good] == [
        "varies",
        "ranks",
        "falls",
    ]
