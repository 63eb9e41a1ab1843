"""The noisy-TV experiment: random batches are random, the numbers are those of the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from emi.batch import Transitions
from emi.envs.noisy_tv import WATCH
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.table import METHODS
from emi.reproduction import noisy_tv
from emi.reproduction.experiment import Budget, find
from emi.reproduction.noisy_tv import (
    EXPERIMENT,
    Measure,
    load,
    make,
    random_batches,
    save,
    scored,
    table,
)


def test_batches_are_uniformly_random_and_whole_episodes() -> None:
    first, second = random_batches(seed=3, steps=8_000, size=4_000, num_envs=10)
    actions = np.asarray(first.action)
    assert len(actions) == 4_000
    np.testing.assert_allclose(np.bincount(actions) / 4_000, 0.2, atol=0.03)
    assert (np.asarray(second.action) != actions).any()
    # The screen is lit exactly after the agent watched.
    lit = (first.next_obs[:][:, 2:] != 0).any(1)
    np.testing.assert_array_equal(lit, actions == WATCH)
    again, _ = random_batches(seed=3, steps=8_000, size=4_000, num_envs=10)
    np.testing.assert_array_equal(again.next_obs[:], first.next_obs[:])


class Screen(IntrinsicReward):
    """Pays 3 for a lit screen and 1 otherwise, and 10 times as much after it has learned."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def reward(self, batch: Transitions) -> torch.Tensor:
        lit = torch.as_tensor((np.asarray(batch.next_obs)[:, 2:] != 0).any(1))
        return self.factor * (1.0 + 2.0 * lit)

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.factor = 10 * self.factor
        return {}


def test_the_last_batch_is_scored_after_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_tv, "find_method", lambda name: FOUND)
    watching, other, deviation = scored("rnd", 0, 15_000)  # three batches
    assert (watching, other) == (300, 100)
    row = Measure("rnd", 0, 15_000, watching, other, deviation, 0.2, 0.5, 0.0, 1.0)
    assert row.ratio == 3
    assert row.gap == pytest.approx(200 / deviation)
    assert deviation == pytest.approx(200 * 0.4, rel=0.05)  # √(p (1 − p)) for p = 0.2


class _Found:
    def _replace(self, **changes: object) -> _Found:
        return self

    def build(self, *args: object, **options: object) -> Screen:
        return Screen()


FOUND = _Found()


def test_a_method_without_a_bonus_has_no_ratio() -> None:
    assert scored("trpo", 0, 5_000) == (0, 0, 0)
    row = Measure("trpo", 0, 5_000, 0, 0, 0, 0.2, 0.5, 0.0, 1.0)
    assert row.ratio is None
    assert row.gap is None
    negative = row._replace(bonus_watching=-1.0, bonus_other=2.0, bonus_std=3.0)
    assert negative.ratio is None
    assert negative.gap == -1


def test_run_and_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, [("trpo", 1), ("noise", 1)], 10_000, Budget())
    assert capsys.readouterr().out.startswith("trpo seed 1: no bonus, watches 17% of")
    rows = load(tmp_path)
    assert list(rows) == [("trpo", 1), ("noise", 1)]
    assert rows["noise", 1].watched == pytest.approx(0.2, abs=0.05)
    assert 0.3 < rows["trpo", 1].cells < 0.7
    written = EXPERIMENT.draw(find(EXPERIMENT, tmp_path), tmp_path / "out" / "noisy_tv")
    assert [path.suffix for path in written] == [".png", ".md"]
    page = written[1].read_text(encoding="utf-8")
    assert "**SCALED: 10,000 of 100,000 steps**" in page
    assert "| TRPO | 1 | – | – |" in page


def test_every_method_of_the_table_is_measured() -> None:
    assert EXPERIMENT.maker is not None
    assert {method for method, _ in EXPERIMENT.maker.cells} == set(METHODS)
    assert len(EXPERIMENT.maker.cells) == 5 * len(METHODS)


def test_the_table_has_means_and_intervals() -> None:
    rows = {
        ("rnd", seed): Measure("rnd", seed, 100_000, 2.0 + seed, 1.0, 4.0, 0.5, 1.0, 0.0, 1.0)
        for seed in range(2)
    }
    assert "| RND | 2 | 2.50 [2.00, 3.00] | 0.38 [0.25, 0.50] | 50 [50, 50] |" in table(rows)


@pytest.mark.parametrize("text", ["method,seed\nrnd,0\n", "method,seed,steps\nrnd,0,nan\n"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    save(tmp_path, {})
    assert load(tmp_path) == {}
    (tmp_path / noisy_tv.FILE).write_text(text)
    with pytest.raises(UserError, match=r"is damaged .*: run noisy_tv again"):
        load(tmp_path)
