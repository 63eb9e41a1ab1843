"""Actions as vectors for networks."""

import math

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from emi.batch import Array
from emi.spaces import ActionGroups, UnitRange, require_actions


class ActionVectors(nn.Module):
    """[n, *action] in the units of `space` to floats [n, `size`].

    Continuous actions are scaled to [−1, 1] by the bounds of the space and, if `clip`, clipped;
    entries without bounds are not changed. Discrete actions become one-hot vectors, those of all
    `groups` concatenated, see `ActionGroups`; `groups` is None for continuous actions.
    """

    centre: Tensor
    scale: Tensor
    limit: Tensor
    starts: Tensor

    def __init__(self, space: gymnasium.Space, *, clip: bool = True) -> None:
        super().__init__()
        self.space = space = require_actions(space)
        self.clip = clip
        self.groups: ActionGroups | None = None
        if not isinstance(space, gymnasium.spaces.Box):
            self.groups = ActionGroups.of(space)
            self.size = self.groups.size
            self.register_buffer("starts", torch.tensor(self.groups.starts), persistent=False)
            return
        self.size, unit = math.prod(space.shape), UnitRange.of(space)
        # Not `half`: modules have a method of that name.
        for name, array in (
            ("centre", unit.centre),
            ("scale", np.where(unit.half > 0, unit.half, np.float32(1))),  # 0: one value
            ("limit", unit.limit),
        ):
            self.register_buffer(name, torch.from_numpy(array.reshape(-1)), persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        if self.groups is not None:
            # With the number of entries, not −1: one entry must not be broadcast to all groups.
            index = action.reshape(len(action), len(self.starts)).long() - self.starts
            parts = [one_hot(index[:, b.entries], b.size).flatten(1) for b in self.groups.blocks]
            return torch.cat(parts, 1).to(torch.float32)
        flat = action.reshape(len(action), -1).to(torch.float32)
        unit = (flat - self.centre) / self.scale
        if not self.clip:
            return unit
        return torch.maximum(torch.minimum(unit, self.limit), -self.limit)

    def inverse(self, unit: Tensor | Array) -> Array:
        """Continuous actions [n, *action] of `space`, within its bounds, for [n, `size`]."""
        assert isinstance(self.space, gymnasium.spaces.Box)
        rows = unit.cpu().numpy() if isinstance(unit, Tensor) else unit
        flat = self.centre.cpu().numpy() + self.scale.cpu().numpy() * rows
        actions = flat.reshape(len(flat), *self.space.shape)
        # On a few rows, np.clip takes twice as long.
        bounded = np.minimum(np.maximum(actions, self.space.low), self.space.high)
        return bounded.astype(self.space.dtype, copy=False)
