"""Discrete actions towards a displacement in the embedding, by a table of sums.

In the linear model the order of actions does not matter: a plan of H actions is a multiset, and its
effect is a sum that does not depend on the state. All sums are computed once. A decision compares
them with what is left after each first action.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array
from emi.errors import UserError
from emi.spaces import ActionGroups

MOST_ACTIONS = 4_096
MOST_SUMS = 20_000  # of a table, and of its product with the number of actions
ONE_STEP = 1e-6  # of the scale of ψ: among equal plans the shorter one is better


def all_actions(groups: ActionGroups) -> Array:
    """Every discrete action, [K, *action]; UserError if there are too many."""
    count = np.prod([float(size) for size in groups.sizes])
    if count > MOST_ACTIONS:
        raise UserError(
            f"a planner compares all discrete actions, at most {MOST_ACTIONS:,}: these are "
            f"{count:,.0f}"
        )
    ranges = (range(start, start + n) for start, n in zip(groups.starts, groups.sizes, strict=True))
    table = np.array(list(itertools.product(*ranges)), groups.dtype)
    return table.reshape(-1, *groups.shape)


def sums_of(psi: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
    """The sums of ψ [K, d] over all multisets of at most `horizon` actions, and their sizes.

    [M, d] and [M]; the empty one is first. Larger multisets are left out where M · K would exceed
    `MOST_SUMS`.
    """
    sums, sizes = [psi.new_zeros(1, psi.shape[1])], [psi.new_zeros(1)]
    for size in range(1, horizon + 1):
        multisets = itertools.combinations_with_replacement(range(len(psi)), size)
        free = MOST_SUMS // len(psi) - sum(map(len, sums))
        index = list(itertools.islice(multisets, max(0, free) + 1))
        if len(index) > free:
            break
        sums.append(psi[torch.tensor(index)].sum(1))
        sizes.append(psi.new_full((len(index),), size))
    return torch.cat(sums), torch.cat(sizes)


def best_first_action(delta: Tensor, effect: Tensor, sums: Tensor, sizes: Tensor) -> Tensor:
    """The first action of the plan that ends nearest to Δ; indices [n].

    `delta` is [n, d], `effect` [n, K, d] the displacement by each first action, `sums` [M, d] those
    of what may follow, `sizes` [M] how many actions that takes.
    """
    n, count, d = effect.shape
    left = (delta[:, None] - effect).reshape(n * count, d)
    later = ONE_STEP * effect.norm(dim=2).mean() * sizes
    nearest = (torch.cdist(left, sums) + later).amin(1)
    return nearest.reshape(n, count).argmin(1)
