"""The recommended way to build a method for a trainer: one call."""

from __future__ import annotations

from typing import Any

import gymnasium

from emi.errors import UserError, did_you_mean
from emi.images import is_image
from emi.intrinsic import disagreement
from emi.intrinsic.contract import find_method
from emi.intrinsic.normalize_observation import NormalizeObservation
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.reading import Reading
from emi.intrinsic.table import METHODS

# The others normalise vectors themselves. These count codes, which change with the moments: a
# trainer with its own scale should not have to know that, but a study of counts should.
_READS_RAW_VECTORS = frozenset({"ae-simhash", "simhash"})

# Settings for vectors of methods whose defaults are for images and slow.
_FOR_VECTORS = {"disagreement": disagreement.FOR_VECTORS}


def bonus(
    method: str,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    config: Any = None,
    seed: int = 0,
) -> NormalizeReward:
    """Build a method whose bonus has a comparable scale: the recommended start in a trainer.

    `method` is a name from `emi methods`, or `package.module:Class` for your own. `config` is the
    config of the method, None for its default; Disagreement has a smaller one for vectors. Vectors
    are normalised before the method reads them, and the bonus is divided by its running scale, so
    that the coefficient η does not depend on the units of the method. Start with 1 where returns
    are of that size, and let η fall to 0, for example with `emi.adapters.Decay`.

    >>> from gymnasium.spaces import Box, Discrete
    >>> bonus("icm", Box(-1, 1, (2,)), Discrete(3)).learns_first
    False
    """
    if method not in METHODS and ":" not in method:
        hint = did_you_mean(method, METHODS, f": choose one of {', '.join(METHODS)}")
        raise UserError(f"there is no method {method!r}{hint}")
    found = find_method(method)
    space = Reading(observation_space).space
    vectors = not is_image(space)
    if config is None and vectors:
        config = _FOR_VECTORS.get(method)
    if config is not None:
        found = found._replace(config=config)
    raw = method in _READS_RAW_VECTORS and vectors
    built = found.build(space if raw else observation_space, action_space, seed=seed)
    if built is None:
        raise UserError(f"{method!r} is training without a bonus: choose another method")
    if raw:
        built = NormalizeObservation(built, observation_space)
    return NormalizeReward(built)
