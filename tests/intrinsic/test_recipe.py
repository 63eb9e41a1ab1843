"""`emi.bonus` builds the recommended composition of every method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import emi
from emi.errors import UserError
from emi.intrinsic.noise import Noise
from emi.intrinsic.table import METHODS

VECTORS, IMAGES, THREE = Box(-np.inf, np.inf, (4,)), Box(0, 255, (84, 84, 4), np.uint8), Discrete(3)
WITH_BONUS = [name for name, entry in METHODS.items() if entry.home is not None]


def batch(scale: float = 1.0) -> emi.Transitions:
    rng = np.random.default_rng(0)
    obs, next_obs = (scale * rng.normal(size=(2, 64, 4))).astype(np.float32)
    return emi.Transitions(obs, rng.integers(0, 3, 64), next_obs)


@pytest.mark.parametrize("name", WITH_BONUS)
def test_every_method_on_vectors_and_images(name: str) -> None:
    method = emi.bonus(name, VECTORS, THREE)
    assert isinstance(method, emi.NormalizeReward)
    bonus, scalars = emi.score_and_learn(method, batch())
    assert bonus.shape == (64,)
    assert "normalize/scale" in scalars
    if name != "vime":  # which reads vectors only
        assert isinstance(emi.bonus(name, IMAGES, THREE), emi.NormalizeReward)


def test_the_composition_is_the_documented_one() -> None:
    ours = emi.bonus("emi", VECTORS, THREE, seed=3)
    raw = emi.EMI(VECTORS, THREE, seed=3, normalize=False)
    by_hand = emi.NormalizeReward(emi.NormalizeObservation(raw, VECTORS))
    for _ in range(2):
        assert torch.equal(
            emi.score_and_learn(ours, batch())[0], emi.score_and_learn(by_hand, batch())[0]
        )
    assert torch.isfinite(ours.reward(batch(1e4))).all()


@pytest.mark.parametrize("name", ["emi", "icm", "rnd", "ex2", "simhash", "vime"])
def test_the_unit_of_the_observations_does_not_matter(name: str) -> None:
    """Positions of about 1 or of about 1,000 give the same bonus."""

    def after_two(scale: float) -> torch.Tensor:
        method = emi.bonus(name, VECTORS, THREE)
        for _ in range(2):
            bonus, _ = emi.score_and_learn(method, batch(scale))
        return bonus

    torch.testing.assert_close(after_two(1.0), after_two(1024.0), rtol=1e-2, atol=1e-3)


def test_a_config_and_a_method_of_ones_own() -> None:
    small = emi.bonus("rnd", VECTORS, THREE, emi.RNDConfig(features=8))
    assert isinstance(small.method, emi.RND)
    assert small.method.config.features == 8
    own = emi.bonus("emi.intrinsic.noise:Noise", VECTORS, THREE, seed=5)
    assert isinstance(own.method, Noise)
    assert int(own.method.seed) == 5


def test_disagreement_is_smaller_on_vectors() -> None:
    """The authors' networks, for images, take ten times as long as PPO on a small task."""
    for space, units in ((VECTORS, 64), (IMAGES, 512)):
        method = emi.bonus("disagreement", space, THREE).method
        assert isinstance(method, emi.Disagreement)
        assert method.config.units == units
    config = emi.DisagreementConfig(units=8)
    method = emi.bonus("disagreement", VECTORS, THREE, config).method
    assert method.config == config


def test_wrong_names_say_what_to_do() -> None:
    with pytest.raises(UserError, match=r"there is no method 'EMI': did you mean 'emi'\?"):
        emi.bonus("EMI", VECTORS, THREE)
    with pytest.raises(UserError, match="there is no method 'curiosity': choose one of emi, "):
        emi.bonus("curiosity", VECTORS, THREE)
    with pytest.raises(UserError, match="'trpo' is training without a bonus: choose another"):
        emi.bonus("trpo", VECTORS, THREE)
