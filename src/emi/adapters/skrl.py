"""An intrinsic reward for the agents of skrl.

    method = emi.EMI(env.observation_space, env.action_space)
    intrinsic = add_intrinsic_reward(agent, env, method, eta=0.01)
    trainer = SequentialTrainer(cfg=cfg, env=env, agents=agent)
    trainer.train()

On-policy agents: when a rollout is complete, the method scores its transitions and trains on them,
and the bonus is added to the rewards of the memory, from which the agent then computes advantages.
Off-policy agents: the bonus is added to each minibatch when it is drawn, by the method as it is
then, so that no bonus in the replay memory is out of date.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from emi.adapters.schedule import Eta, eta_at
from emi.adapters.tensor_rows import Continuity, Pending, summary, with_successors
from emi.batch import Transitions, map_columns
from emi.errors import UserError
from emi.intrinsic.contract import (
    IntrinsicReward,
    checked_learn,
    checked_reward,
    require_no_memory,
    score_and_learn,
)
from emi.program import install
from emi.spaces import autoreset_mode
from emi.stored_state import check_module

try:
    from skrl.agents.torch import Agent
    from skrl.agents.torch.a2c import A2C, A2C_RNN
    from skrl.agents.torch.ddpg import DDPG
    from skrl.agents.torch.ddqn import DDQN
    from skrl.agents.torch.dqn import DQN
    from skrl.agents.torch.ppo import PPO, PPO_RNN
    from skrl.agents.torch.rpo import RPO, RPO_RNN
    from skrl.agents.torch.sac import SAC
    from skrl.agents.torch.td3 import TD3
    from skrl.agents.torch.trpo import TRPO, TRPO_RNN
    from skrl.envs.wrappers.torch import Wrapper
    from skrl.utils.spaces.torch import (
        flatten_tensorized_space,
        tensorize_space,
        unflatten_tensorized_space,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the adapter for skrl needs skrl: {install('skrl')}", name=error.name
    ) from error

ON_POLICY = (PPO, TRPO, A2C, RPO, PPO_RNN, TRPO_RNN, A2C_RNN, RPO_RNN)
OFF_POLICY = (SAC, TD3, DDPG, DQN, DDQN)
MODULE = "intrinsic_reward"  # its name in the checkpoints of the agent
# Tensors of the memory. skrl's own have other names, and an agent reads only those it knows.
SUCCESSOR, KNOWN, BONUS, REWARD_ENV = "successor", "successor_known", "bonus", "reward_env"


class Episodes:
    """Reads the transitions of one step from what a trainer of skrl passes to `record_transition`.

    At an end, `next_observations` is the true successor with NEXT_STEP and DISABLED, and the first
    observation of the next episode with SAME_STEP, where the true one is in infos["final_obs"].
    """

    def __init__(self, env: Wrapper, mode: AutoresetMode) -> None:
        self.space: gymnasium.Space = env.observation_space
        self.mode = mode
        self.num_envs: int = env.num_envs
        self.resetting = torch.zeros(env.num_envs, dtype=torch.bool)  # the next step only resets

    def successors(self, step: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """s' [env, size] as skrl flattens it, and whether it is known [env]; call it every step."""
        after: Tensor = step["next_observations"]
        if len(after) != self.num_envs:
            raise UserError(
                f"the agent must act in all {self.num_envs} environments, got {len(after)}: "
                "the adapter does not support several agents with scopes"
            )
        ended = (step["terminated"] | step["truncated"]).reshape(-1)
        known = ~self.resetting.to(ended.device)
        self.resetting = torch.zeros_like(ended)
        if self.mode is AutoresetMode.NEXT_STEP:
            self.resetting = ended & known
        elif self.mode is AutoresetMode.SAME_STEP and bool(ended.any()):
            last = step["infos"].get("final_obs") if isinstance(step["infos"], dict) else None
            if last is None:
                return after, known & ~ended
            after = after.clone()
            after[ended] = self._flat(last, ended).to(after)
        return after, known

    def _flat(self, last: Any, ended: Tensor) -> Tensor:
        """The last observations of the environments that ended, [ended, size]."""
        if isinstance(last, Tensor):
            return last[ended].flatten(1)
        rows = [last[env] for env in ended.nonzero().flatten().tolist()]
        batch = map_columns(lambda *parts: np.stack(parts), *rows)
        flat: Tensor = flatten_tensorized_space(tensorize_space(self.space, batch))
        return flat

    def observation(self, flat: Tensor) -> Any:
        """Observations [n, size] of skrl in the shape and dtype of the space; dicts of Dict."""
        return _in_space(self.space, unflatten_tensorized_space(self.space, flat))


