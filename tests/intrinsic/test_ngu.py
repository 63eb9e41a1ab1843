"""NGU against NumPy, and against its parts: pseudo-counts and RND."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from known_unknown import DISCRETE, VECTOR, transitions

from emi.intrinsic.contract import score_and_learn
from emi.intrinsic.moments import Moments
from emi.intrinsic.ngu import NGU, NGUConfig, modulator
from emi.intrinsic.pseudo_counts import PseudoCounts, PseudoCountsConfig
from emi.intrinsic.rnd import RND, RNDConfig

EPISODIC = PseudoCountsConfig(width=4, minibatch=64)
LIFELONG = RNDConfig(features=16, hidden=(16,), learning_rate=1e-3)
CONFIG = NGUConfig(episodic=EPISODIC, lifelong=LIFELONG)


def test_the_modulator_by_hand() -> None:
    moments = Moments.of(torch.tensor([1.0, 3.0]))  # mean 2, standard deviation 1
    error = torch.tensor([0.0, 2.0, 3.5, 9.0])
    assert modulator(error, moments, 5.0).tolist() == [1, 1, 2.5, 5]
    assert modulator(error, Moments.of(torch.tensor([2.0])), 5.0).tolist()[:2] == [1, 1]  # σ = 0


def test_the_bonus_is_that_of_its_parts() -> None:
    """The modulator has the moments of all earlier errors; the first batch has its own."""
    method = NGU(VECTOR, DISCRETE, CONFIG, seed=2)
    counts, rnd = PseudoCounts(VECTOR, DISCRETE, EPISODIC, 2), RND(VECTOR, DISCRETE, LIFELONG, 2)
    errors: list[np.ndarray] = []
    for k in range(4):
        batch = transitions(VECTOR, DISCRETE, 100, k, "known" if k < 3 else "unknown")
        error = rnd.error(batch.next_obs).double().numpy()
        known = np.concatenate(errors or [error])
        alpha = np.clip(1 + (error - known.mean()) / known.std(), 1, 5)
        errors.append(error)
        episodic, expected = score_and_learn(counts, batch)
        _, lifelong = score_and_learn(rnd, batch)
        bonus, scalars = score_and_learn(method, batch)
        np.testing.assert_allclose(bonus, episodic.numpy() * alpha, rtol=1e-4)
        assert scalars["ngu/loss_inverse"] == expected["pseudo_counts/loss_inverse"]
        assert scalars["ngu/loss_rnd"] == lifelong["rnd/loss"]
        assert scalars["ngu/modulator"] == pytest.approx(alpha.mean(), rel=1e-4)
        assert scalars["ngu/episodic"] == pytest.approx(episodic.mean().item())
    assert alpha.mean() > 3  # a new part of the state space


def test_states_that_are_known_for_long_have_the_episodic_bonus() -> None:
    method = NGU(VECTOR, DISCRETE, NGUConfig(max_modulator=1.0, episodic=EPISODIC))
    batch = transitions(VECTOR, DISCRETE, 100, 0)
    episodic = PseudoCounts(VECTOR, DISCRETE, EPISODIC)
    assert torch.equal(method.reward(batch), episodic.reward(batch))
