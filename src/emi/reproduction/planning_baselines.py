"""What planning in the embedding is compared with, on the same data.

CEM searches over sequences of actions in EMI's linear model. ICM's forward model predicts one step
ahead in its own features. Behaviour cloning learns the action of a path from its state and a later
state of it.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from emi.batch import Array, Columns, Transitions, as_tensor, in_pieces
from emi.intrinsic.actions import ActionVectors
from emi.intrinsic.descent import Descent
from emi.intrinsic.emi import EMI
from emi.intrinsic.icm import ICM
from emi.intrinsic.reading import Reading
from emi.nets import mlp, newest_entries, trunk
from emi.planning.landmarks import paths_of

# Samples, elites and rounds as in DINO-WM's and stable-worldmodel's configurations.
CEM_SAMPLES, CEM_ELITES, CEM_ITERATIONS = 300, 30, 30
CEM_HORIZON = 10
CEM_ROWS = 8  # states planned for at once: with more, the intermediate results leave the cache
ICM_CANDIDATES = 64  # actions that are compared
CLONED_AHEAD = 50  # the goal of a cloned action is at most so many steps later
CLONING_STEPS = 2_000  # minibatches of 256


class CEM:
    """The cross-entropy method on φ(s) + Σ ψ(a), replanned in every step, as is usual.

    300 sequences of 10 actions, 30 rounds, the 30 best are kept.
    """

    def __init__(self, emi: EMI, seed: int) -> None:
        self.emi = emi
        self._rng = torch.Generator().manual_seed(seed)

    def embed(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.emi.embed_state(obs)

    def encode(self, obs: Columns) -> Tensor:
        """The same for the current observations."""
        return self.embed(obs)

    @torch.no_grad()
    def act_from(self, phi: Tensor, goal: Tensor) -> Array:
        """The first actions [n, *action] of the best sequences from φ(s) to φ(g); [n, d] each."""
        found = [self._first_actions(delta) for delta in (goal - phi).split(CEM_ROWS)]
        return self.emi.actions.inverse(torch.cat(found))

    def _first_actions(self, delta: Tensor) -> Tensor:
        """The same as vectors [n, size], for displacements Δ [n, d]."""
        k = self.emi.actions.size
        mean = torch.zeros(len(delta), 1, CEM_HORIZON, k)
        std = torch.ones_like(mean)
        for _ in range(CEM_ITERATIONS):
            shape = len(delta), CEM_SAMPLES, CEM_HORIZON, k
            plans = (mean + std * torch.randn(shape, generator=self._rng)).clamp(-1, 1)
            reached = self.emi.psi(plans.reshape(-1, k)).reshape(*shape[:3], -1).sum(2)
            cost = (delta[:, None] - reached).square().sum(2)
            best = cost.topk(CEM_ELITES, largest=False).indices
            elites = plans.gather(1, best[..., None, None].expand(-1, -1, CEM_HORIZON, k))
            mean, std = elites.mean(1, keepdim=True), elites.std(1, keepdim=True)
        return mean[:, 0, 0]


class ForwardICM:
    """The greedy planner on ICM: the action after which f(φ(s), a) is nearest to φ(g)."""

    def __init__(self, icm: ICM) -> None:
        self.icm = icm
        unit = torch.quasirandom.SobolEngine(icm.actions.size).draw(ICM_CANDIDATES)
        self._candidates = 2 * unit - 1

    def embed(self, obs: Columns) -> Tensor:
        """ICM's φ(s): [n, *observation] to [n, d]."""
        return self.icm.embed_state(obs)

    def encode(self, obs: Columns) -> Tensor:
        """The same for the current observations."""
        return self.embed(obs)

    @torch.no_grad()
    def act_from(self, phi: Tensor, goal: Tensor) -> Array:
        """The next actions [n, *action] from ICM's φ(s) to φ(g); [n, d] each."""
        count = len(self._candidates)
        states = phi.repeat_interleave(count, 0)
        actions = self._candidates.repeat(len(phi), 1)
        after = self.icm.f(torch.cat([states, actions], 1)).reshape(len(phi), count, -1)
        best = (goal[:, None] - after).norm(dim=2).argmin(1)
        return self.icm.actions.inverse(self._candidates[best])


class Cloning(nn.Module):
    """Goal-conditioned behaviour cloning: a(s, g), trained on states s and later states g."""

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space, seed: int
    ) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.actions = ActionVectors(action_space)
        self.reading = Reading(observation_space, normalize=True)
        self.entries, _ = newest_entries(self.reading.space)
        self.features, width = trunk(self.reading.space, (128, 128), "relu", rng, newest_frame=True)
        self.head = mlp([2 * width, 256, self.actions.size], "relu", rng)
        self.descent = Descent(self.parameters(), 1e-3, rng)
        self._rng = np.random.default_rng(seed)

    def learn(self, batch: Transitions, steps: int = CLONING_STEPS) -> float:
        """Take gradient steps on pairs of one path; returns the last loss."""
        if self.reading.observed is not None:
            self.reading.learn(batch)
        order, path = paths_of(batch)
        last = np.searchsorted(path, path, side="right") - 1  # of each row's path
        loss = torch.zeros(())
        for _ in range(steps):
            row = self._rng.integers(len(order), size=256)
            ahead = self._rng.integers(0, CLONED_AHEAD, size=256)
            later = np.minimum(row + ahead, last[row])
            with torch.enable_grad():
                guess = self(
                    self._read(batch.obs[order[row]]), self._read(batch.next_obs[order[later]])
                )
                taken = self.actions(as_tensor(batch.action[order[row]]))
                loss = (guess - taken).square().sum(1).mean()
                self.descent.step(loss)
        return float(loss.detach())

    def _read(self, obs: Columns) -> Tensor:
        return as_tensor(self.entries.newest(self.reading.observations(obs)))

    def forward(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self.head(torch.cat([self.features(obs), self.features(goal)], 1))

    def embed(self, obs: Columns) -> Tensor:
        """The features of states, [n, *observation] to [n, width]."""
        return in_pieces(self.features, "cpu", self._read(obs))

    def encode(self, obs: Columns) -> Tensor:
        """The same for the current observations."""
        return self.embed(obs)

    @torch.no_grad()
    def act_from(self, phi: Tensor, goal: Tensor) -> Array:
        """The cloned actions [n, *action], given the features of s and of the goal [n, width]."""
        u = self.head(torch.cat([phi, goal], 1)).clamp(-1, 1)
        return self.actions.inverse(u)


class RandomActions:
    """Uniform random actions."""

    def __init__(self, action_space: gymnasium.Space, seed: int) -> None:
        self._actions = ActionVectors(action_space)
        self._rng = torch.Generator().manual_seed(seed)

    def embed(self, obs: Columns) -> Tensor:
        """Nothing: [n, 0]."""
        return torch.zeros(len(np.asarray(obs)), 0)

    def encode(self, obs: Columns) -> Tensor:
        """The same for the current observations."""
        return self.embed(obs)

    def act_from(self, phi: Tensor, goal: Tensor) -> Array:
        """Actions [n, *action] that depend neither on the state nor on the goal."""
        return self._actions.inverse(
            2 * torch.rand(len(goal), self._actions.size, generator=self._rng) - 1
        )
