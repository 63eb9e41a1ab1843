"""Training an embedding evenly over the states."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from emi.batch import Transitions
from emi.intrinsic.emi import EMI, EMIConfig
from emi.planning.fit import even_rows, fit


def test_rare_states_are_drawn_as_often_as_common_ones() -> None:
    phi = torch.cat([torch.zeros(900, 2), torch.ones(90, 2), 5 * torch.ones(10, 2)])
    rows = even_rows(phi, 30_000, np.random.default_rng(0))
    counts = np.histogram(rows, [0, 900, 990, 1000])[0]
    np.testing.assert_allclose(counts, 10_000, rtol=0.05)


def test_large_batches_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    method = EMI(spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), EMIConfig())
    rows: list[int] = []
    monkeypatch.setattr("emi.planning.fit.MOST_ROWS", 70)
    monkeypatch.setattr(method, "learn", lambda batch: rows.append(len(batch)) or {})
    for n in (50, 100):
        obs = np.random.default_rng(0).uniform(-1, 1, (n, 2)).astype(np.float32)
        fit(method, Transitions(obs, obs, obs), 2, np.random.default_rng(0))
    assert rows == [50, 50, 70, 70]


def test_fit_trains_on_rows_of_the_batch_and_lowers_the_loss() -> None:
    draw = np.random.default_rng(0)
    obs = draw.uniform(-1, 1, (2_000, 2)).astype(np.float32)
    action = draw.uniform(-1, 1, (2_000, 2)).astype(np.float32)
    batch = Transitions(obs, action, obs + 0.1 * action)
    method = EMI(
        spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), EMIConfig(kl_target="action", kl_weight=1)
    )
    before = float(method.reward(batch).mean() / method.embed_action(action).var(0).sum())
    fit(method, batch, 5, np.random.default_rng(1))
    after = float(method.reward(batch).mean() / method.embed_action(action).var(0).sum())
    assert after < before / 4
