"""Goal reaching with a trained EMI: φ(s') ≈ φ(s) + ψ(a) + S(s, a), hence no search over futures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array, Columns, FloatArray, as_tensor
from emi.errors import UserError
from emi.intrinsic.emi import EMI
from emi.planning.combination import all_actions, best_first_action, sums_of
from emi.planning.projection import (
    AffineActions,
    Effect,
    greedy_action,
    steps_to,
    straight_action,
)
from emi.planning.small_networks import array_of, on_arrays

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
            self._psi_of = on_arrays(emi.psi, emi.device)
            self._affine = AffineActions.of(self._psi_of, emi.actions.size)
            if self.use_error:
                self._features = on_arrays(emi.S.state, emi.device)
                self._joint = on_arrays(emi.S.joint, emi.device)
                mix = emi.S.action
                self._mix = None if mix is None else on_arrays(mix, emi.device)
            return
        self._table = all_actions(groups)
        self._psi = emi.embed_action(self._table)
        self._longest = max(float(self._psi.norm(dim=1).max()), 1e-12)
        self._sums, self._sizes = sums_of(self._psi, horizon - 1 if mode == "straight" else 0)

    def embed(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.emi.embed_state(obs)

    def act(self, obs: Columns, goal: Tensor) -> Array:
        """The next actions [n, *action] for [n, *observation] and goals φ(g) [n, d]."""
        return self.act_from(obs, self.embed(obs), goal)

    def act_from(self, obs: Columns, phi: Tensor, goal: Tensor) -> Array:
        """The same if φ(s) [n, d] is known."""
        return self.act_towards(obs, goal - phi)

    def act_towards(self, obs: Columns, delta: Tensor) -> Array:
        """The next actions [n, *action] towards the displacements Δ [n, d] of φ."""
        if self._affine is None:
            return self._choose(delta, self._error_of(obs) if self.use_error else None)
        choose = straight_action if self.mode == "straight" else greedy_action
        effect = self._effect_at(obs) if self.use_error else self._psi_of
        u = choose(array_of(delta), self._affine, effect, self.refinements)
        return self.emi.actions.inverse(torch.from_numpy(u))

    def _effect_at(self, obs: Columns) -> Effect:
        """ψ(·) + S(s, ·) of continuous actions, one for each of the n states."""
        emi, psi, joint, mix = self.emi, self._psi_of, self._joint, self._mix
        read = as_tensor(emi.entries.newest(emi.reading.observations(obs)), emi.device)
        features = self._features(array_of(read))

        def effect(u: Array) -> Array:
            action = u if mix is None else mix(u)
            return psi(u) + joint(np.concatenate([features, action], 1))

        return effect

    @torch.no_grad()
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

    def steps(self, delta: Tensor) -> Tensor:
        """The number of steps that a displacement Δ takes in the linear model; [..., d] to [...].

        For continuous actions it is exact in that model, before rounding up. For discrete actions
        it is a lower bound: ‖Δ‖ divided by the longest ‖ψ‖.
        """
        return torch.from_numpy(self.array_steps(array_of(delta))).to(delta)

    def array_steps(self, delta: Array) -> FloatArray:
        """The same for arrays."""
        if self._affine is not None:
            return steps_to(delta, self._affine).astype(np.float64)
        return np.asarray(np.linalg.norm(delta, axis=-1) / self._longest, np.float64)

    def prediction(self, obs: Columns, action: Array) -> Tensor:
        """φ(s) + ψ(a) + S(s, a), the predicted φ(s'); [n, d]."""
        found = self.embed(obs) + self.emi.embed_action(np.asarray(action))
        return found + self.emi.error(obs, np.asarray(action)) if self.use_error else found
