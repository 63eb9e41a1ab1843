"""The bonus of rows that a Stable-Baselines3 trainer draws from its replay buffer.

The bonus is computed when rows are drawn and is never stored, so that it is always that of the
method as of its last training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from emi.batch import Array, BoolArray, IntArray, Transitions, joined, map_columns
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward, checked_learn, checked_reward
from emi.stored_state import expect, expect_keys

LEARN_EVERY = 1_000  # steps of the vector environment between two trainings of the method
UNORDERED = -1  # `env_index` of rows that are not consecutive steps of an environment


class End(NamedTuple):
    """The true successor of a row of the buffer, and what identifies the row."""

    obs: Any  # [*observation]
    action: Array  # as the buffer stores it
    next_obs: Any  # [*observation]


class Watched(np.ndarray):
    """A view of an array that lists the indices it is read with."""

    reads: list[Any]

    def __getitem__(self, index: Any) -> Any:
        self.reads.append(index)
        return self.view(np.ndarray)[index]


class Replay:
    """Trains a method on new transitions, and scores the rows of a replay buffer.

    `trained` is whether the method was trained: nothing is added before. `pending` are the
    transitions that it was not trained on yet. `ends` holds the true successors that the buffer
    does not: SB3 recovers the last observation of an episode from its normalised and clipped value,
    and with `optimize_memory_usage` overwrites it.
    """

    def __init__(self, *, trained: bool = False) -> None:
        self.trained = trained
        self.pending: list[Transitions] = []
        self.ends: dict[tuple[int, int], End] = {}

    def attach(
        self,
        model: OffPolicyAlgorithm,
        method: IntrinsicReward,
        space: spaces.Space,
        *,
        normalized: bool,
    ) -> None:
        """Use the buffer of `model`; `space` is that of the raw observations."""
        buffer = model.replay_buffer
        assert buffer is not None
        self.model, self.method, self.buffer, self.space = model, method, buffer, space
        self.normalized = normalized
        self.incomplete = normalized or buffer.optimize_memory_usage
        for part in self.pending:
            map_columns(lambda x, s: _require_shape(x[:1].shape[1:], s.shape), part.obs, space)
        for end in self.ends.values():
            map_columns(lambda x, s: _require_shape(x.shape, s.shape), end.next_obs, space)

    def begin(self, obs: Any) -> None:
        """Continue from the observations `obs` [env, *observation] after a call of `learn`.

        The environments may have been reset: the last pending row of each is then the last of its
        episode, and the buffer will overwrite its successor.
        """
        if self.pending and self.pending[-1].ended is not None:
            last = self.pending[-1][-self.buffer.n_envs :]
            for env in range(len(last)):
                there, now = (map_columns(lambda x, e=env: x[e], x) for x in (last.next_obs, obs))
                self.pending[-1].ended[env - len(last)] |= not _equal(there, now)
        self.keep_last()

    def learn(self) -> dict[str, float]:
        """Train the method on the pending transitions, in time order."""
        scalars = checked_learn(self.method, joined(self.pending))
        self.pending, self.trained = [], True
        return scalars

    def keep_last(self) -> None:
        """Keep the successor of the newest row, before a new episode overwrites it.

        Called when a training ends and when one starts. If a row ended an episode and its end was
        not kept, SB3 has only what it recovered from the normalised observation.
        """
        buffer = self.buffer
        if not buffer.optimize_memory_usage or buffer.size() == 0:
            return
        position = (buffer.pos - 1) % buffer.buffer_size
        for env in range(buffer.n_envs):
            exact = not self.normalized or buffer.dones[position, env] == 0
            if exact and self._end_of(position, env) is None:
                after = np.array(buffer.observations[buffer.pos, env])
                self.ends[position, env] = End(*self._identity(position, env), after)

    def keep_ends(self, obs: Any, actions: Array, ends: Mapping[int, Any]) -> None:
        """Keep what the buffer does not store of the row that comes next.

        `obs` and `actions`: of that row, for all environments, the actions as the buffer stores
        them; `ends`: the last observation of the environments whose episode ended.
        """
        if not self.incomplete:
            return
        position, buffer = self.buffer.pos, self.buffer
        for env in range(buffer.n_envs):
            self.ends.pop((position, env), None)
        for env, end in ends.items():
            action = np.array(actions[env], buffer.actions.dtype).reshape(-1)
            self.ends[position, env] = End(map_columns(lambda x, e=env: x[e], obs), action, end)

    def _identity(self, position: int, env: int) -> tuple[Any, Array]:
        obs = map_columns(lambda x: np.array(x[position, env]), self.buffer.observations)
        return obs, np.array(self.buffer.actions[position, env])

    def _end_of(self, position: int, env: int) -> End | None:
        """The kept end of this row, if it is still the row for which it was kept."""
        end = self.ends.get((position, env))
        if end is None:
            return None
        obs, action = self._identity(position, env)
        return end if _equal(obs, end.obs) and np.array_equal(action, end.action) else None

    def rows(self, position: IntArray, env: IntArray) -> tuple[Transitions, BoolArray]:
        """Rows [n] of the buffer in no order, and which of them have a known successor, [n].

        Observations are raw, actions in the units of the environment.
        """
        buffer, n = self.buffer, len(position)
        obs = map_columns(lambda x: x[position, env], buffer.observations)
        if buffer.optimize_memory_usage:
            after = map_columns(
                lambda x: x[(position + 1) % buffer.buffer_size, env], buffer.observations
            )
        else:
            after = map_columns(lambda x: x[position, env], buffer.next_observations)
        ended = buffer.dones[position, env] > 0
        known = ~ended if buffer.optimize_memory_usage else np.ones(n, bool)
        obs, after = self._as_observed(obs), self._as_observed(after)
        if self.incomplete:
            for row, place in enumerate(zip(position.tolist(), env.tolist(), strict=True)):
                end = self._end_of(*place) if place in self.ends else None
                if end is not None:
                    map_columns(lambda x, e, r=row: x.__setitem__(r, e), after, end.next_obs)
                    known[row] = True
        index = np.full(n, UNORDERED, np.int64)
        return Transitions(obs, self._taken(position, env), after, index, ended), known

    def _as_observed(self, obs: Any) -> Any:
        """With the dtype of the raw observations: VecNormalize declares floats for images."""
        return map_columns(lambda x, s: x.astype(s.dtype, copy=False), obs, self.space)

    def _taken(self, position: IntArray, env: IntArray) -> Array:
        """Actions as the environment received them; SB3 stores continuous ones in [−1, 1]."""
        stored, space = self.buffer.actions[position, env], self.model.action_space
        if isinstance(space, spaces.Box):
            shaped = stored.reshape(len(stored), *space.shape)
            return np.asarray(self.model.policy.unscale_action(shaped), space.dtype)
        return stored.reshape(len(stored), *(space.shape or ()))

    def score(self, position: IntArray, env: IntArray) -> Array:
        """The bonus of rows [n], by the method as of now; 0 where the successor is not known."""
        batch, known = self.rows(position, env)
        bonus = np.zeros(len(position), np.float32)
        if known.any():
            with torch.no_grad():
                scored = checked_reward(self.method, batch if known.all() else batch[known])
            bonus[known] = scored.cpu().numpy()
        return bonus

    def bonus_of_drawn(self, index: Any) -> Array:
        """The bonus [n] of rows that were drawn with this index of [position, env] arrays.

        A row of an n-step buffer is the first of several steps: the bonuses of those that SB3 sums
        the rewards of are summed, with the same discount.
        """
        position, env = (np.asarray(part) for part in index)
        if position.ndim == 1:
            return self.score(position, env)
        buffer = self.buffer
        assert isinstance(buffer, NStepReplayBuffer)
        env = np.broadcast_to(env, position.shape)
        last = position == (buffer.pos - 1) % buffer.buffer_size
        over = (buffer.dones[position, env] > 0) | (buffer.timeouts[position, env] > 0) | last
        summed = np.cumsum(over, 1) - over == 0  # up to the first that is over, inclusive
        bonus = np.zeros(position.shape, np.float32)
        bonus[summed] = self.score(position[summed], env[summed])
        discount = buffer.gamma ** np.arange(position.shape[1], dtype=np.float32)
        return np.asarray((bonus * discount).sum(1), np.float32)

    def state(self) -> dict[str, Any]:
        """Nested dicts of arrays and plain values."""
        pending = dict(vars(joined(self.pending))) if self.pending else None
        ends: dict[str, Any] | None = None
        if self.ends:
            columns = zip(*self.ends.values(), strict=True)
            named = zip(End._fields, columns, strict=True)
            ends = {name: map_columns(lambda *rows: np.stack(rows), *rows) for name, rows in named}
            ends["place"] = np.array(list(self.ends), np.int64)
        if pending is not None:
            pending = {name: map_columns(np.asarray, column) for name, column in pending.items()}
        return {"trained": self.trained, "pending": pending, "ends": ends}

    @classmethod
    def of(cls, state: Any) -> Replay:
        """Restore what `state` returned; ValueError, TypeError or IndexError for anything else."""
        expect_keys(state, ("trained", "pending", "ends"), "the replay state")
        trained, pending, ends = state["trained"], state["pending"], state["ends"]
        expect(isinstance(trained, bool), trained, "trained", "true or false")
        replay = cls(trained=trained)
        if pending is not None:
            replay.pending = [Transitions(**pending)]
        if ends is not None:
            expect_keys(ends, (*End._fields, "place"), "ends")
            for row, (position, env) in enumerate(ends["place"].tolist()):
                columns = (map_columns(lambda x, r=row: x[r], ends[name]) for name in End._fields)
                replay.ends[position, env] = End(*columns)
        return replay


class Draw:
    """`sample` of a replay buffer, with eta · bonus added to the rewards.

    It replaces the method on the instance during a training. A buffer that is pickled meanwhile is
    as if it did not.
    """

    def __init__(self, replay: Replay, eta: Callable[[], float], *, intrinsic_only: bool) -> None:
        self.replay, self.eta, self.intrinsic_only = replay, eta, intrinsic_only
        self.buffer, self.model = replay.buffer, replay.model
        self.training = self.model.start_time  # identifies the call of `learn`
        left = vars(self.buffer).pop("sample", None)
        if isinstance(left, Draw) and left.training == self.training:
            raise UserError(
                "two callbacks add a bonus to the same replay buffer: use one callback with "
                "emi.WeightedSum"
            )
        self.buffer.sample = self  # type: ignore[method-assign]

    def detach(self) -> None:
        if vars(self.buffer).get("sample") is self:
            del self.buffer.sample

    def __reduce__(self) -> Any:
        return getattr, (self.buffer, "sample")  # the method of the class

    def __call__(self, batch_size: int, env: Any = None) -> Any:
        if self.model.start_time != self.training:  # left by a training that was interrupted
            self.detach()
            return self.buffer.sample(batch_size, env=env)
        samples, index = self._sample(batch_size, env)
        if not self.replay.trained:
            if self.intrinsic_only:
                return samples._replace(rewards=torch.zeros_like(samples.rewards))
            return samples
        eta, bonus = self.eta(), self.replay.bonus_of_drawn(index)
        reward_env = torch.zeros_like(samples.rewards) if self.intrinsic_only else samples.rewards
        reward_int = torch.as_tensor(eta * bonus).to(reward_env).reshape(reward_env.shape)
        self._log(bonus, eta, reward_env, reward_int)
        if eta == 0 and not self.intrinsic_only:
            return samples
        return samples._replace(rewards=reward_env + reward_int)

    def _sample(self, batch_size: int, env: Any) -> tuple[Any, Any]:
        """What the buffer draws, and the index of its rows, read off the access to its rewards."""
        buffer = self.buffer
        rewards = buffer.rewards
        watched = rewards.view(Watched)
        watched.reads = []
        buffer.rewards = watched
        try:
            samples = type(buffer).sample(buffer, batch_size, env=env)
        finally:
            buffer.rewards = rewards
        axes = 2 if isinstance(buffer, NStepReplayBuffer) else 1
        match watched.reads:
            case [(np.ndarray() as position, np.ndarray() as at)] if (
                position.ndim == at.ndim == axes and len(position) == len(samples.rewards)
            ):
                return samples, (position, at)
        raise UserError(
            f"the rows that {type(buffer).__name__} draws are not known: use the ReplayBuffer, "
            "DictReplayBuffer or NStepReplayBuffer of Stable-Baselines3"
        )

    def _log(
        self, bonus: Array, eta: float, reward_env: torch.Tensor, reward_int: torch.Tensor
    ) -> None:
        size_int, size_env = float(reward_int.abs().sum()), float(reward_env.abs().sum())
        logger = self.model.logger
        logger.record("intrinsic/eta", eta)
        for name, value in (
            ("bonus_mean", float(bonus.mean())),
            ("bonus_std", float(bonus.std())),
            ("share", size_int / (size_int + size_env) if size_int > 0 else 0.0),
        ):
            logger.record_mean(f"intrinsic/{name}", value)


def require_true_transitions(model: OffPolicyAlgorithm) -> None:
    """UserError if the buffer of `model` draws transitions that did not happen."""
    if isinstance(model.replay_buffer, HerReplayBuffer):
        raise UserError(
            "HerReplayBuffer is not supported, because it changes the goals of past transitions: "
            "use DictReplayBuffer"
        )


def _require_shape(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise UserError(
            f"the callback has transitions with observations of shape {shape}, and the model has "
            f"observations of shape {expected}: load a file of the same task"
        )


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping):
        return all(_equal(x, second[key]) for key, x in first.items())
    return np.array_equal(first, second)
