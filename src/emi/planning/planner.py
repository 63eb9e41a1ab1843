"""Goal reaching with a trained EMI: φ(s') ≈ φ(s) + ψ(a) + S(s, a), hence no search over futures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array, Columns, as_tensor
from emi.errors import UserError
from emi.intrinsic.emi import EMI
from emi.planning.combination import all_actions, best_first_action, sums_of
from emi.planning.projection import AffineActions, greedy_action, steps_to, straight_action

Mode = Literal["straight", "greedy"]


class Planner:
    """Actions that bring an environment to a goal, from the embedding of a trained `emi.EMI`.

    A goal is an observation, given as its embedding: `goal = planner.embed(goal_obs)`. The control
    is closed: call `act` with the current observations in every step. All methods are batched, and
    a row does not depend on the others.

    `mode` "straight" takes the first action of the shortest plan in the linear model (receding
    horizon), "greedy" the action after which the state is nearest to the goal. `horizon` is the
    longest plan for discrete actions; continuous plans have any length. `use_error` adds S(s, a) to
    the effect of the first action. S reads observations, so it is not known for later ones.
    """

    def __init__(
        self,
        emi: EMI,
        mode: Mode = "straight",
        *,
        horizon: int = 4,
        refinements: int = 2,
        use_error: bool = True,
    ) -> None:
        self.emi = emi
        self.mode = mode
        self.refinements = refinements
        self.use_error = use_error and emi.config.error_model
        groups = emi.actions.groups
        self._affine: AffineActions | None = None
        if groups is None:
            if not bool(torch.isfinite(emi.actions.limit).all()):
                raise UserError("a planner needs bounded actions: give the Box finite bounds")
            with torch.no_grad():
                self._affine = AffineActions.of(emi.psi, emi.actions.size, emi.device)
            return
        self._table = all_actions(groups)
        self._psi = emi.embed_action(self._table)
        self._sums, self._sizes = sums_of(self._psi, horizon - 1 if mode == "straight" else 0)

    def embed(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.emi.embed_state(obs)

    def act(self, obs: Columns, goal: Tensor) -> Array:
        """The next actions [n, *action] for [n, *observation] and goals φ(g) [n, d]."""
        return self.act_towards(obs, goal - self.embed(obs))

    @torch.no_grad()
    def act_towards(self, obs: Columns, delta: Tensor) -> Array:
        """The next actions [n, *action] towards the displacements Δ [n, d] of φ."""
        error = self._error_of(obs) if self.use_error else None
        if self._affine is None:
            return self._choose(delta, error)
        choose = straight_action if self.mode == "straight" else greedy_action

        def effect(u: Tensor) -> Tensor:
            psi: Tensor = self.emi.psi(u)
            return psi if error is None else psi + error(u)

        u = choose(delta, self._affine, effect, self.refinements)
        return self.emi.actions.inverse(u)

    def _choose(self, delta: Tensor, error: Callable[[Tensor], Tensor] | None) -> Array:
        """Discrete actions [n, *action] towards Δ [n, d]."""
        n, count = len(delta), len(self._psi)
        effect = self._psi.expand(n, -1, -1)
        if error is not None:
            one_hot = self.emi.actions(as_tensor(self._table, self.emi.device))
            # S of every pair of a state and an action, the states slowest.
            every = one_hot.expand(n, -1, -1).reshape(n * count, -1)
            effect = effect + error(every).reshape(n, count, -1)
        chosen = best_first_action(delta, effect, self._sums, self._sizes)
        return self._table[chosen.cpu().numpy()]

    def _error_of(self, obs: Columns) -> Callable[[Tensor], Tensor]:
        """S(s, ·) on action vectors [m · n, size], m for each of the n states in turn."""
        emi = self.emi
        features = emi.S.state(
            as_tensor(emi.entries.newest(emi.reading.observations(obs)), emi.device)
        )

        def error(u: Tensor) -> Tensor:
            rows = features.repeat_interleave(len(u) // len(features), 0)
            return emi.S.join(rows, u)

        return error

    @torch.no_grad()
    def steps(self, delta: Tensor) -> Tensor:
        """The number of steps that a displacement Δ takes in the linear model; [..., d] to [...].

        For continuous actions it is exact in that model, before rounding up. For discrete actions
        it is a lower bound: ‖Δ‖ divided by the longest ‖ψ‖.
        """
        flat = delta.reshape(-1, delta.shape[-1])
        if self._affine is not None:
            found = steps_to(flat, self._affine)
        else:
            found = flat.norm(dim=1) / self._psi.norm(dim=1).max().clamp(min=1e-12)
        return found.reshape(delta.shape[:-1])

    def prediction(self, obs: Columns, action: Array) -> Tensor:
        """φ(s) + ψ(a) + S(s, a), the predicted φ(s'); [n, d]."""
        found = self.embed(obs) + self.emi.embed_action(np.asarray(action))
        return found + self.emi.error(obs, np.asarray(action)) if self.use_error else found
