"""Train an embedding for planning, on stored transitions and evenly over the states.

An exploring agent is most of the time in few places. An embedding that is trained on what it meets
is accurate there, and distorted where plans have to pass.
"""

import numpy as np
import torch
from torch import Tensor

from emi.batch import IntArray, Transitions
from emi.intrinsic.emi import EMI
from emi.planning.landmarks import nearest, spread_out

CELLS = 300
MOST_ROWS = 60_000  # of a pass: what even rows need does not grow with the data


def even_rows(phi: Tensor, count: int, rng: np.random.Generator) -> IntArray:
    """`count` rows of φ [n, d], drawn so that every cell of φ-space is equally likely.

    A cell is what is nearest to one of 300 points that are spread over φ.
    """
    cell = nearest(phi, phi[spread_out(phi, CELLS)])
    rarity = 1 / np.bincount(cell)[cell]
    return rng.choice(len(phi), count, p=rarity / rarity.sum())


def fit(emi: EMI, batch: Transitions, passes: int, rng: np.random.Generator) -> dict[str, float]:
    """Train `passes` times on as many rows as `batch` has, or 60,000 if it has more.

    Returns the scalars of the last pass.

    Each pass draws rows anew, evenly over the embedding that the previous one left, and takes
    `emi.config.epochs` epochs on them.
    """
    scalars: dict[str, float] = {}
    for _ in range(passes):
        with torch.no_grad():
            count = min(len(batch), MOST_ROWS)
            rows = even_rows(emi.embed_state(batch.obs), count, rng)
        scalars = emi.learn(Transitions(batch.obs[rows], batch.action[rows], batch.next_obs[rows]))
    return scalars
