"""An intrinsic reward in a Gymnasium vector environment, for any trainer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from emi.adapters.schedule import Eta, eta_at
from emi.adapters.step_scorer import StepScorer
from emi.batch import (
    Array,
    BoolArray,
    FloatArray,
    Transitions,
    joined,
    map_columns,
    named_columns,
)
from emi.errors import UserError, check_finite
from emi.intrinsic.contract import (
    IntrinsicReward,
    checked_learn,
    require_fit,
)
from emi.intrinsic.outside_state import (
    OutsideState,
    check_optimizers,
    load_optimizers,
    optimizer_states,
)
from emi.spaces import autoreset_mode
from emi.stored_state import check_module


class IntrinsicRewardVectorWrapper(VectorWrapper):
    """Adds eta · bonus to the reward of every step.

    Nothing is added before the method is trained for the first time: its bonus is noise until then,
    and its scale (RND, `NormalizeReward`) is arbitrary. With `pretrained` the bonus is added from
    the first step.

    The method is trained after every `learn_every` steps, on all their transitions together: at
    most learn_every · num_envs, each exactly once. A step is scored as soon as it is taken, by the
    method as of its last training. This also holds for methods with `learns_first` (EX2, SimHash,
    EMI-D), which other trainers train on a batch before they score it. Here their counts do not
    include the visits since the last training.

    A method scores one row per environment at a time. EX2, EMI-D and VIME compare a row with the
    others of its batch: with few environments their bonus is noisy; with one, EX2 gives 0 and
    EMI-D depends only on the length of the step.

    Transitions never cross an episode end, in any autoreset mode of Gymnasium. With SAME_STEP the
    successor comes from `info["final_obs"]`. With NEXT_STEP the step that only resets is neither
    scored nor trained on, and keeps the reward of the environment. With DISABLED the caller resets
    all environments, or those of `options={"reset_mask": mask}`. A call of `reset` in the middle of
    an episode ends it, in all modes.

    The `info` of each step holds the environment's reward as `reward_env` and the `bonus` before
    the multiplication by eta, [num_envs] float64 each, with Gymnasium's masks: `_bonus` is False
    for a step that only resets, and before the first training. The property `scalars` has the
    scalars of the last training.
    """

    def __init__(
        self,
        envs: VectorEnv,
        method: IntrinsicReward,
        eta: Eta,
        learn_every: int,
        *,
        intrinsic_only: bool = False,
        pretrained: bool = False,
    ) -> None:
        super().__init__(envs)
        self._mode = autoreset_mode(envs)
        require_fit(
            method,
            envs.single_observation_space,
            envs.single_action_space,
            "build it from envs.single_observation_space and envs.single_action_space",
        )
        if learn_every < 1:
            raise UserError(f"learn_every must be 1 or more, got {learn_every}")
        eta_at(eta, 0)  # raise for a wrong value here, not in the first step
        self.method = method
        self._outside = OutsideState(method)
        self.eta = eta
        self.learn_every = learn_every
        self.intrinsic_only = intrinsic_only
        self._taken = 0
        self._learnt = pretrained
        self._scalars: dict[str, float] = {}
        # These arrays are never written to: consecutive steps share them.
        self._obs: Any = None  # [env, *observation], s of the next step; None before a reset
        self._resetting = np.zeros(envs.num_envs, bool)  # the next step only resets these
        self._unlearnt: list[Transitions] = []
        self._steps_unlearnt = 0
        self._inside = np.zeros(envs.num_envs, bool)  # in the middle of an episode
        self._scorer = StepScorer(method)

    @property
    def steps(self) -> int:
        """Transitions so far, of all environments together."""
        return self._taken

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars of the last training of the method; empty before the first."""
        return dict(self._scalars)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")  # read first: Gymnasium's environments remove it
        which = np.ones(self.num_envs, bool) if mask is None else np.array(mask)
        obs, info = self.env.reset(seed=seed, options=options)
        if isinstance(obs, torch.Tensor):
            raise UserError(
                "the environments must return NumPy arrays, got tensors: put wrappers such as "
                "NumpyToTorch around this one, not inside it"
            )
        start = map_columns(np.array, obs)
        _require_finite(start)
        if self._obs is not None:
            map_columns(lambda x, old: x.__setitem__(~which, old[~which]), start, self._obs)
        self._obs, self._resetting = start, self._resetting & ~which
        if (early := self._inside & which).any():
            self._scorer.end_early(np.flatnonzero(early).tolist(), self._unlearnt)
        self._inside = self._inside & ~which
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self._obs is None:
            raise ResetNeeded("call reset before the first step")
        action = map_columns(np.array, actions)  # a copy: trainers may reuse their arrays
        obs, reward, terminated, truncated, info = self.env.step(actions)
        after = map_columns(np.array, obs)
        ended, real = np.logical_or(terminated, truncated), ~self._resetting
        next_obs = self._successors(after, ended, info)
        batch = Transitions(self._obs, action, next_obs, np.arange(self.num_envs), ended)
        if not real.all():
            batch = batch[real]

        scored = real & self._learnt
        bonus = np.zeros(self.num_envs)
        if self._learnt:
            bonus[real] = self._score(batch)
        reward_env = np.array(reward, np.float64)
        total = np.zeros(self.num_envs) if self.intrinsic_only else reward_env.copy()
        eta = eta_at(self.eta, self._taken)
        if eta > 0:  # otherwise no bit of the reward changes, not even the sign of −0
            total[real] += eta * bonus[real]

        next_step = self._mode is AutoresetMode.NEXT_STEP
        self._obs, self._resetting = after, ended & real & next_step
        self._inside = real & ~ended
        self._taken += len(batch)
        self._gather(batch)
        info = {
            **info,
            "reward_env": reward_env,
            "_reward_env": np.ones(self.num_envs, bool),
            "bonus": bonus,
            "_bonus": scored,
        }
        return obs, total, terminated, truncated, info

    def _successors(self, after: Any, ended: BoolArray, info: dict[str, Any]) -> Any:
        """s' of every environment, also where `after` belongs to the next episode."""
        _require_finite(after)
        if self._mode is not AutoresetMode.SAME_STEP or not ended.any():
            return after
        if "final_obs" not in info:
            raise UserError(
                "the vector environment resets in the same step and must return the last "
                'observation of an episode in info["final_obs"]'
            )
        successors = map_columns(np.copy, after)
        for env in np.flatnonzero(ended):
            last = info["final_obs"][env]
            map_columns(lambda x, end, env=env: x.__setitem__(env, end), successors, last)
        _require_finite(successors)
        return successors

    def _score(self, batch: Transitions) -> FloatArray:
        """Bonuses [n] of the method as of its last training."""
        if len(batch) == 0:
            return np.zeros(0)
        bonus = self._scorer(batch, self._unlearnt)
        return bonus.cpu().numpy().astype(np.float64)

    def _gather(self, batch: Transitions) -> None:
        """Store the transitions of a step; train after `learn_every` steps."""
        if len(batch) > 0:
            self._unlearnt.append(batch)
        self._steps_unlearnt += 1
        if self._steps_unlearnt >= self.learn_every:
            if self._unlearnt:
                self._scalars = checked_learn(self.method, joined(self._unlearnt))
                self._learnt = True
                self._scorer.renew()
            self._unlearnt, self._steps_unlearnt = [], 0

    def state_dict(self) -> dict[str, Any]:
        """The state of the method, the transitions not yet trained on, and the last observations.

        Nested dicts of tensors and plain values. The state of the environments is not included:
        restore them yourself, or reset them. A warning names plain attributes of the method that
        changed and are not included.
        """
        self._outside.warn()
        unlearnt = None
        if self._unlearnt:
            rows = vars(joined(self._unlearnt))
            unlearnt = {name: map_columns(torch.tensor, column) for name, column in rows.items()}
        return {
            "method": copy.deepcopy(dict(self.method.state_dict())),  # training will change it
            "optimizers": copy.deepcopy(optimizer_states(self.method)),
            "learnt": self._learnt,
            "scalars": self.scalars,
            "steps": self._taken,
            "obs": None if self._obs is None else map_columns(torch.tensor, self._obs),
            "resetting": torch.tensor(self._resetting),
            "inside": torch.tensor(self._inside),
            "steps_unlearnt": self._steps_unlearnt,
            "unlearnt": unlearnt,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` of another wrapper returned."""
        resetting = _array(state["resetting"])
        if len(resetting) != self.num_envs:
            raise UserError(
                f"the state is of {len(resetting)} environments, the wrapper has {self.num_envs}"
            )
        check_module(self.method, state["method"], "method")
        check_optimizers(self.method, state["optimizers"], "optimizers")
        self.method.load_state_dict(state["method"])
        load_optimizers(self.method, state["optimizers"])
        self._learnt = state["learnt"]
        self._scalars = dict(state["scalars"])
        self._taken = state["steps"]
        self._obs = None if state["obs"] is None else map_columns(_array, state["obs"])
        self._resetting = resetting
        self._steps_unlearnt = state["steps_unlearnt"]
        self._unlearnt, unlearnt = [], state["unlearnt"]
        if unlearnt is not None:
            self._unlearnt = [Transitions(**map_columns(_array, unlearnt))]
        # States of earlier versions lack it: their methods remember no episode.
        self._inside = _array(state["inside"]) if "inside" in state else resetting & False
        self._scorer.renew()


def _array(tensor: torch.Tensor) -> Array:
    """A copy, so that the wrapper shares no memory with the state."""
    return tensor.cpu().numpy().copy()


def _require_finite(obs: Any) -> None:
    for name, column in named_columns(obs, "observation"):
        check_finite(name, np.asarray(column))