def _in_space(space: gymnasium.Space, value: Any) -> Any:
    """skrl stores every number as float32, pixels too."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _in_space(space[key], value[key]) for key in space}
    if isinstance(space, gymnasium.spaces.Discrete):
        return value.reshape(-1).long()
    return value.to(torch.from_numpy(np.empty(0, space.dtype)).dtype)


class AgentBonus:
    """The intrinsic reward of an agent: what `add_intrinsic_reward` returns."""

    def __init__(
        self, agent: Agent, episodes: Episodes, method: IntrinsicReward, eta: Eta, learnt: bool
    ) -> None:
        self.agent = agent
        self.method = method
        self.eta = eta
        self._episodes = episodes
        self._taken = 0
        self._learnt = learnt
        self._scalars: dict[str, float] = {}
        self._pending = Pending()  # of off-policy agents: rollouts are in the memory
        self._continuity = Continuity()

    @property
    def steps(self) -> int:
        """Transitions so far, of all environments together."""
        return self._taken

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars of the last training of the method; empty before the first."""
        return dict(self._scalars)

    def _log(self, scalars: dict[str, float]) -> None:
        self._scalars = scalars
        if self.agent.write_interval > 0:
            for name, value in scalars.items():
                self.agent.track_data(f"Intrinsic / {name.removeprefix('intrinsic/')}", value)

    def state_dict(self) -> dict[str, Any]:
        """The state of the method, the transitions not yet trained on, and the steps so far."""
        return {
            "method": copy.deepcopy(dict(self.method.state_dict())),  # training will change it
            "learnt": self._learnt,
            "scalars": self.scalars,
            "steps": self._taken,
            "pending": self._pending.stored(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        state = _in_main_memory(state)  # skrl loads it to its device, also states of generators
        check_module(self.method, state["method"], "method")
        self.method.load_state_dict(state["method"])
        self._learnt, self._taken = state["learnt"], state["steps"]
        self._scalars = dict(state["scalars"])
        self._pending.restore(state["pending"])

    # On-policy: the rollout is scored as a whole, before the agent computes advantages.

    def _score_rollout(self) -> None:
        memory, episodes = self.agent.memory, self._episodes
        flat = {name: memory.get_tensor_by_name(name).flatten(0, 1) for name in _ROLLOUT}
        envs, rewards = memory.num_envs, memory.get_tensor_by_name("rewards")
        action = _action(self.agent.action_space, flat["actions"])
        batch = Transitions(
            episodes.observation(flat["observations"]),
            action,
            episodes.observation(flat[SUCCESSOR]),
            torch.arange(envs, device=action.device).repeat(memory.memory_size),
            (flat["terminated"] | flat["truncated"]).reshape(-1),
        )
        known = flat[KNOWN].reshape(-1)
        eta, bonus = eta_at(self.eta, self._taken), torch.zeros_like(rewards)
        scalars: dict[str, float] = {}
        self._continuity.check(self.method, batch, envs)
        # A copy of the rows: a method may keep them, and the memory is overwritten.
        if len(some_rows := with_successors(self.method, batch, known, envs)) > 0:
            some, scalars = score_and_learn(self.method, some_rows)
            bonus = bonus.masked_scatter(known.reshape(bonus.shape), some.to(bonus))
        memory.set_tensor_by_name(BONUS, bonus)
        self._log({**summary(bonus, memory.get_tensor_by_name(REWARD_ENV), eta), **scalars})
        if eta > 0:  # otherwise no bit of the reward changes, not even the sign of −0
            rewards += eta * bonus
        self._taken += int(known.sum())

    # Off-policy: new transitions are trained on once, and minibatches are scored when drawn.

    def _gather(self, step: dict[str, Any], successor: Tensor, known: Tensor) -> None:
        action = _action(self.agent.action_space, step["actions"])
        batch = Transitions(
            self._episodes.observation(step["observations"]),
            action,
            self._episodes.observation(successor),
            torch.arange(len(action), device=action.device),
            (step["terminated"] | step["truncated"]).reshape(-1),
        )[known]
        self._taken += len(batch)
        self._pending.add(batch)

    def _learn(self) -> None:
        batch = self._pending.take()
        if batch is not None:
            scalars = checked_learn(self.method, batch)
            self._learnt = True
            drawn = {k: v for k, v in self._scalars.items() if k.startswith("intrinsic/")}
            self._log({**drawn, **scalars})

    def _score_minibatch(self, columns: dict[str, Tensor]) -> Tensor:
        """The rewards [n, 1] of a minibatch, with the bonus of its rows."""
        rewards, known = columns["rewards"], columns[KNOWN].reshape(-1)
        eta = eta_at(self.eta, self._taken)
        if not self._learnt or eta == 0 or not bool(known.any()):
            return rewards
        episodes = self._episodes
        successor = columns.get(SUCCESSOR, columns["next_observations"])
        action = _action(self.agent.action_space, columns["actions"])
        batch = Transitions(
            episodes.observation(columns["observations"]),
            action,
            episodes.observation(successor),
            torch.full((len(action),), -1, device=action.device),  # in no order
        )[known]
        some = checked_reward(self.method, batch).to(rewards)
        bonus = torch.zeros_like(rewards).masked_scatter(known.reshape(rewards.shape), some)
        self._scalars = {**self._scalars, **summary(bonus, rewards, eta)}
        return rewards + eta * bonus


def _in_main_memory(value: Any) -> Any:
    match value:
        case Tensor():
            return value.cpu()
        case dict():
            return {key: _in_main_memory(entry) for key, entry in value.items()}
        case list():
            return [_in_main_memory(entry) for entry in value]
    return value


_ROLLOUT = ("observations", "actions", SUCCESSOR, "terminated", "truncated", KNOWN)


def _action(space: gymnasium.Space, flat: Tensor) -> Tensor:
    """Actions [n, size] of skrl in the shape of the space."""
    action: Tensor = unflatten_tensorized_space(space, flat)
    return action.reshape(-1) if isinstance(space, gymnasium.spaces.Discrete) else action


def add_intrinsic_reward(
    agent: Agent,
    env: Wrapper,
    method: IntrinsicReward,
    eta: Eta,
    *,
    learn_every: int | None = None,
    autoreset: AutoresetMode | None = None,
    pretrained: bool = False,
) -> AgentBonus:
    """Make an agent of skrl learn from reward + eta · bonus; call it before its trainer is created.

    On-policy agents (PPO, TRPO, A2C, RPO and their RNN variants): when a rollout is complete, the
    method scores and learns it as a whole, in the order of `learns_first`. The bonus is added to
    the rewards in the memory before the agent computes returns and advantages. The memory must have
    as many steps as a rollout. It also holds the environment's reward as `reward_env`, before
    skrl's reward shaper and the bootstrap value at a time limit, and the bonus before the
    multiplication by eta as `bonus`.

    Off-policy agents (SAC, TD3, DDPG, DQN, DDQN): the rewards in the memory stay those of the
    environment. The bonus is added to each minibatch that is drawn, by the method
    as it is then. The method is trained after every `learn_every` steps, 128 by default, on their
    transitions, each once. Nothing is added before its first training, unless it is `pretrained`.

    No transition crosses an episode. The autoreset mode is read from a Gymnasium vector
    environment; for other vector environments pass it as `autoreset`. With NEXT_STEP, a step that
    only resets is not scored or trained on. With SAME_STEP, s' comes from infos["final_obs"]; where
    there is none, the last step of an episode is not scored or trained on.

    `eta` is a number or a function of the transitions so far. The returned object has `scalars`
    (`intrinsic/bonus_mean`, `intrinsic/bonus_std`, `intrinsic/eta`, `intrinsic/share` and those of
    the method), which are also written to the agent's TensorBoard as `Intrinsic / …`; `steps`; and
    `state_dict` and `load_state_dict`, which skrl calls when the agent is saved and loaded.
    """
    name = type(agent).__name__
    if not isinstance(agent, (*ON_POLICY, *OFF_POLICY)):
        known = ", ".join(kind.__name__ for kind in (*ON_POLICY, *OFF_POLICY))
        raise UserError(f"add_intrinsic_reward supports {known}; {name} is not supported")
    if MODULE in agent.checkpoint_modules:
        raise UserError(f"this {name} has an intrinsic reward already: combine with WeightedSum")
    if agent.memory is None:
        raise UserError(f"give {name} a memory, from which it can be trained")
    eta_at(eta, 0)  # raise for a wrong value here, not in the first step
    if learn_every is not None and learn_every < 1:
        raise UserError(f"learn_every must be 1 or more, got {learn_every}")
    if not isinstance(agent, ON_POLICY):
        require_no_memory(method, name)
    episodes = Episodes(env, _mode(env, autoreset))
    bonus = AgentBonus(agent, episodes, method, eta, pretrained)
    if isinstance(agent, ON_POLICY):
        _hook_rollouts(bonus, learn_every)
    else:
        _hook_replay(bonus, 128 if learn_every is None else learn_every)
    agent.checkpoint_modules[MODULE] = bonus
    return bonus


def _mode(env: Wrapper, given: AutoresetMode | None) -> AutoresetMode:
    inner = env._env
    if isinstance(inner, VectorEnv):
        mode = autoreset_mode(inner)
        if mode is AutoresetMode.DISABLED:
            raise UserError(
                "skrl does not reset vector environments: use autoreset_mode SAME_STEP or NEXT_STEP"
            )
        return mode
    if given is not None:
        return AutoresetMode(given)
    if env.num_envs == 1:
        return AutoresetMode.DISABLED  # the trainer resets it
    raise UserError(
        "the environments do not declare how they reset: pass autoreset=AutoresetMode.SAME_STEP if "
        "they return the first observation of the next episode at an end, as Isaac Lab does"
    )


def _hook_rollouts(bonus: AgentBonus, learn_every: int | None) -> None:
    agent, memory = bonus.agent, bonus.agent.memory
    if learn_every is not None:
        raise UserError("learn_every is for off-policy agents: rollouts are learnt as a whole")
    if memory.memory_size != agent.cfg.rollouts:
        raise UserError(
            f"the memory must hold one rollout: memory_size is {memory.memory_size} and rollouts "
            f"is {agent.cfg.rollouts}"
        )
    memory.create_tensor(SUCCESSOR, size=bonus._episodes.space, dtype=torch.float32)
    memory.create_tensor(KNOWN, size=1, dtype=torch.bool)
    memory.create_tensor(REWARD_ENV, size=1, dtype=torch.float32)
    memory.create_tensor(BONUS, size=1, dtype=torch.float32)

    def extra(step: dict[str, Any]) -> dict[str, Tensor]:
        successor, known = bonus._episodes.successors(step)
        # A copy: PPO adds the bootstrap value at a time limit to the tensor itself.
        reward_env = step["rewards"].clone()
        return {SUCCESSOR: successor, KNOWN: known[:, None], REWARD_ENV: reward_env}

    _hook_record(bonus, extra)
    update = agent.update

    def update_with_bonus(**at: int) -> None:
        bonus._score_rollout()
        update(**at)

    agent.update = update_with_bonus


def _hook_replay(bonus: AgentBonus, learn_every: int) -> None:
    agent, memory = bonus.agent, bonus.agent.memory
    memory.create_tensor(KNOWN, size=1, dtype=torch.bool)
    needed = ["observations", "actions", "next_observations", KNOWN]
    if bonus._episodes.mode is AutoresetMode.SAME_STEP:
        memory.create_tensor(SUCCESSOR, size=bonus._episodes.space, dtype=torch.float32)
        needed.append(SUCCESSOR)

    def extra(step: dict[str, Any]) -> dict[str, Tensor]:
        successor, known = bonus._episodes.successors(step)
        if agent.training:
            bonus._gather(step, successor, known)
        return {SUCCESSOR: successor, KNOWN: known[:, None]}

    _hook_record(bonus, extra)
    sample, post_interaction = memory.sample, agent.post_interaction

    def sample_with_bonus(names: list[str], **options: Any) -> list[list[Tensor]]:
        if "rewards" not in names:
            return sample(names=names, **options)
        read = [*names, *(name for name in needed if name not in names)]
        drawn = [dict(zip(read, batch, strict=True)) for batch in sample(names=read, **options)]
        for columns in drawn:
            columns["rewards"] = bonus._score_minibatch(columns)
        return [[columns[name] for name in names] for columns in drawn]

    def post_interaction_and_learn(**at: int) -> None:
        if agent.training and bonus._pending.steps >= learn_every:
            bonus._learn()
        post_interaction(**at)

    memory.sample = sample_with_bonus
    agent.post_interaction = post_interaction_and_learn


def _hook_record(bonus: AgentBonus, extra: Callable[[dict[str, Any]], dict[str, Tensor]]) -> None:
    """Store what `extra` returns for a step in the same row of the memory as the step."""
    agent, memory = bonus.agent, bonus.agent.memory
    record, add_samples = agent.record_transition, memory.add_samples
    columns: dict[str, Tensor] = {}

    def record_with_successors(**step: Any) -> None:
        columns.update(extra(step))
        try:
            record(**step)
        finally:
            columns.clear()

    def add_with_successors(**samples: Tensor) -> None:
        add_samples(**samples, **columns)

    agent.record_transition = record_with_successors
    memory.add_samples = add_with_successors
