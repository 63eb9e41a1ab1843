"""An intrinsic reward for the algorithms of Stable-Baselines3, as a callback.

    method = emi.bonus("emi", model.observation_space, model.action_space)
    model.learn(1_000_000, callback=IntrinsicRewardCallback(method))

On-policy: at the end of a rollout the method scores its transitions and trains on them. The bonus
is added to the rewards of the buffer, which computes returns and advantages again, so that the
bonus is discounted like any reward.

Off-policy: the method trains on new transitions, and scores rows when they are drawn from the
replay buffer (`stable_baselines3_replay`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Space
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize

from emi.adapters.bonus_share import LateShare, share_of
from emi.adapters.schedule import Decay, Eta, eta_at
from emi.batch import Array, IntArray, Rows, Transitions, map_columns, named_columns
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.images import FrameStack, is_image
from emi.intrinsic.contract import (
    IntrinsicReward,
    require_fit,
    require_no_memory,
    score_and_learn,
)
from emi.intrinsic.outside_state import (
    OutsideState,
    check_optimizers,
    load_optimizers,
    optimizer_states,
)
from emi.program import install
from emi.state_codec import decode, encode
from emi.stored_state import check_module
from emi.untrusted_file import open_regular

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.utils import obs_as_tensor
    from stable_baselines3.common.vec_env import (
        VecEnv,
        VecEnvWrapper,
        VecFrameStack,
        VecNormalize,
        VecTransposeImage,
    )

    from emi.adapters.stable_baselines3_replay import (
        LEARN_EVERY,
        Draw,
        Replay,
        require_true_transitions,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"IntrinsicRewardCallback needs Stable-Baselines3: {install('sb3')}",
        name=error.name,
    ) from error

ON_POLICY = "PPO, A2C, TRPO, RecurrentPPO and MaskablePPO"
OFF_POLICY = "SAC, TD3, DDPG, DQN, TQC, CrossQ and QRDQN"
FORMAT, VERSION = "emi-intrinsic-reward", 1
RAW_END = "emi_raw_terminal_observation"  # next to `terminal_observation` in the infos


@dataclass(frozen=True)
class Steps:
    observations: list[Any]  # [env, *observation] each: the first, then the one after each step
    actions: list[Array] = field(default_factory=list)  # [env, *action], as the environment gets it
    rewards: list[Array] = field(default_factory=list)  # [env], before SB3 adds to them
    ends: dict[tuple[int, int], Any] = field(default_factory=dict)
    """the last observation of each episode that ended, by (step, env)"""

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return len(next(column for _, column in named_columns(self.observations[0], "")))

    def transitions(self) -> Transitions:
        """All steps in time-major order; every observation is stored once."""
        steps, envs = len(self.actions), self.num_envs
        row = np.arange((steps + 1) * envs).reshape(steps + 1, envs)
        following, ended = row[1:].copy(), np.zeros((steps, envs), bool)
        for number, step_and_env in enumerate(self.ends, start=row.size):
            following[step_and_env], ended[step_and_env] = number, True
        ends = (map_columns(lambda x: x[None], end) for end in self.ends.values())
        pool = map_columns(lambda *x: np.concatenate(x), *self.observations, *ends)

        def rows(index: IntArray) -> Any:
            return map_columns(lambda column: Rows(column, index.reshape(-1)), pool)

        return Transitions(
            obs=rows(row[:-1]),
            action=np.concatenate(self.actions),
            next_obs=rows(following),
            env_index=np.tile(np.arange(envs), steps),
            ended=ended.reshape(-1),
        )


class IntrinsicRewardCallback(BaseCallback):
    """Adds eta · bonus to the rewards that the policy is trained on.

    On-policy algorithms: the method scores every rollout and is trained on it, before the policy
    is. Off-policy algorithms: the method is trained after every `learn_every` steps (1,000 if not
    given) of the environments, on all their transitions together, each exactly once. Rows of the
    replay buffer are scored whenever they are drawn, by the method as of then; the buffer itself
    holds rewards without a bonus. Nothing is added before the first training of the method.

    `eta` is a number or a function of the environment steps so far; one value, taken at
    the end of the rollout, is used for the whole rollout. By default it falls from 1 to 0 over the
    first half of `learn`, which fits a method of `emi.bonus`. With eta = 0, and not
    `intrinsic_only`, training is bit for bit as without the callback; the method is still trained.

    With `intrinsic_only` the bonus replaces the environment's reward. The bootstrap value that SB3
    adds to a rollout at a time-out, γ·V of the last observation, is kept: it is not a reward.

    Logs `intrinsic/bonus_mean`, `intrinsic/bonus_std`, `intrinsic/eta`, `intrinsic/share`
    (Σ|η·bonus| / (Σ|η·bonus| + Σ|r|), r the environment's reward after VecNormalize)
    and the scalars of the method. Warns once if the share is still large late in `learn`.
    """

    def __init__(
        self,
        method: IntrinsicReward,
        eta: Eta = Decay(),  # noqa: B008 - frozen
        *,
        intrinsic_only: bool = False,
        learn_every: int | None = None,
    ) -> None:
        super().__init__()
        if learn_every is not None and learn_every < 1:
            raise UserError(f"learn_every must be 1 or more, got {learn_every}")
        self.method = method
        self.eta = eta
        self.intrinsic_only = intrinsic_only
        self.learn_every = learn_every
        self._outside = OutsideState(method)
        self._replay: Replay | None = None  # of an off-policy algorithm
        self._steps: Steps | None = None
        self._loaded = False
        self._last_obs: Any = None  # the object that SB3 continues with, unless it resets

    def save(self, path: str | Path) -> None:
        """Write the state of the method as safetensors, with plain values as JSON in the header.

        For an off-policy algorithm, the transitions that the method was not trained on yet are
        part of the file. So are optimizers that are plain attributes of the method; a warning names
        other plain attributes that changed and are not.
        """
        method = self.method
        self._outside.warn()
        state: dict[str, Any] = dict(method.state_dict())
        others: dict[str, Any] = {}
        if own := optimizer_states(method):
            others["optimizers"] = own
        if self._replay is not None:
            self._gather()
            others["replay"] = self._replay.state()
        encoded = encode({"method": state, **others} if others else state)
        kept = {"version": VERSION, "method": type(method).__name__, "state": encoded.skeleton}
        if others:
            kept["others"] = list(others)
        # One entry, so that equal states give equal files: several are written in random order.
        metadata = {FORMAT: json.dumps(kept, allow_nan=False)}
        write_durably(Path(path), serialize(encoded.tensors, metadata))

    def load(self, path: str | Path) -> None:
        """Restore the state of the method from a file of `save`; UserError if it does not fit."""
        method = self.method
        try:
            open_regular(Path(path)).close()  # a FIFO would block, and a device cannot be mapped
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise UserError(f"there is no file {path}") from None
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from None
        except SafetensorError as error:
            raise UserError(f"{path} is damaged or not a safetensors file: {error}") from None
        try:
            kept = json.loads(metadata.get(FORMAT, "{}"))
            version, name = kept.get("version"), kept.get("method")
            state: Any = decode(kept.get("state"), tensors) if version == VERSION else None
        except (ValueError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        if version != VERSION:
            raise UserError(f"{path} was not written by this version of IntrinsicRewardCallback")
        own = type(method).__name__
        if name != own:
            raise UserError(f"{path} holds the state of {name}, not of {own}")
        replay, own_optimizers = None, {}
        if others := kept.get("others"):
            try:
                own_optimizers = state.get("optimizers", {})
                replay = Replay.of(state["replay"]) if "replay" in others else None
                state = state["method"]
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                raise UserError(f"{path} is damaged: {error}") from None
        try:
            check_module(method, state, own)
            check_optimizers(method, own_optimizers, f"{own}.optimizers")
            method.load_state_dict(state)
            load_optimizers(method, own_optimizers)
        except (UserError, RuntimeError) as error:
            raise UserError(
                f"{path} is the state of {own} with other spaces or another config: "
                f"build the method with the same spaces and config ({error})"
            ) from error
        self._replay, self._steps, self._loaded = replay, None, True

    def _eta_now(self) -> float:
        return eta_at(self.eta, self.model.num_timesteps, self.model._total_timesteps)

    @property
    def _algorithm(self) -> OnPolicyAlgorithm:
        return cast(OnPolicyAlgorithm, self.model)

    def _init_callback(self) -> None:
        name = type(self.model).__name__
        if not isinstance(self.model, OnPolicyAlgorithm | OffPolicyAlgorithm):
            raise UserError(
                f"IntrinsicRewardCallback supports {ON_POLICY}, and {OFF_POLICY}; {name} is not "
                "supported"
            )
        if isinstance(self.model, OffPolicyAlgorithm):
            require_no_memory(self.method, name)
            require_true_transitions(self.model)
        elif self.learn_every is not None:
            raise UserError(
                f"with {name} the method is trained after every rollout: leave out learn_every"
            )
        self._eta_now()
        self._late_share = LateShare(self.model._total_timesteps)
        self._normalize = _normalizer_of_observations(self.model)
        self._space, actions = spaces_of(self.model)
        advice = "build it with the spaces of emi.adapters.spaces_of(model)"
        require_fit(self.method, self._space, actions, advice)
        if isinstance(self.model, OffPolicyAlgorithm):
            if self._normalize not in (None, self.model.get_vec_normalize_env()):
                raise UserError(
                    "the replay buffer holds observations that an inner VecNormalize normalised: "
                    "use one VecNormalize for observations and rewards"
                )
            self._replay = self._replay or Replay(trained=self._loaded)
            normalized = self._normalize is not None
            self._replay.attach(self.model, self.method, self._space, normalized=normalized)
        else:
            self._replay = None

    def _on_training_start(self) -> None:
        if self.parent is not None:
            raise UserError(
                "IntrinsicRewardCallback must see every step: do not nest it in "
                f"{type(self.parent).__name__}; pass both in a list"
            )
        if self._normalize is not None:
            _keep_raw_ends(self._normalize.venv)
        if self._replay is not None:
            obs = self._raw(self.model._last_obs)
            self._gather()
            self._replay.begin(obs)
            self._steps = Steps([obs])
            self._draw = Draw(
                self._replay,
                self._eta_now,
                intrinsic_only=self.intrinsic_only,
            )
        elif self.model._last_obs is not self._last_obs:  # `learn` has reset the environments
            self.method.forget(range(self.model.n_envs))

    def _on_training_end(self) -> None:
        if self._normalize is not None:
            vars(self._normalize.venv).pop("step_wait", None)
        if self._replay is not None:
            self._draw.detach()
            self._replay.keep_last()

    def _on_rollout_start(self) -> None:
        if self._replay is None:
            self._steps = Steps([self._raw(self._algorithm._last_obs)])

    def _on_step(self) -> bool:
        now, steps = self.locals, cast(Steps, self._steps)
        for env in np.flatnonzero(now["dones"]):
            info = now["infos"][env]
            end = info.get("terminal_observation" if self._normalize is None else RAW_END)
            if end is None:
                raise UserError(
                    "the environment ended an episode without `terminal_observation` in its info: "
                    "use a vector environment of Stable-Baselines3"
                )
            steps.ends[len(steps.actions), int(env)] = self._as_observed(end)
        steps.observations.append(self._raw(now["new_obs"]))
        self._last_obs = now["new_obs"]
        # MaskablePPO has discrete actions only, which are not clipped.
        steps.actions.append(np.array(now.get("clipped_actions", now["actions"])))
        steps.rewards.append(np.array(now["rewards"], np.float32))
        if self._replay is not None:
            step = len(steps.actions) - 1
            ends = {int(env): steps.ends[step, int(env)] for env in np.flatnonzero(now["dones"])}
            self._replay.keep_ends(steps.observations[step], now["buffer_actions"], ends)
            self._learn_if_due(self._replay)
        return True

    def _learn_if_due(self, replay: Replay) -> None:
        """Train the method if `learn_every` steps came in since its last training."""
        steps = cast(Steps, self._steps)
        earlier = sum(map(len, replay.pending)) // steps.num_envs
        if earlier + len(steps.actions) >= (self.learn_every or LEARN_EVERY):
            self._gather()
            for name, value in replay.learn().items():
                self.logger.record(name, value)

    def _gather(self) -> None:
        """Move the steps of an off-policy algorithm to the transitions not yet trained on."""
        if self._replay is not None and self._steps is not None and self._steps.actions:
            self._replay.pending.append(self._steps.transitions())
            self._steps = Steps([self._steps.observations[-1]])

    def _on_rollout_end(self) -> None:
        if self._replay is not None:
            return
        steps, buffer = cast(Steps, self._steps), self._algorithm.rollout_buffer
        eta = self._eta_now()
        scored, scalars = score_and_learn(self.method, steps.transitions())
        bonus = scored.detach().cpu().numpy().reshape(buffer.rewards.shape)

        reward_env, reward_int = np.stack(steps.rewards), eta * bonus
        if self.intrinsic_only or eta != 0:
            last_values = self._last_values()
            if self.intrinsic_only:
                buffer.rewards -= reward_env
            buffer.rewards += reward_int
            buffer.compute_returns_and_advantage(last_values, self.locals["dones"])

        size_int = float(np.abs(reward_int).sum())
        size_env = 0.0 if self.intrinsic_only else float(np.abs(reward_env).sum())
        scalars = {
            "intrinsic/bonus_mean": float(bonus.mean()),
            "intrinsic/bonus_std": float(bonus.std()),
            "intrinsic/eta": eta,
            "intrinsic/share": share_of(size_int, size_env),
            **scalars,
        }
        for name, value in scalars.items():
            self.logger.record(name, value)
        self._late_share.add(self.num_timesteps, size_int, size_env)

    def _raw(self, obs: Any) -> Any:
        """A copy of the newest observations before VecNormalize, [env, *observation]."""
        return self._as_observed(obs if self._normalize is None else self._normalize.old_obs)

    def _as_observed(self, obs: Any) -> Any:
        """A copy with the dtypes of the raw observations: VecNormalize declares floats."""
        return map_columns(lambda x, space: np.array(x, space.dtype), obs, self._space)

    def _last_values(self) -> torch.Tensor:
        """V of the observations after the rollout, [env], with which SB3 computed the advantages.

        Computed again, because the loops of sb3-contrib do not pass it to callbacks.
        """
        now, buffer, policy = self.locals, self._algorithm.rollout_buffer, self._algorithm.policy
        inputs: list[Any] = [obs_as_tensor(now["new_obs"], policy.device)]
        if "lstm_states" in now:
            starts = torch.tensor(now["dones"], dtype=torch.float32, device=policy.device)
            inputs += [now["lstm_states"].vf, starts]
        with torch.no_grad():
            values = policy.predict_values(*inputs)

        following = values.cpu().numpy().flatten() * (1 - now["dones"].astype(np.float32))
        last = buffer.rewards[-1] + buffer.gamma * following - buffer.values[-1]
        scale = 1 + np.abs(following).max()
        if np.abs(last - buffer.advantages[-1]).max() > 1e-3 * scale:
            raise UserError(
                f"the advantages of {type(self.model).__name__} cannot be computed again from its "
                f"rollout buffer: use {ON_POLICY}"
            )
        return values


class BonusCheckpointCallback(CheckpointCallback):
    """Stable-Baselines3's CheckpointCallback, which saves the bonus with every checkpoint.

    The state of `bonus` is written to `<name_prefix>_bonus_<steps>_steps.safetensors` next to the
    file of the model; its `load` reads it. All other arguments are those of CheckpointCallback.
    Pass both callbacks to `learn`, in a list.
    """

    def __init__(self, bonus: IntrinsicRewardCallback, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.bonus = bonus

    def _on_training_start(self) -> None:
        if getattr(self.bonus, "model", None) is not self.model:
            raise UserError("pass the IntrinsicRewardCallback to learn as well, in a list")

    def _on_step(self) -> bool:
        if self.n_calls % self.save_freq == 0:
            self.bonus.save(self._checkpoint_path("bonus_", extension="safetensors"))
        return super()._on_step()


def _normalizer_of_observations(model: BaseAlgorithm) -> VecNormalize | None:
    found, env = [], model.get_env()
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize) and env.norm_obs:
            found.append(env)
        env = env.venv
    if not found:
        return None
    if len(found) > 1:
        raise UserError(
            "more than one VecNormalize wrapper normalises observations: "
            "set norm_obs=False in all but one"
        )
    (normalize,) = found
    if normalize.observation_space != model.observation_space:
        raise UserError(
            "a wrapper outside VecNormalize changes the observations, so their unnormalised values "
            "cannot be recovered: make VecNormalize the outermost wrapper"
        )
    return normalize


def spaces_of(model: BaseAlgorithm) -> tuple[Space, Space]:
    """The spaces of what a method reads of a model: `emi.EMI(*spaces_of(model))`.

    Observations are those before VecNormalize. Images of a VecFrameStack, or of Gymnasium's
    FrameStackObservation, are declared to be stacks of frames, of which methods read the newest.
    """
    normalize = _normalizer_of_observations(model)
    space = model.observation_space if normalize is None else normalize.venv.observation_space
    frames = _frames_of(model.get_env())
    if frames > 1 and isinstance(space, Box) and is_image(space):
        space = FrameStack(space, frames)
    return space, model.action_space


def _frames_of(env: VecEnv | None) -> int:
    """The number of frames in an observation; 1 if the environment stacks none."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecFrameStack):
            return int(env.stacked_obs.n_stack)
        if not isinstance(env, VecNormalize | VecTransposeImage) and (
            env.observation_space != env.venv.observation_space
        ):
            return 1  # it may have changed the meaning of the channels
        env = env.venv
    single = getattr(env, "envs", [None])[0]
    while isinstance(single, gymnasium.Wrapper):
        if isinstance(single, gymnasium.wrappers.FrameStackObservation):
            return int(single.stack_size)
        single = single.env
    return 1


def _keep_raw_ends(venv: VecEnv) -> None:
    """Make `venv` store the raw last observation of episodes in its infos, as RAW_END.

    VecNormalize overwrites `terminal_observation`, and its clipping loses information. We replace
    `step_wait` on the instance instead of adding a wrapper, because EvalCallback requires that the
    evaluation environment has the same wrappers.
    """
    if "step_wait" in vars(venv):  # left by an interrupted training
        return
    step_wait = venv.step_wait

    def step_wait_and_keep() -> Any:
        obs, rewards, dones, infos = step_wait()
        for env in np.flatnonzero(dones):
            infos[env][RAW_END] = infos[env].get("terminal_observation")
        return obs, rewards, dones, infos

    venv.step_wait = step_wait_and_keep  # type: ignore[method-assign]
