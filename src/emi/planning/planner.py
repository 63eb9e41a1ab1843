"""Goal reaching with a trained EMI: φ(s') ≈ φ(s) + ψ(a) + S(s, a), hence no search over futures."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array, Columns, FloatArray, as_tensor, in_pieces
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


class EncodedStates(NamedTuple):
    """The current states as a plan needs them."""

    phi: Tensor  # φ(s) [n, d]
    features: Tensor | None  # of S [n, width], if it is used


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

    def encode(self, obs: Columns) -> EncodedStates:
        """What a plan needs of the current observations [n, *observation], read once."""
        emi = self.emi
        read = emi.reading.observations(obs)
        phi = emi.embed_read(read)
        if not self.use_error:
            return EncodedStates(phi, None)
        return EncodedStates(phi, in_pieces(emi.S.state, emi.device, emi.entries.newest(read)))

    def act(self, obs: Columns, goal: Tensor) -> Array:
        """The next actions [n, *action] for [n, *observation] and goals φ(g) [n, d]."""
        return self.act_from(self.encode(obs), goal)

    def act_from(self, state: EncodedStates, goal: Tensor) -> Array:
        """The same for encoded observations."""
        return self.act_towards(state, array_of(goal) - array_of(state.phi))

    def act_towards(self, state: EncodedStates, delta: Array) -> Array:
        """The next actions [n, *action] towards the displacements Δ [n, d] of φ."""
        if self._affine is None:
            return self._choose(state, torch.from_numpy(delta).to(self.emi.device))
        choose = straight_action if self.mode == "straight" else greedy_action
        u = choose(delta, self._affine, self._effect_at(state), self.refinements)
        return self.emi.actions.inverse(u)

    def _effect_at(self, state: EncodedStates) -> Effect:
        """ψ(·) + S(s, ·) of continuous actions, one for each of the n states."""
        if state.features is None:
            return self._psi_of
        psi, joint, mix = self._psi_of, self._joint, self._mix
        features = array_of(state.features)

        def effect(u: Array) -> Array:
            action = u if mix is None else mix(u)
            return psi(u) + joint(np.concatenate([features, action], 1))

        return effect

    @torch.no_grad()
    def _choose(self, state: EncodedStates, delta: Tensor) -> Array:
        """Discrete actions [n, *action] towards Δ [n, d]."""
        n, count = len(delta), len(self._psi)
        effect = self._psi.expand(n, -1, -1)
        if state.features is not None:
            one_hot = self.emi.actions(as_tensor(self._table, self.emi.device))
            # S of every pair of a state and an action, the states slowest.
            every = one_hot.expand(n, -1, -1).reshape(n * count, -1)
            features = state.features.repeat_interleave(count, 0)
            effect = effect + self.emi.S.join(features, every).reshape(n, count, -1)
        chosen = best_first_action(delta, effect, self._sums, self._sizes)
        return self._table[chosen.cpu().numpy()]

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
