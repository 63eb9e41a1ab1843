"""A method of your own in forty lines: a subclass of `emi.IntrinsicReward`.

It counts visits to the cells of a grid and works wherever the methods of the package do: in
`emi.train`, on the command line, in sums, in the adapters, in checkpoints and in `emi.diagnose`.

    python examples/05_new_method.py
    cd examples && emi train gym:MountainCarContinuous-v0 --method 05_new_method:GridCounts
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

import emi


@dataclass(frozen=True)
class GridCountsConfig:
    """Settings of `GridCounts`."""

    cells: int = 20
    """cells along each entry of an observation"""
    limit: float = 10.0
    """entries without bounds are clipped to ± this value"""
    slots: int = 2**20
    """size of the hash table that holds the counts"""


class GridCounts(emi.IntrinsicReward):
    """1 / √(1 + visits to the cell of s').

    Scalars of `learn`: `counts/cells_seen`, the number of slots of the table in use.
    """

    low: Tensor  # [d]
    size: Tensor  # [d]
    multipliers: Tensor  # [d], the hash function
    counts: Tensor  # [slots]

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: GridCountsConfig = GridCountsConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(observation_space, gymnasium.spaces.Box):
            raise emi.UserError(f"GridCounts needs vectors, got {observation_space}")
        self.config = config
        bounds = np.stack([observation_space.low.ravel(), observation_space.high.ravel()])
        low, high = torch.as_tensor(bounds.clip(-config.limit, config.limit))
        generator = torch.Generator().manual_seed(seed)
        # Buffers are part of state_dict, and so of every checkpoint.
        self.register_buffer("low", low)
        self.register_buffer("size", (high - low).clamp(min=1e-6))
        self.register_buffer("multipliers", torch.randint(2**40, low.shape, generator=generator))
        self.register_buffer("counts", torch.zeros(config.slots))

    def _slots(self, batch: emi.Transitions) -> Tensor:
        """The slot of the cell of each s', [n]."""
        obs = torch.as_tensor(batch.next_obs, device=self.device).flatten(1)
        unit = ((obs - self.low) / self.size).clamp(0, 1 - 1e-6)
        return ((unit * self.config.cells).long() * self.multipliers).sum(1) % self.config.slots

    def reward(self, batch: emi.Transitions) -> Tensor:
        return (1 + self.counts[self._slots(batch)]).rsqrt()

    def learn(self, batch: emi.Transitions) -> dict[str, float]:
        self.counts += torch.bincount(self._slots(batch), minlength=self.config.slots)
        return {"counts/cells_seen": float((self.counts > 0).sum())}


def random_walk(envs: gymnasium.vector.VectorEnv, steps: int) -> emi.Transitions:
    """Transitions of random actions: one environment after the other, each in time order."""
    envs.action_space.seed(0)
    path, actions = [envs.reset(seed=0)[0]], []
    for _ in range(steps):
        actions.append(envs.action_space.sample())
        path.append(envs.step(actions[-1])[0])
    obs, action = np.stack(path).swapaxes(0, 1), np.stack(actions).swapaxes(0, 1)
    rows = [part.reshape(-1, part.shape[-1]) for part in (obs[:, :-1], action, obs[:, 1:])]
    return emi.Transitions(*rows)


if __name__ == "__main__":
    envs = gymnasium.make_vec(
        "MountainCarContinuous-v0",
        num_envs=4,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    method = GridCounts(envs.single_observation_space, envs.single_action_space)
    batch = random_walk(envs, steps=500)  # shorter than an episode: no row crosses a reset
    bonus, scalars = emi.score_and_learn(method, batch)
    print(f"first visit: {bonus.mean():.2f}, again: {method.reward(batch).mean():.2f}; {scalars}\n")
    print(emi.diagnose(method, batch))

    print("\nsteps   bonus   cells")
    for report in emi.train("gym:MountainCarContinuous-v0", GridCounts, steps=20_000, eta=0.1):
        m = report.metrics
        print(f"{report.steps:>6,}  {m['bonus_mean']:6.3f}  {m['counts/cells_seen']:6.0f}")
