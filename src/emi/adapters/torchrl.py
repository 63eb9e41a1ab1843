"""An intrinsic reward in TorchRL: a module for collected batches, a transform for single steps.

    intrinsic = IntrinsicRewardModule(method, eta=0.01, action_spec=env.action_spec)
    for data in collector:
        intrinsic(data)  # scores the batch, trains the method, adds eta · bonus to the reward
        advantage(data)

TorchRL stores the true successor in ("next", observation), also where an episode ends: the first
observation of the next episode is at the root of the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from emi.adapters.schedule import Eta, eta_at
from emi.adapters.step_scorer import StepScorer
from emi.adapters.tensor_rows import Continuity, Pending, summary, with_successors
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import (
    IntrinsicReward,
    checked_learn,
    score_and_learn,
)
from emi.program import install

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from tensordict.utils import NestedKey, unravel_key
    from torchrl.data import (
        Binary,
        Bounded,
        Categorical,
        Composite,
        MultiCategorical,
        MultiOneHot,
        OneHot,
        TensorSpec,
        Unbounded,
    )
    from torchrl.envs import EnvBase, Transform
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the adapter for TorchRL needs torchrl: {install('torchrl')}", name=error.name
    ) from error

OBSERVATION: tuple[NestedKey, ...] = ("observation",)
TIME = "time"  # the name that collectors and rollouts give to this axis


def torchrl_spaces(
    env: EnvBase, in_keys: Sequence[NestedKey] = OBSERVATION
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """The Gymnasium spaces of one environment of `env`, to build a method from.

    With several `in_keys` the observations are a `Dict` space. One-hot and categorical actions are
    both `Discrete`.
    """
    observed = env.observation_spec_unbatched
    parts = {_name(key): _space(observed[key]) for key in in_keys}
    alone = len(parts) == 1
    observations = next(iter(parts.values())) if alone else gymnasium.spaces.Dict(parts)
    return observations, _space(env.action_spec_unbatched)


def _space(spec: TensorSpec) -> gymnasium.Space:
    """The Gymnasium space of a spec without batch axes."""
    match spec:
        case MultiOneHot() | MultiCategorical():
            spec = spec.to_categorical_spec() if isinstance(spec, MultiOneHot) else spec
            return gymnasium.spaces.MultiDiscrete(np.asarray(spec.nvec.cpu()))
        case Binary():
            return gymnasium.spaces.MultiBinary(tuple(spec.shape))
        case OneHot() | Categorical():
            return gymnasium.spaces.Discrete(int(spec.space.n))
        case Bounded() | Unbounded():
            dtype = torch.empty(0, dtype=spec.dtype).numpy().dtype
            low, high = (bound.cpu().numpy() for bound in (spec.space.low, spec.space.high))
            if dtype.kind == "f":  # TorchRL writes the largest number where there is no bound
                limit = np.finfo(dtype).max
                low = np.where(low <= -limit, -np.inf, low).astype(dtype)
                high = np.where(high >= limit, np.inf, high).astype(dtype)
            return gymnasium.spaces.Box(low, high, tuple(spec.shape), dtype.type)
    raise UserError(f"observations and actions must be tensors with a known range, got {spec}")


def _name(key: NestedKey) -> str:
    """The name of a part of the observations: `a.b` for the key ("a", "b")."""
    return key if isinstance(key, str) else ".".join(key)


def _observation(keys: Sequence[NestedKey], read: Callable[[NestedKey], Tensor]) -> Any:
    """The tensor of the only key, or a dict of those of several keys."""
    parts = {_name(key): read(key) for key in keys}
    return parts if len(parts) > 1 else next(iter(parts.values()))


def _after(key: NestedKey) -> NestedKey:
    """The key of a value after the step."""
    return unravel_key(("next", key))


def _plain_action(action: Tensor, spec: TensorSpec | None, batch_axes: int) -> Tensor:
    """Categories of one-hot actions; other actions as they are."""
    if spec is not None and isinstance(spec, Composite):
        raise UserError(f"pass the spec of one action, not of all of them: {spec}")
    if isinstance(spec, OneHot):  # also MultiOneHot
        categories: Tensor = spec.to_categorical(action, safe=False)
        return categories
    if spec is None and not action.is_floating_point() and action.ndim > batch_axes:
        raise UserError(
            "actions of whole numbers or booleans may be one-hot vectors or not: "
            "pass action_spec=env.action_spec"
        )
    return action


class IntrinsicRewardModule(TensorDictModuleBase):  # type: ignore[misc] # no stubs
    """Adds eta · bonus to the rewards of a batch from a collector, and trains the method on it.

    Call it once for each batch, before the advantages are computed and outside the loop over
    epochs. The whole batch is scored and trained on together, in the order of `learns_first`; each
    transition is used once. The batch has the axes of a collector or rollout: any axes of
    environments, and time. Everything stays on the device of the batch and the method.

    In the batch, ("next", "reward") becomes reward + eta · bonus. The environment's reward is kept
    as ("next", "reward_env"), and the bonus before the multiplication by eta is stored as
    ("next", "intrinsic_reward"). With eta = 0 no bit of the reward changes. With `intrinsic_only`
    the bonus replaces the environment's reward.

    A step that ends an episode and whose last observation is NaN, as some environments with their
    own resets return it, has no known successor: it is not scored, not trained on, and gets no
    bonus. With several `in_keys` the observations are a dict of tensors.

    `eta` is a number or a function of the environment steps before the batch. `scalars` has the
    scalars to log: `intrinsic/bonus_mean`, `intrinsic/bonus_std`, `intrinsic/eta`,
    `intrinsic/share` (Σ|η·bonus| / (Σ|η·bonus| + Σ|r|)) and those of the method. `state_dict` holds
    the method with its optimizers, and the number of steps.
    """

    def __init__(
        self,
        method: IntrinsicReward,
        eta: Eta,
        *,
        action_spec: TensorSpec | None = None,
        in_keys: Sequence[NestedKey] = OBSERVATION,
        action_key: NestedKey = "action",
        reward_key: NestedKey = "reward",
        done_key: NestedKey = "done",
        bonus_key: NestedKey = "intrinsic_reward",
        reward_env_key: NestedKey = "reward_env",
        intrinsic_only: bool = False,
    ) -> None:
        super().__init__()
        eta_at(eta, 0)  # raise for a wrong value here, not in the first batch
        self.method = method
        self.eta = eta
        self.action_spec = action_spec
        self.intrinsic_only = intrinsic_only
        self.observation_keys = tuple(in_keys)
        self.action_key = action_key
        self.done_key, self.reward_key = _after(done_key), _after(reward_key)
        self.bonus_key, self.reward_env_key = _after(bonus_key), _after(reward_env_key)
        after = [_after(key) for key in self.observation_keys]
        self.in_keys = [*self.observation_keys, action_key, *after, self.reward_key, self.done_key]
        self.out_keys = [self.reward_key, self.bonus_key, self.reward_env_key]
        self._taken = 0
        self._scalars: dict[str, float] = {}
        self._continuity = Continuity()

    @property
    def steps(self) -> int:
        """Environment steps of all batches so far."""
        return self._taken

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars of the last batch; empty before the first."""
        return dict(self._scalars)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Change the batch in place, and return it."""
        _require_raw_batch(tensordict, self.reward_env_key)
        time = _time_axis(tensordict)
        shape = tensordict.batch_size
        rows = len(shape)

        def flat(column: Tensor) -> Tensor:
            return column.movedim(time, 0).flatten(0, rows - 1)  # [time, env] to [n]

        batch = self._transitions(tensordict, flat)
        known = _known_successors(batch)
        eta = eta_at(self.eta, self._taken)
        reward_env = tensordict.get(self.reward_key)
        scalars: dict[str, float] = {}
        scored = batch.action.new_zeros(len(batch), dtype=torch.float32)
        envs = shape.numel() // shape[time]
        self._continuity.check(self.method, batch, envs)
        if known is None:
            scored, scalars = score_and_learn(self.method, batch)
        elif len(some_rows := with_successors(self.method, batch, known, envs)) > 0:
            some, scalars = score_and_learn(self.method, some_rows)
            scored = scored.to(some.dtype).masked_scatter(known, some.to(known.device))

        others = [size for axis, size in enumerate(shape) if axis != time]
        grid = scored.to(reward_env.device).reshape(shape[time], *others).movedim(0, time)
        bonus = grid.reshape(reward_env.shape).to(reward_env.dtype)
        earned = torch.zeros_like(reward_env) if self.intrinsic_only else reward_env
        # With eta = 0 no bit of the reward changes, not even the sign of −0.
        total = earned + eta * bonus if eta > 0 else earned
        tensordict.set(self.reward_env_key, reward_env.clone())
        tensordict.set(self.bonus_key, bonus)
        tensordict.set(self.reward_key, total)
        self._taken += len(batch)
        self._scalars = {**summary(bonus, earned, eta), **scalars}
        return tensordict

    def _transitions(
        self, tensordict: TensorDictBase, flat: Callable[[Tensor], Tensor]
    ) -> Transitions:
        time, shape = _time_axis(tensordict), tensordict.batch_size
        obs = _observation(self.observation_keys, lambda key: flat(tensordict.get(key)))
        next_obs = _observation(
            self.observation_keys, lambda key: flat(tensordict.get(_after(key)))
        )
        action = _plain_action(tensordict.get(self.action_key), self.action_spec, len(shape))
        done = tensordict.get(self.done_key)
        envs = shape.numel() // shape[time]
        env_index = torch.arange(envs, device=done.device).repeat(shape[time])
        return Transitions(obs, flat(action), next_obs, env_index, flat(done).reshape(-1))

    def get_extra_state(self) -> dict[str, Any]:
        return {"steps": self._taken}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._taken = state["steps"]


def _require_raw_batch(tensordict: TensorDictBase, reward_env_key: NestedKey) -> None:
    keys = set(tensordict.keys(include_nested=True))
    if ("collector", "mask") in keys or "mask" in keys:
        raise UserError(
            "the batch is padded to whole trajectories: create the collector with "
            "split_trajs=False, and call split_trajectories after the bonus is added"
        )
    if reward_env_key in keys:
        raise UserError(
            "the bonus was added to this batch already: call the module once for each batch, "
            "before the loop over epochs"
        )


def _time_axis(tensordict: TensorDictBase) -> int:
    """The axis that is named time, or else the last."""
    if tensordict.ndim == 0 or tensordict.numel() == 0:
        raise UserError("the batch must have an axis of time and at least one step")
    names: list[str | None] = list(tensordict.names)
    return names.index(TIME) if TIME in names else tensordict.ndim - 1


def _known_successors(batch: Transitions) -> Tensor | None:
    """Which rows [n] have a successor; None if all do.

    Environments that reset themselves and do not return the last observation of an episode are
    filled with NaN by TorchRL. NaN anywhere else is an error of the environment.
    """
    ended: Any = batch.ended

    def is_nan(column: Tensor) -> Tensor:
        if not column.is_floating_point():
            return torch.zeros_like(ended)
        return column.isnan().flatten(1).any(1) if column.ndim > 1 else column.isnan()

    missing: Any = torch.zeros_like(ended)
    columns: Any = batch.next_obs
    for column in columns.values() if isinstance(columns, dict) else (columns,):
        missing = missing | is_nan(column)
    if not bool(missing.any()):
        return None
    if bool((missing & ~ended).any()):
        raise UserError("an observation in the middle of an episode is NaN")
    return ~missing


class IntrinsicRewardTransform(Transform):  # type: ignore[misc] # no stubs
    """Adds eta · bonus to the reward of every step, as a transform of an environment.

    Use it where rewards must be complete when a step is stored, as in a replay buffer. For
    on-policy training `IntrinsicRewardModule` is better: it scores whole batches.

    A step is scored when it is taken, by the method as of its last training. Nothing is added
    before the first training, unless the method is `pretrained`. The method is trained after every
    `learn_every` steps, on all their transitions together, each exactly once. Methods with
    `learns_first` therefore score a step before they are trained on it, and EX2, EMI-D and VIME
    compare few rows with each other: one for each environment.

    Place it after every transform that changes its `in_keys`; another order is an error. It reads
    actions as the innermost environment receives them. Use it in the process that trains: copies
    in worker processes would be trained apart from each other. TorchRL's `train` and `eval` have no
    effect on it: evaluate in an environment without this transform.

    Keys, `eta`, `intrinsic_only`, `scalars` and the handling of NaN are those of
    `IntrinsicRewardModule`. `state_dict` also holds the transitions that the method has not been
    trained on.
    """

    def __init__(
        self,
        method: IntrinsicReward,
        eta: Eta,
        learn_every: int,
        *,
        in_keys: Sequence[NestedKey] = OBSERVATION,
        action_key: NestedKey = "action",
        reward_key: NestedKey = "reward",
        done_key: NestedKey = "done",
        bonus_key: NestedKey = "intrinsic_reward",
        reward_env_key: NestedKey = "reward_env",
        intrinsic_only: bool = False,
        pretrained: bool = False,
    ) -> None:
        super().__init__(in_keys=list(in_keys), out_keys=[bonus_key, reward_env_key])
        if learn_every < 1:
            raise UserError(f"learn_every must be 1 or more, got {learn_every}")
        eta_at(eta, 0)
        self.method = method
        self.eta = eta
        self.learn_every = learn_every
        self.intrinsic_only = intrinsic_only
        self.action_key, self.reward_key, self.done_key = action_key, reward_key, done_key
        self.bonus_key, self.reward_env_key = bonus_key, reward_env_key
        self._taken = 0
        self._learnt = pretrained
        self._pending = Pending()
        self._scorer = StepScorer(method)
        self._inside: Tensor | None = None  # [env], in the middle of an episode
        self._scalars: dict[str, float] = {}
        self._checked = False

    @property
    def steps(self) -> int:
        """Transitions so far, of all environments together."""
        return self._taken

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars of the last training of the method; empty before the first."""
        return dict(self._scalars)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Raise UserError: a batch is not a step of an environment."""
        raise UserError(
            "IntrinsicRewardTransform works inside a TransformedEnv: "
            "use IntrinsicRewardModule for batches"
        )

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        self._require_place()
        reward_env = next_tensordict.get(self.reward_key)
        bonus = torch.zeros_like(reward_env)
        batch, real, ended = self._transitions(tensordict, next_tensordict)
        if self._learnt and len(batch) > 0:
            some = self._scorer(batch, self._pending.parts).to(bonus)
            bonus = bonus.masked_scatter(real.reshape(bonus.shape), some)
        eta = eta_at(self.eta, self._taken)
        earned = torch.zeros_like(reward_env) if self.intrinsic_only else reward_env
        total = earned + eta * bonus if eta > 0 else earned
        self._taken += len(batch)
        self._pending.add(batch)
        inside = torch.zeros_like(ended) if self._inside is None else self._inside
        self._end_early(inside & ended & ~real)  # at these ends the last observation is unknown
        self._inside = (inside | real) & ~ended
        if self._pending.steps >= self.learn_every:
            self._learn(summary(bonus, earned, eta))
        next_tensordict.set(self.reward_env_key, reward_env.clone())
        next_tensordict.set(self.bonus_key, bonus)
        next_tensordict.set(self.reward_key, total)
        return next_tensordict

    def _transitions(
        self, tensordict: TensorDictBase, next_tensordict: TensorDictBase
    ) -> tuple[Transitions, Tensor, Tensor]:
        """The transitions of this step, the environments they are of, and all ends, [env] each."""
        axes = tensordict.ndim

        def flat(column: Tensor) -> Tensor:
            return column.flatten(0, axes - 1) if axes > 0 else column[None]

        obs = _observation(self.in_keys, lambda key: flat(tensordict.get(key)))
        next_obs = _observation(self.in_keys, lambda key: flat(next_tensordict.get(key)))
        spec = self.parent.base_env.full_action_spec[self.action_key]
        action = flat(_plain_action(tensordict.get(self.action_key), spec, axes))
        ended = flat(next_tensordict.get(self.done_key)).reshape(-1)
        env_index = torch.arange(len(ended), device=ended.device)
        batch = Transitions(obs, action, next_obs, env_index, ended)
        known = _known_successors(batch)
        real = torch.ones_like(ended) if known is None else known
        if (stepped := tensordict.get("_step", None)) is not None:  # the others were not stepped
            real, ended = (x & flat(stepped).reshape(-1) for x in (real, ended))
        return batch[real], real, ended

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        if self._inside is not None:
            mask = None if tensordict is None else tensordict.get("_reset", None)
            which = torch.ones_like(self._inside) if mask is None else mask.reshape(-1)
            self._end_early(self._inside & which)
            self._inside = self._inside & ~which
        return tensordict_reset

    def _end_early(self, which: Tensor) -> None:
        """End the episodes of the environments `which` [env], without a transition that says so."""
        if self.method.episodic and bool(which.any()):
            self._scorer.end_early(which.nonzero().flatten().tolist(), self._pending.parts)

    def _learn(self, logged: dict[str, float]) -> None:
        batch = self._pending.take()
        if batch is not None:
            self._scalars = {**logged, **checked_learn(self.method, batch)}
            self._learnt = True
            self._scorer.renew()

    def _require_place(self) -> None:
        """Raise UserError if a later transform changes what this one reads."""
        if self._checked:
            return
        container = self.container
        later = list(getattr(getattr(container, "transform", None), "transforms", []))
        if self in later:
            later = later[later.index(self) + 1 :]
            changed = {unravel_key(key) for each_ in later for key in each_.out_keys or []}
            for key in self.in_keys:
                if unravel_key(key) in changed:
                    raise UserError(
                        f"a transform after IntrinsicRewardTransform changes {key!r}: "
                        "append IntrinsicRewardTransform after it"
                    )
        self._checked = True

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        like = reward_spec[self.reward_key]
        for key in self.out_keys:
            reward_spec[key] = Unbounded(shape=like.shape, device=like.device, dtype=like.dtype)
        return reward_spec

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "steps": self._taken,
            "learnt": self._learnt,
            "scalars": self.scalars,
            "pending": self._pending.stored(),
            "inside": self._inside,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._taken, self._learnt = state["steps"], state["learnt"]
        self._scalars = dict(state["scalars"])
        self._pending.restore(state["pending"])
        # States of earlier versions lack it: their methods remember no episode.
        self._inside = state.get("inside")
        self._scorer.renew()
