"""Algorithm 1 of the paper: collect a batch, score it, train the method, update the policy.

`Trainer._iterate` is one iteration of the algorithm, for any method. Nothing is written to disk
here: `emi.runs.run` logs the reports and writes checkpoints.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from emi.agent.advantage import bootstrapped, gae, standardise, successor_values
from emi.agent.policy import make_policy
from emi.agent.rollout import Rollout
from emi.agent.streams import Stream, continued
from emi.agent.trpo import trpo_step
from emi.agent.value import AnyValue, explained_variance, make_value
from emi.batch import Array, FloatArray
from emi.envs import left_out, make_vec
from emi.envs.foreign import environment_errors
from emi.envs.positions import RecordPositions
from emi.envs.table import position_columns
from emi.errors import NotFiniteError, UserError, check_finite
from emi.images import is_image
from emi.intrinsic.contract import Factory, Finish, checked_score, find_method, method_of
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.intrinsic.outside_state import (
    OutsideState,
    check_optimizers,
    load_optimizers,
    optimizer_states,
)
from emi.stored_state import check_module, expect_int, expect_keys, expect_numpy_generator
from emi.training.config import TrainConfig, change
from emi.training.heap import keep_freed_memory
from emi.training.keeping import (
    History,
    gives_up,
    raise_std,
    rewarded_episodes,
    step_scale,
    stored_history,
)
from emi.training.memory import require_memory
from emi.training.overlap import Collector, LearningThread, start_workers
from emi.training.presets import resolve
from emi.training.visits import Visits

FEW = 100  # environments that fit into any memory: the spaces of more are read from one first


@dataclass(frozen=True)
class Report:
    """The result of one iteration; `metrics` are the columns of metrics.csv except the times."""

    iteration: int
    steps: int
    metrics: dict[str, float]


class Estimates(NamedTuple):
    """What the policy and the value function are trained on, [n] each."""

    advantage: Array
    value: Array  # predicted before the fit
    target: Array  # discounted returns, bootstrapped where the batch cut an episode, see `estimate`
    cut: bool  # whether any of them is bootstrapped


class Trainer:
    """The agent, its environments and its random generators.

    `method` is a class or function that builds the intrinsic reward; by default it is found by its
    name, `config.method`.
    """

    def __init__(self, config: TrainConfig, method: Factory | None = None) -> None:
        if config.device == "cuda" and not torch.cuda.is_available():
            raise UserError("this machine has no CUDA device: set device to cpu")
        self.config = config
        self.iteration = 0
        self.steps = 0
        self.total_iterations = config.iterations

        # One random stream per consumer: what one of them draws does not affect the others.
        root = np.random.SeedSequence(config.seed)
        streams = root.spawn(6)
        *seeds, intrinsic, resets = (int(s.generate_state(1)[0]) for s in streams[:4])
        policy, value = (torch.Generator().manual_seed(seed) for seed in seeds)
        action_rng, self._value_rng = (np.random.default_rng(s) for s in streams[4:])

        if config.num_envs > FEW:
            with contextlib.closing(make_vec(config.env, **config.env_options)) as one:
                require_memory(config, one.single_observation_space, one.single_action_space)
        self.envs = make_vec(
            config.env,
            config.num_envs,
            threads=config.threads,
            positions=config.coverage,
            **config.env_options,
        )
        self.left_out = left_out(self.envs)  # entries of the observations that are not read
        self.visits: Visits | None = None  # None: visited states are not recorded
        if config.coverage:
            self.envs = RecordPositions(self.envs)
            columns = {} if config.coverage_axes else position_columns(config.env)
            axes = config.coverage_axes or tuple(columns.values())
            self.visits = Visits(self.envs.single_observation_space, axes, tuple(columns))
        obs_space = self.envs.single_observation_space
        action_space = self.envs.single_action_space
        require_memory(config, obs_space, action_space)
        self.policy = make_policy(obs_space, action_space, config.policy, policy)
        self.policy.to(config.device)
        self._policy_seed = seeds[0]
        self.value = make_value(obs_space, config.value, value, config.device)
        self.history = History()
        found = find_method(config.method) if method is None else method_of(method)
        found = found._replace(config=config.intrinsic)
        # None: no bonus.
        self.intrinsic = found.build(
            obs_space, action_space, intrinsic, normalize=config.normalize_observations
        )
        if self.intrinsic is not None:
            if config.normalize_bonus:
                self.intrinsic = NormalizeReward(self.intrinsic)
            self.intrinsic.to(config.device)
        elif config.reward == "none":
            raise UserError(
                f"{config.method} has no bonus, so there is nothing to learn without a reward: "
                "choose another method, or reward=environment"
            )
        # Plain attributes of a user's method, which `state_dict` lacks.
        self.outside = None if self.intrinsic is None else OutsideState(self.intrinsic)
        self.bonus_value: AnyValue | None = None  # None: the bonus is added to the reward
        if config.streams.separate and self.intrinsic is not None:
            generator = torch.Generator().manual_seed(int(root.spawn(1)[0].generate_state(1)[0]))
            # The bonus changes while the method learns: old bonuses are not worth remembering.
            forgetful = dataclasses.replace(config.value, memory=0.0)
            self.bonus_value = make_value(obs_space, forgetful, generator, config.device)
        self.last_batch: tuple[Rollout, Array] | None = None  # rollout, bonuses [n]

        # The method is trained on one half of the cores while the policy and the value function
        # are trained on the other. Splitting every operation among all cores is as fast on an idle
        # machine, and half as fast on a busy one. Operations on vectors are too small to be split.
        apart = self.intrinsic is not None and not self.intrinsic.learns_first
        self._learning = LearningThread(config.threads > 1 and apart)
        halves = 2 if self._learning.enabled else 1
        images = is_image(obs_space)
        torch.set_num_threads(max(1, config.threads // halves) if images else 1)
        if images:
            keep_freed_memory()
        cores = config.threads - (1 if self._learning.enabled else 0)
        workers = start_workers(config, self.envs, cores)
        self._overlap = self._learning.enabled or workers is not None
        self._fitting = self._learning if workers is None else LearningThread(False)
        self.collector = Collector(
            self.envs, self.policy, config.steps_per_iteration, resets, action_rng, workers
        )

    def iterate(self) -> Report:
        """Run one iteration; NotFiniteError names the quantity that became NaN or infinite.

        ForeignError names an environment that raised an exception.
        """
        try:
            with environment_errors(self.config.env):
                return self._iterate()
        except NotFiniteError as error:
            raise NotFiniteError(
                f"{error} in iteration {self.iteration + 1} of "
                f"{self.config.env} with {self.config.method}"
            ) from None

    def _iterate(self) -> Report:
        """One iteration of Algorithm 1."""
        config = self.config

        # Collect samples {(s, a, s')} with the policy π_θ.
        rollout = self.collector.batch(self.iteration)

        # V(s) does not depend on the bonus: it can be predicted while the batch is scored.
        obs, clock = rollout.observations(), rollout.flat(rollout.clock)
        values = self._fitting.start(lambda: self.value.predict(obs, clock))

        # Compute the intrinsic rewards r_e, and start to train the method (for EMI: update α, β, γ,
        # ω_A, ω_S by Adam on equation 7). `wait` returns its scalars.
        bonus, wait = self._score(rollout)
        coverage = self._visit(rollout, bonus)

        # Augment: r = r_env + η r_e. Or keep two streams: A = A_env + η A_bonus.
        reward = self.clipped_reward(rollout)
        rewarded = rewarded_episodes(reward, rollout.ended)
        if self.bonus_value is None:
            reward = reward + config.eta * rollout.grid(bonus)

        # Update π_θ with TRPO. The baseline is the value function of the previous iteration.
        advantage, value, target, cut = self.estimate(rollout, reward, values())
        if self.bonus_value is not None:
            own = self._estimate(rollout, rollout.grid(bonus), self._bonus_stream(self.bonus_value))
            advantage = advantage + config.eta * own.advantage
        scale = self._stakes(float(advantage.std()), rewarded > 0)
        step = trpo_step(
            self.policy,
            obs,
            self._tensor(rollout.flat(rollout.action)),
            self._tensor(standardise(advantage).astype(np.float32)),
            dataclasses.replace(config.trpo, max_kl=scale * config.trpo.max_kl),
        )
        keeping_scalars = self._keep(scale)

        # What follows does not change the policy: the next batch can be collected meanwhile, by
        # other processes at once, or by this one before it waits for the method.
        ahead = self._overlap and self.iteration + 1 < self.total_iterations
        if ahead:
            self.collector.begin_ahead(self.iteration + 1)

        def fit() -> dict[str, float]:
            found = self.value.fit(obs, clock, target, self._value_rng, cut=cut, rewarded=rewarded)
            if self.bonus_value is not None:
                of_bonus = self.bonus_value.fit(
                    obs, clock, own.target, self._value_rng, cut=own.cut
                )
                found["bonus_value/loss"] = of_bonus["value/loss"]
            return found

        # If this thread collects, the value function is fitted by the one that trains the method.
        wait_for_fit = self._fitting.start(fit)
        if ahead:
            self.collector.collect_ahead(self.iteration + 1)
        scalars = wait() | wait_for_fit() | keeping_scalars | coverage
        self._check_parameters()

        returns = rollout.episode_returns
        if len(returns) == 0:
            returns = np.array([np.nan])
        metrics = {
            "iteration": self.iteration + 1,
            "steps": self.steps + rollout.steps,
            "episodes": len(rollout.episode_returns),
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_max": float(returns.max()),
            "bonus_mean": float(bonus.mean()),
            "bonus_std": float(bonus.std()),
            "kl": step.kl,
            "entropy": step.entropy,
            "explained_variance": explained_variance(value, target),
            "trpo/accepted": float(step.accepted),
            "trpo/tries": step.tries,
            "trpo/surrogate_gain": step.surrogate,
            **scalars,
        }
        for name, scalar in metrics.items():
            # NaN says that there is no value, as the return of an iteration without an episode end.
            if math.isinf(scalar):
                raise NotFiniteError(f"{name} became infinite")
        self.iteration += 1
        self.steps += rollout.steps
        self.last_batch = (rollout, bonus)
        return Report(self.iteration, self.steps, metrics)

    def _score(self, rollout: Rollout) -> tuple[Array, Finish]:
        """Bonuses [n], zeros without a method, and a function that waits for the training."""
        if self.intrinsic is None:
            return np.zeros(rollout.steps), dict
        sampled = self.intrinsic.wants_sampled_actions
        to_units = self.policy.actions.rescale if sampled else self.policy.actions.to_env
        bonus, finish = checked_score(self.intrinsic, rollout.transitions(to_units))
        flat = bonus.cpu().numpy().astype(np.float64)
        return flat, self._learning.start(finish)

    def _visit(self, rollout: Rollout, bonus: Array) -> dict[str, float]:
        """Record the visited states, if the config asks for it; returns scalars about them."""
        if self.visits is None:
            return {}
        assert isinstance(self.envs, RecordPositions)
        return self.visits.add(rollout, bonus, self.envs.map)

    def clipped_reward(self, rollout: Rollout) -> Array:
        """r_env [time, env] that is learned from; reported returns are raw.

        Clamped or, without a reward, 0, if the config asks for it.
        """
        if self.config.reward == "none":
            return np.zeros_like(rollout.reward)
        return rollout.reward.clip(-1, 1) if self.config.clip_rewards else rollout.reward

    def estimate(
        self, rollout: Rollout, reward: Array, values: FloatArray | None = None
    ) -> Estimates:
        """Advantages, values and returns of a batch with these rewards [time, env].

        `values` [n] are those of the states, if they are known.
        """
        config = self.config
        stream = Stream(self.value, config.discount, config.gae_lambda, episodic=True)
        return self._estimate(rollout, reward, stream, values)

    def _bonus_stream(self, value: AnyValue) -> Stream:
        streams = self.config.streams
        return Stream(value, streams.discount, streams.gae_lambda, streams.episodic)

    def _estimate(
        self, rollout: Rollout, reward: Array, stream: Stream, values: FloatArray | None = None
    ) -> Estimates:
        flat_value = values
        if flat_value is None:
            flat_value = stream.value.predict(rollout.observations(), rollout.flat(rollout.clock))
        value = rollout.grid(flat_value)
        cut = bootstrapped(rollout, bootstrap_timeouts=self.config.bootstrap_timeouts)
        after = successor_values(rollout, value, cut, stream.value.predict_after)
        if not stream.episodic:
            after = continued(after, value, rollout.ended & ~cut, rollout.clock)

        def advantages(gae_lambda: float) -> Array:
            factors = {"discount": stream.discount, "gae_lambda": gae_lambda}
            return rollout.flat(gae(reward, value, after, rollout.ended, **factors))

        advantage = advantages(stream.gae_lambda)
        target = flat_value + (advantage if stream.gae_lambda == 1 else advantages(1.0))
        check_finite("advantage", advantage)
        check_finite("return", target)
        return Estimates(advantage, flat_value, target, bool(cut.any()))

    def _stakes(self, stake: float, rewarded: bool) -> float:
        """Note the batch in the history; returns the share of the trust region that it may use."""
        keeping = self.config.keeping
        if not keeping.follows:
            return 1.0
        self.history = self.history.after(stake, rewarded, keeping.stake_decay)
        if rewarded:
            return 1.0
        return step_scale(stake, self.history.reference, keeping.stake_power)

    def _keep(self, scale: float) -> dict[str, float]:
        """Keep the policy's noise, or draw a new policy; returns scalars if an option is on."""
        keeping = self.config.keeping
        raise_std(self.policy, keeping.min_std)
        if gives_up(self.history, keeping.patience):
            self.history = self.history.restarted()
            # A pure function of the seed and the number of restarts: nothing else to store.
            words = np.random.SeedSequence([self._policy_seed, self.history.restarts])
            generator = torch.Generator().manual_seed(int(words.generate_state(1)[0]))
            spaces = self.envs.single_observation_space, self.envs.single_action_space
            drawn = make_policy(*spaces, self.config.policy, generator)
            self.policy.load_state_dict(drawn.state_dict())
        if not keeping.follows:
            return {}
        restarts = float(self.history.restarts)
        return {"keeping/step_scale": scale, "keeping/restarts": restarts}

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.config.device)

    def _check_parameters(self) -> None:
        for owner, module in self._modules().items():
            for name, parameter in module.state_dict().items():
                if isinstance(parameter, Tensor):
                    check_finite(f"parameter {owner}.{name}", parameter.cpu().numpy())

    def _modules(self) -> dict[str, nn.Module]:
        modules: dict[str, nn.Module] = {"policy": self.policy, "value": self.value}
        if self.bonus_value is not None:
            modules["bonus_value"] = self.bonus_value
        return modules if self.intrinsic is None else modules | {"intrinsic": self.intrinsic}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on: nested dicts of tensors and values."""
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "action_rng": self.collector.rng_state,
            "value_rng": self._value_rng.bit_generator.state,
            # Absent without these options, so that their checkpoints stay what they were.
            **({"keeping": self.history.state()} if self.config.keeping.follows else {}),
            **self._optimizers(),
            **({} if self.visits is None else {"visits": self.visits.state()}),
            **{name: dict(module.state_dict()) for name, module in self._modules().items()},
        }

    def _optimizers(self) -> dict[str, Any]:
        """The states of optimizers that a user's method holds as plain attributes, if any."""
        found = {} if self.intrinsic is None else optimizer_states(self.intrinsic)
        return {"optimizers": found} if found else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; if it does not fit, UserError says where.

        A state that does not fit changes nothing.
        """
        own = self.state_dict()
        expect_keys(state, own, "state")
        expect_int(state["iteration"], 0, self.total_iterations, "iteration")
        done = state["iteration"]
        # An iteration takes at least `steps_per_iteration` steps, and less than `num_envs` more.
        expect_int(state["steps"], done, 2 * self.config.steps_per_iteration * done, "steps")
        for name in ("action_rng", "value_rng"):
            expect_numpy_generator(state[name], own[name], name)
        for name, module in self._modules().items():
            check_module(module, state[name], name, finite=True)
        if "keeping" in own:
            stored_history(state["keeping"], done)
        if "optimizers" in own:
            assert self.intrinsic is not None
            check_optimizers(self.intrinsic, state["optimizers"], "optimizers")
        if self.visits is not None:
            self.visits.check(state["visits"], done)
        before = copy.deepcopy(own)
        try:
            self._load(state)
        except Exception as error:  # whatever a user's method raises
            self._load(before)
            raise UserError(f"{type(error).__name__}: {error}") from error

    def _load(self, state: dict[str, Any]) -> None:
        for name, module in self._modules().items():
            module.load_state_dict(state[name])
        self.iteration, self.steps = state["iteration"], state["steps"]
        if "keeping" in state:
            self.history = stored_history(state["keeping"], self.iteration)
        if "optimizers" in state:
            assert self.intrinsic is not None
            load_optimizers(self.intrinsic, state["optimizers"])
        if self.visits is not None:
            self.visits.load(state["visits"])
        self.collector.rng_state = state["action_rng"]
        self._value_rng.bit_generator.state = state["value_rng"]

    def close(self) -> None:
        self._learning.close()
        self.collector.close()


def train(
    env: str | TrainConfig, method: str | Factory = "emi", **settings: Any
) -> Iterator[Report]:
    """Train and yield one report per iteration; nothing is written to disk.

    Give a config (`emi.train(emi.preset("SparseHalfCheetah"))`), or an environment, a method and
    the settings that differ from their preset:
    `emi.train("SparseHalfCheetah", "rnd", seed=1, steps=100_000, trpo={"max_kl": 0.02})`.
    A method is a name of `emi methods`, `"package.module:Class"`, or your own subclass of
    `emi.IntrinsicReward` itself. `env_args`, `wrappers` and `observation` are settings too.
    """
    if isinstance(env, TrainConfig):
        if method != "emi" or settings:
            raise UserError(
                "settings cannot be given with a config: change it with dataclasses.replace"
            )
        config, factory = change(env, {}), None
    else:
        config = resolve(env, method, settings)
        factory = None if isinstance(method, str) else method
    return _reports(Trainer(config, factory))


def _reports(trainer: Trainer) -> Iterator[Report]:
    try:
        while trainer.iteration < trainer.total_iterations:
            yield trainer.iterate()
    finally:
        trainer.close()
