"""A method of your own in forty lines: what it must have, and how to see whether it works.

Counts of visits to the cells of a grid, 1/√n. A method is an `nn.Module` with `learns_first`,
`reward`, which changes nothing, and `learn`. Its buffers are saved with it.

    python examples/05_new_method.py
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn

import emi


class GridCounts(nn.Module):
    """Pays 1/√(visits of the cell that the successor lies in)."""

    learns_first = False  # a batch is paid by what was known before it

    def __init__(self, low: np.ndarray, high: np.ndarray, cells: int = 20) -> None:
        super().__init__()
        self.cells = cells
        self.register_buffer("low", torch.as_tensor(low))
        self.register_buffer("size", torch.as_tensor(high - low))
        self.register_buffer("counts", torch.zeros(cells ** len(low)))

    def _cell(self, obs: Tensor) -> Tensor:
        """[n, d] to [n], the number of the cell."""
        unit = ((obs - self.low) / self.size).clamp(0, 1 - 1e-6)
        powers = self.cells ** torch.arange(unit.shape[1])
        return ((unit * self.cells).long() * powers).sum(1)

    def reward(self, batch: emi.Transitions) -> Tensor:
        visits = self.counts[self._cell(torch.as_tensor(batch.next_obs))]
        return 1 / (1 + visits).sqrt()

    def learn(self, batch: emi.Transitions) -> dict[str, float]:
        cells = self._cell(torch.as_tensor(batch.next_obs))
        self.counts += torch.bincount(cells, minlength=len(self.counts))
        return {"counts/cells_seen": float((self.counts > 0).sum())}


envs = gymnasium.make_vec(
    "MountainCarContinuous-v0",
    num_envs=4,
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
)
space = envs.single_observation_space
method = GridCounts(space.low, space.high)

# A random walk of 500 steps, one environment after the other, each in the order of time.
envs.action_space.seed(0)
path = [envs.reset(seed=0)[0]]
actions = []
for _ in range(500):
    actions.append(envs.action_space.sample())
    path.append(envs.step(actions[-1])[0])
obs, action = np.stack(path).swapaxes(0, 1), np.stack(actions).swapaxes(0, 1)
batch = emi.Transitions(
    obs[:, :-1].reshape(-1, 2), action.reshape(-1, 1), obs[:, 1:].reshape(-1, 2)
)

bonus, scalars = emi.score_and_learn(method, batch)
print(f"first visit: {bonus.mean():.2f}, again: {method.reward(batch).mean():.2f}; {scalars}\n")
print(emi.diagnose(method, batch))
