"""The intrinsic reward of skrl's agents: transitions, rewards, advantages, replay, state.

The oracle's observation is (episode, t), so that every scored or learnt row can be identified.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracle import STEPS, OracleVectorEnv
from skrl.agents.torch.a2c import A2C
from skrl.agents.torch.cem import CEM
from skrl.agents.torch.ddpg import DDPG
from skrl.agents.torch.ddqn import DDQN
from skrl.agents.torch.dqn import DQN
from skrl.agents.torch.ppo import PPO, PPO_RNN
from skrl.agents.torch.rpo import RPO
from skrl.agents.torch.sac import SAC
from skrl.agents.torch.td3 import TD3
from skrl.agents.torch.trpo import TRPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import Tensor, nn

import emi
from emi.adapters import add_intrinsic_reward, linear_schedule
from emi.adapters.skrl import Episodes
from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward

PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "skrl.md"
SAME, NEXT = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
MODES = pytest.mark.parametrize("mode", [SAME, NEXT], ids=lambda mode: mode.name)
ON_POLICY = {"PPO": PPO, "A2C": A2C, "TRPO": TRPO, "RPO": RPO}
OFF_POLICY = {"SAC": SAC, "TD3": TD3, "DDPG": DDPG, "DQN": DQN, "DDQN": DDQN}


class Recording(IntrinsicReward):
    """A bonus of `scale` · (1 + t of s'); keeps what it scored and learnt."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.scored: list[Transitions] = []
        self.learnt: list[Transitions] = []
        self.calls: list[str] = []

    def reward(self, batch: Transitions) -> Tensor:
        self.calls.append("score")
        self.scored.append(batch)
        return self.scale * (1 + batch.next_obs[:, 1])

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.calls.append("learn")
        assert torch.is_grad_enabled()
        self.learnt.append(batch)
        return {"recording/rows": float(len(batch))}


def column(parts: list[Transitions], name: str) -> Tensor:
    return torch.cat([getattr(part, name) for part in parts])


class Policy(GaussianMixin, Model):
    def __init__(self, env: Any) -> None:
        Model.__init__(self, **spaces_of(env))
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = nn.Linear(self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Choice(CategoricalMixin, Model):
    def __init__(self, env: Any) -> None:
        Model.__init__(self, **spaces_of(env))
        CategoricalMixin.__init__(self)
        self.net = nn.Linear(self.num_observations, self.num_actions)

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(1e-3 * inputs["observations"]), {}


class Output(DeterministicMixin, Model):
    """A value [n, 1], a Q-value of an action, Q-values of all actions, or an action."""

    def __init__(self, env: Any, outputs: int = 1, *, with_action: bool = False) -> None:
        Model.__init__(self, **spaces_of(env))
        DeterministicMixin.__init__(self, clip_actions=False)
        inputs = self.num_observations + with_action * self.num_actions
        self.with_action, self.net = with_action, nn.Linear(inputs, outputs)

    def compute(self, inputs: Any, role: str = "") -> Any:
        parts = [inputs["observations"]]
        if self.with_action:
            parts.append(inputs["taken_actions"])
        return self.net(1e-3 * torch.cat(parts, 1)), {}


def spaces_of(env: Any) -> dict[str, Any]:
    return {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": "cpu",
    }


def agent_of(name: str, env: Any, directory: Path, size: int = 8, **settings: Any) -> Any:
    discrete = isinstance(env.action_space, Discrete)
    if name in ON_POLICY:
        models = {"policy": Choice(env) if discrete else Policy(env), "value": Output(env)}
        settings = {"rollouts": size, **settings}
        if name in ("PPO", "RPO"):
            settings = {"learning_epochs": 1, "mini_batches": 1, **settings}
    elif name in ("DQN", "DDQN"):
        models = {k: Output(env, env.action_space.n) for k in ("q_network", "target_q_network")}
        settings = {"batch_size": 16, **settings}
    else:
        actions = env.action_space.shape[0]
        actor = Policy(env) if name == "SAC" else Output(env, actions)
        models = {"policy": actor, "target_policy": Output(env, actions)}
        for critic in ("critic", "critic_1", "critic_2"):
            models[critic] = Output(env, with_action=True)
            models[f"target_{critic}"] = Output(env, with_action=True)
        settings = {"batch_size": 16, **settings}
    experiment = {"directory": str(directory), "write_interval": 0, "checkpoint_interval": 0}
    kind = {**ON_POLICY, **OFF_POLICY}[name]
    memory = RandomMemory(memory_size=size, num_envs=env.num_envs, device="cpu")
    cfg = {"experiment": experiment, **settings}
    return kind(models=models, memory=memory, cfg=cfg, **spaces_of(env))


def train(agent: Any, env: Any, timesteps: int) -> None:
    cfg = {
        "timesteps": timesteps,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(cfg=cfg, env=env, agents=agent).train()


class Watched(OracleVectorEnv):
    """Keeps the true transitions of each step."""

    def __init__(self, num_envs: int, mode: AutoresetMode) -> None:
        super().__init__(num_envs, mode)
        self.states: list[np.ndarray] = []
        self.real: list[np.ndarray] = []
        self.ends: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []

    def step(self, actions: Any) -> Any:
        self.real.append(~self.pending)
        self.states.append(self.state.copy())
        self.actions.append(np.array(actions))
        out = super().step(actions)
        self.ends.append(out[2] | out[3])
        return out


class Walk(gymnasium.Env):
    """obs = (episode, t); an episode has four steps, and its reward is t."""

    observation_space = Box(-1, np.inf, (2,), np.float32)

    def __init__(self, actions: gymnasium.Space, images: bool = False) -> None:
        self.action_space, self.episode, self.t = actions, 0, 0
        if images:
            self.observation_space = Box(0, 255, (1, 36, 36), np.uint8)

    def _obs(self) -> Any:
        if self.observation_space.shape == (2,):
            return np.float32([self.episode, self.t])
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), float(self.t), False, self.t == 4, {}


BOX = Box(-1, 1, (2,), np.float32)


def walks(n: int, mode: AutoresetMode, actions: Any = BOX, **kw: Any) -> Any:
    return wrap_env(
        SyncVectorEnv([lambda: Walk(actions, **kw)] * n, autoreset_mode=mode), verbose=False
    )


def assert_truth(parts: list[Transitions], inner: Watched) -> None:
    real = np.stack(inner.real)
    truth, n = np.stack(inner.states)[real], inner.num_envs
    np.testing.assert_array_equal(column(parts, "obs"), truth)
    np.testing.assert_array_equal(column(parts, "next_obs"), truth + np.array([0, 1]))
    np.testing.assert_array_equal(column(parts, "action"), np.stack(inner.actions)[real])
    np.testing.assert_array_equal(column(parts, "ended"), np.stack(inner.ends)[real])
    index = np.broadcast_to(np.arange(n), real.shape)[real]
    np.testing.assert_array_equal(column(parts, "env_index"), index)
    assert len(np.unique(truth, axis=0)) == len(truth)


@MODES
def test_rollouts_use_every_transition_once_and_none_crosses_an_episode(
    mode: AutoresetMode, tmp_path: Path
) -> None:
    inner, method = Watched(20, mode), Recording()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("A2C", env, tmp_path, size=50)
    intrinsic = add_intrinsic_reward(agent, env, method, 0.5)
    train(agent, env, STEPS // 20)
    assert method.calls == ["score", "learn"] * (STEPS // 1_000)
    assert_truth(method.scored, inner)
    assert_truth(method.learnt, inner)
    assert intrinsic.steps == np.stack(inner.real).sum()
    assert (intrinsic.steps == STEPS) == (mode is SAME)


@MODES
def test_replay_uses_every_transition_once_and_none_crosses_an_episode(
    mode: AutoresetMode, tmp_path: Path
) -> None:
    inner, method = Watched(20, mode), Recording()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("DQN", env, tmp_path, size=100)
    intrinsic = add_intrinsic_reward(agent, env, method, 0.5, learn_every=50)
    train(agent, env, STEPS // 20)
    assert method.calls.count("learn") == STEPS // 1_000
    assert method.calls.count("score") == STEPS // 20 - 49  # nothing before the first training
    assert_truth(method.learnt, inner)
    real = np.stack(inner.real)
    known = {tuple(state) for state in np.stack(inner.states)[real].tolist()}
    obs, after = column(method.scored, "obs"), column(method.scored, "next_obs")
    assert {tuple(state) for state in obs.tolist()} <= known  # no step that only resets
    assert torch.equal(after, obs + torch.tensor([0, 1]))
    assert intrinsic.steps == real.sum()


@pytest.mark.parametrize("name", ON_POLICY)
@MODES
def test_the_bonus_reaches_the_advantages(name: str, mode: AutoresetMode, tmp_path: Path) -> None:
    """Returns of skrl with the bonus minus those without, by hand; V is the same in both."""
    found = {}
    for eta in (0.0, 2.0):
        torch.manual_seed(0)
        env = walks(3, mode)
        agent = agent_of(name, env, tmp_path, discount_factor=0.5, gae_lambda=1.0)
        method = Recording()
        intrinsic = add_intrinsic_reward(agent, env, method, eta)
        train(agent, env, 8)
        tensors = {k: v.clone() for k, v in agent.memory.tensors.items()}
        found[eta] = tensors, intrinsic.scalars
    plain, (ours, scalars) = found[0.0][0], found[2.0]
    assert torch.equal(ours["observations"], plain["observations"])
    assert torch.equal(ours["actions"], plain["actions"])
    known, bonus = ours["successor_known"], ours["bonus"]
    expected = torch.where(known, 1 + ours["successor"][..., 1:], 0.0)
    assert torch.equal(bonus, expected)
    assert torch.equal(ours["rewards"], plain["rewards"] + 2 * bonus)
    assert torch.equal(ours["reward_env"], plain["rewards"])
    ended = ours["terminated"] | (ours["truncated"] & agent.cfg.time_limit_bootstrap)
    extra = torch.zeros(3, 1)
    for t in reversed(range(8)):
        extra = 2 * bonus[t] + 0.5 * ~ended[t] * extra
        torch.testing.assert_close(ours["returns"][t] - plain["returns"][t], extra)
    assert scalars["intrinsic/bonus_mean"] == pytest.approx(bonus.mean().item())
    assert scalars["intrinsic/eta"] == 2.0
    assert scalars["recording/rows"] == known.sum()
    assert bool(known.all()) == (mode is SAME)


def weights(agent: Any) -> list[Tensor]:
    return [p.detach().clone() for m in agent.models.values() for p in m.parameters()]


@pytest.mark.parametrize("name", [*ON_POLICY, *OFF_POLICY])
def test_zero_coefficient_changes_no_bit(name: str, tmp_path: Path) -> None:
    results = []
    actions = Discrete(2) if name in ("DQN", "DDQN") else BOX
    for eta in (None, 0.0, 1.0):
        torch.manual_seed(0)
        env = walks(2, SAME, actions)
        if isinstance(actions, Box):
            env.action_space.seed(0)
        agent = agent_of(name, env, tmp_path, size=8 if name in ON_POLICY else 64)
        method = Recording()
        if eta is not None:
            kw = {} if name in ON_POLICY else {"learn_every": 5}
            add_intrinsic_reward(agent, env, method, eta, **kw)
        train(agent, env, 24)
        results.append(weights(agent))
        assert eta is None or "learn" in method.calls
    without, zero, one = results
    assert all(map(torch.equal, without, zero))
    assert not all(map(torch.equal, without, one))  # the bonus has an effect


@pytest.mark.parametrize("name", OFF_POLICY)
def test_minibatches_have_the_bonus_of_the_moment(name: str, tmp_path: Path) -> None:
    actions = Discrete(2) if name in ("DQN", "DDQN") else BOX
    env = walks(3, SAME, actions)
    agent = agent_of(name, env, tmp_path, size=64)
    method = Recording()
    intrinsic = add_intrinsic_reward(agent, env, method, 0.5, learn_every=4)
    train(agent, env, 12)
    names = ["rewards", "observations", "next_observations"]
    for scale in (1.0, 3.0):
        method.scale = scale
        ((rewards, obs, after),) = agent.memory.sample(names=[*names], batch_size=20)
        # The reward of the environment is the t after the step; so is t of the true successor.
        t = obs[:, 1:] + 1
        torch.testing.assert_close(rewards, t + 0.5 * scale * (1 + t))
        # What the agent itself sees is not changed: at an end, the next episode begins.
        assert torch.equal(after[:, 1:], torch.where(t < 4, t, 0.0))
    stored = agent.memory.tensors["rewards"][:12]
    assert stored.unique().tolist() == [1, 2, 3, 4]
    assert intrinsic.scalars["intrinsic/eta"] == 0.5


class Recurrent(Model):
    """A GRU over sequences of four steps; the last layer depends on the kind of model."""

    def __init__(self, env: Any, outputs: int) -> None:
        Model.__init__(self, **spaces_of(env))
        self.n, self.gru = env.num_envs, nn.GRU(self.num_observations, 4, batch_first=True)
        self.net, self.log_std = nn.Linear(4, outputs), nn.Parameter(torch.zeros(outputs))

    def get_specification(self) -> dict[str, Any]:
        return {"rnn": {"sequence_length": 4, "sizes": [(1, self.n, 4)]}}

    def compute(self, inputs: Any, role: str = "") -> Any:
        length = 4 if self.training else 1
        obs = inputs["observations"].reshape(-1, length, self.num_observations)
        hidden = inputs["rnn"][0].reshape(1, -1, length, 4)[:, :, 0].contiguous()
        out, hidden = self.gru(obs, hidden)
        return self.net(out.flatten(0, 1)), {"log_std": self.log_std, "rnn": [hidden]}


class RecurrentPolicy(GaussianMixin, Recurrent):
    def __init__(self, env: Any) -> None:
        Recurrent.__init__(self, env, env.action_space.shape[0])
        GaussianMixin.__init__(self)


class RecurrentValue(DeterministicMixin, Recurrent):
    def __init__(self, env: Any) -> None:
        Recurrent.__init__(self, env, 1)
        DeterministicMixin.__init__(self)


def test_a_recurrent_agent(tmp_path: Path) -> None:
    env = walks(2, SAME)
    experiment = {"directory": str(tmp_path), "write_interval": 0, "checkpoint_interval": 0}
    agent = PPO_RNN(
        models={"policy": RecurrentPolicy(env), "value": RecurrentValue(env)},
        memory=RandomMemory(memory_size=8, num_envs=2, device="cpu"),
        cfg={"rollouts": 8, "mini_batches": 1, "experiment": experiment},
        **spaces_of(env),
    )
    method = Recording()
    add_intrinsic_reward(agent, env, method, 0.5)
    train(agent, env, 16)
    assert method.calls == ["score", "learn"] * 2
    tensors = agent.memory.tensors
    assert torch.equal(tensors["rewards"], tensors["reward_env"] + 0.5 * tensors["bonus"])
    assert tensors["bonus"][..., 0].T.tolist() == [[2, 3, 4, 5] * 2] * 2


def test_a_single_environment_is_reset_by_the_trainer(tmp_path: Path) -> None:
    env = wrap_env(Walk(BOX), verbose=False)
    agent, method = agent_of("PPO", env, tmp_path), Recording()
    add_intrinsic_reward(agent, env, method, 1.0)
    train(agent, env, 16)
    obs, after = column(method.scored, "obs"), column(method.scored, "next_obs")
    assert obs[:, 1].tolist() == [0, 1, 2, 3] * 4
    assert torch.equal(after, obs + torch.tensor([0, 1]))


def test_a_method_that_learns_first_does_so(tmp_path: Path) -> None:
    env = walks(2, SAME)
    agent, method = agent_of("PPO", env, tmp_path), Recording()
    method.learns_first = True
    add_intrinsic_reward(agent, env, method, 1.0)
    train(agent, env, 8)
    assert method.calls == ["learn", "score"]


def test_a_schedule_is_called_with_the_transitions_before(tmp_path: Path) -> None:
    env = walks(2, SAME)
    agent, etas = agent_of("PPO", env, tmp_path), []
    intrinsic = add_intrinsic_reward(agent, env, Recording(), linear_schedule(1.0, 0.0, 32))
    for _ in range(3):
        train(agent, env, 8)
        etas.append(intrinsic.scalars["intrinsic/eta"])
    assert etas == [1.0, 0.5, 0.0]


def test_evaluation_is_not_used_but_its_resets_are_followed(tmp_path: Path) -> None:
    inner, method = Watched(5, NEXT), Recording()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("A2C", env, tmp_path, size=10)
    add_intrinsic_reward(agent, env, method, 1.0)
    cfg = {"timesteps": 10, "headless": True, "disable_progressbar": True}
    trainer = SequentialTrainer(
        cfg=cfg | {"close_environment_at_exit": False}, env=env, agents=agent
    )
    for evaluate in (False, True, False):
        trainer.eval() if evaluate else trainer.train()
    rows = np.r_[:10, 20:30]
    for name in ("states", "real", "ends", "actions"):
        setattr(inner, name, [getattr(inner, name)[row] for row in rows])
    assert_truth(method.learnt, inner)


@pytest.mark.parametrize("discrete", [False, True])
def test_images_are_read_as_images(discrete: bool, tmp_path: Path) -> None:
    actions = Discrete(3) if discrete else BOX
    env = walks(2, SAME, actions, images=True)
    method = emi.RND(env.observation_space, env.action_space, emi.RNDConfig(features=8))
    read: list[Transitions] = []
    agent = agent_of("PPO", env, tmp_path)
    intrinsic = add_intrinsic_reward(agent, env, method, 1.0)
    score = method.score
    method.score = lambda batch: (read.append(batch), score(batch))[1]  # type: ignore[method-assign]
    train(agent, env, 8)
    (batch,) = read
    assert batch.obs.shape == (16, 1, 36, 36)
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert batch.action.shape == ((16,) if discrete else (16, 2))
    assert intrinsic.scalars["intrinsic/bonus_mean"] > 0


def test_observations_of_a_dict_are_a_dict() -> None:
    class Env:
        observation_space = Dict(a=Box(-1, 1, (2,)), b=Box(0, 255, (2, 2), np.uint8))
        num_envs = 3

    flat = torch.arange(18.0).reshape(3, 6)
    parts = Episodes(Env(), SAME).observation(flat)  # type: ignore[arg-type]
    assert parts["a"].tolist() == [[0, 1], [6, 7], [12, 13]]
    assert parts["b"][1].tolist() == [[8, 9], [10, 11]]
    assert parts["b"].dtype == torch.uint8


def test_same_step_ends_without_their_observation_are_left_out(tmp_path: Path) -> None:
    """As of Isaac Lab, whose environments return no last observation."""

    class Silent(Watched):
        def step(self, actions: Any) -> Any:
            *rest, _ = super().step(actions)
            return *rest, {}

    inner, method = Silent(4, SAME), Recording()
    env = wrap_env(inner, wrapper="gymnasium", verbose=False)
    agent = agent_of("A2C", env, tmp_path, size=40)
    intrinsic = add_intrinsic_reward(agent, env, method, 1.0)
    train(agent, env, 40)
    ended = np.stack(inner.ends)
    inner.real = list(~ended)
    assert_truth(method.learnt, inner)
    assert intrinsic.steps == (~ended).sum() < 160
    assert torch.equal(agent.memory.tensors["bonus"][..., 0] == 0, torch.from_numpy(ended))


def test_last_observations_that_are_tensors() -> None:
    class Env:
        observation_space, num_envs = Box(-1, 1, (2,)), 2

    step = {
        "next_observations": torch.zeros(2, 2),
        "terminated": torch.tensor([[False], [True]]),
        "truncated": torch.zeros(2, 1, dtype=torch.bool),
        "infos": {"final_obs": torch.tensor([[1.0, 2.0], [3.0, 4.0]])},
    }
    after, known = Episodes(Env(), SAME).successors(step)  # type: ignore[arg-type]
    assert after.tolist() == [[0, 0], [3, 4]]
    assert known.all()


def test_what_is_rejected(tmp_path: Path) -> None:
    env = walks(2, SAME)
    agent = agent_of("PPO", env, tmp_path)
    with pytest.raises(UserError, match="eta"):
        add_intrinsic_reward(agent, env, Recording(), -1.0)
    with pytest.raises(UserError, match="off-policy"):
        add_intrinsic_reward(agent, env, Recording(), 1.0, learn_every=5)
    with pytest.raises(UserError, match="learn_every must be 1"):
        add_intrinsic_reward(agent, env, Recording(), 1.0, learn_every=0)
    add_intrinsic_reward(agent, env, Recording(), 1.0)
    with pytest.raises(UserError, match="already"):
        add_intrinsic_reward(agent, env, Recording(), 1.0)
    with pytest.raises(UserError, match="memory_size is 8 and rollouts is 16"):
        add_intrinsic_reward(agent_of("PPO", env, tmp_path, rollouts=16), env, Recording(), 1.0)
    other = agent_of("PPO", env, tmp_path)
    other.memory = None
    with pytest.raises(UserError, match="memory"):
        add_intrinsic_reward(other, env, Recording(), 1.0)
    models = {"policy": Choice(walks(2, SAME, Discrete(2)))}
    cem = CEM(models=models, memory=other.memory, cfg={}, **spaces_of(env))
    with pytest.raises(UserError, match="CEM is not supported"):
        add_intrinsic_reward(cem, env, Recording(), 1.0)
    disabled = walks(2, AutoresetMode.DISABLED)
    with pytest.raises(UserError, match="skrl does not reset vector environments"):
        add_intrinsic_reward(agent_of("PPO", disabled, tmp_path), disabled, Recording(), 1.0)

    class Unknown:
        _env, num_envs = object(), 2
        observation_space, action_space = env.observation_space, env.action_space

    unknown: Any = Unknown()
    with pytest.raises(UserError, match=r"autoreset=AutoresetMode\.SAME_STEP"):
        add_intrinsic_reward(agent_of("PPO", unknown, tmp_path), unknown, Recording(), 1.0)
    add_intrinsic_reward(
        agent_of("PPO", unknown, tmp_path), unknown, Recording(), 1.0, autoreset=SAME
    )


def test_several_agents_with_scopes_are_rejected(tmp_path: Path) -> None:
    env = walks(4, SAME)
    agents = [agent_of("PPO", walks(2, SAME), tmp_path) for _ in range(2)]
    for agent in agents:
        add_intrinsic_reward(agent, env, Recording(), 1.0)
    with pytest.raises(UserError, match="scopes"):
        train(agents, env, 8)


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_the_agent_saves_and_loads_it(name: str, tmp_path: Path) -> None:
    def build() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        env = walks(2, SAME)
        env.action_space.seed(0)
        agent = agent_of(name, env, tmp_path, size=8 if name == "PPO" else 64)
        method = emi.NormalizeReward(emi.EMI(env.observation_space, env.action_space))
        kw = {} if name == "PPO" else {"learn_every": 5}
        return env, agent, add_intrinsic_reward(agent, env, method, 1.0, **kw)

    env, agent, intrinsic = build()
    train(agent, env, 8)
    agent.save(str(tmp_path / "agent.pt"))
    _, other, restored = build()
    other.load(str(tmp_path / "agent.pt"))
    assert restored.steps == intrinsic.steps == 16
    assert restored.scalars == intrinsic.scalars
    state, same = intrinsic.state_dict(), restored.state_dict()
    if name == "SAC":
        assert len(same["pending"]["columns"]["obs"]) == 6  # three steps of two environments
        restored._learn()
        intrinsic._learn()
        state, same = intrinsic.state_dict(), restored.state_dict()
    assert state["method"].keys() == same["method"].keys()
    rows = Transitions(*(torch.rand(9, 2) for _ in range(3)), torch.arange(9) % 2)
    assert torch.equal(intrinsic.method.reward(rows), restored.method.reward(rows))
    assert intrinsic.method.learn(rows) == restored.method.learn(rows)


def test_what_is_logged(tmp_path: Path) -> None:
    env = walks(2, SAME)
    agent = agent_of("PPO", env, tmp_path)
    add_intrinsic_reward(agent, env, Recording(), 1.0)
    train(agent, env, 8)
    assert not [name for name in agent.tracking_data if name.startswith("Intrinsic")]
    agent = agent_of("PPO", env, tmp_path)
    agent.write_interval = 100
    add_intrinsic_reward(agent, env, Recording(), 1.0)
    train(agent, env, 8)
    logged = {k: v for k, v in agent.tracking_data.items() if k.startswith("Intrinsic")}
    assert logged["Intrinsic / eta"] == [1.0]
    assert logged["Intrinsic / recording/rows"] == [16.0]
    assert 0.5 < logged["Intrinsic / share"][0] < 1
    # skrl's own statistics are of the environment's reward.
    assert max(agent.tracking_data["Reward / Instantaneous reward (max)"]) == 4


@pytest.mark.parametrize("name", ["PPO", "SAC"])
@pytest.mark.parametrize("method", ["EMI", "RND"])
def test_no_data_leaves_the_device(
    name: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the environment, which has arrays, and the update of the agent."""
    env = walks(2, NEXT)  # with SAME_STEP the last observations come from infos, as arrays
    agent = agent_of(name, env, tmp_path, size=8 if name == "PPO" else 64)
    kw = {} if name == "PPO" else {"learn_every": 3}
    built = getattr(emi, method)(env.observation_space, env.action_space)
    intrinsic = add_intrinsic_reward(agent, env, built, 1.0, **kw)

    def forbid(name: str, patch: pytest.MonkeyPatch) -> None:
        original = getattr(Tensor, name)

        def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.dtype != torch.int64:  # indices of minibatches
                raise AssertionError(f"Tensor.{name} of {self.dtype}")
            return original(self, *args, **kwargs)

        patch.setattr(Tensor, name, call)

    def guarded(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with monkeypatch.context() as patch:
                for name in ("numpy", "cpu", "__array__"):
                    forbid(name, patch)
                return function(*args, **kwargs)

        return call

    agent.record_transition = guarded(agent.record_transition)
    agent.post_interaction = guarded(agent.post_interaction)
    train(agent, env, 16)
    assert intrinsic.steps > 16
    assert intrinsic.scalars["intrinsic/bonus_mean"] > 0


def test_the_pages_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # skrl would close the environment, with a line in its log, after pytest has closed the log.
    monkeypatch.setattr("atexit.register", lambda function: function)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(snippets) == 2
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet, names)
    assert names["intrinsic"].steps > 2_000
    assert "emi/loss_linear" in names["intrinsic"].scalars
