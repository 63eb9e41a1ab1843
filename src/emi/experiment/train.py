"""Algorithm 1 of the paper: collect, reward, learn the embedding, update the policy, again.

`Trainer.iterate` is one iteration and reads like the algorithm. Logging, checkpoints and drawing
sit outside and consume the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from emi.agent.advantage import gae, standardise, successor_values
from emi.agent.policy import make_policy
from emi.agent.rollout import collect
from emi.agent.trpo import trpo_step
from emi.agent.value import explained_variance, make_value
from emi.data import Array, NotFiniteError, Rollout, Rows, as_tensor, check_finite, in_pieces
from emi.envs import make_env
from emi.experiment.config import TrainConfig, resolve
from emi.intrinsic import EMI, Method, make_intrinsic, reward_and_rest
from emi.intrinsic.diagnosis import Diagnosis, diagnose
from emi.nets import Pixels, is_image

# Kept for pictures of the embedding.
EMBEDDING_SAMPLE = 2_000  # states that are vectors, about
FRAME_SAMPLE = 5_000  # states that are images: an Atari episode has at most 4,500
DIAGNOSIS_SAMPLE = 2_000  # transitions, about, that a bonus is examined on


@dataclass(frozen=True)
class Report:
    """What one iteration did; `metrics` are the columns of metrics.csv except the times."""

    iteration: int
    steps: int
    metrics: dict[str, float]


class Ahead(NamedTuple):
    """A batch collected early, and the state of the action noise before it."""

    rollout: Rollout
    action_rng: Mapping[str, Any]


class Trainer:
    """The agent, its world and its randomness; everything that a checkpoint holds."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.iteration = 0
        self.steps = 0
        self.total_iterations = config.iterations

        # One stream per consumer: what one of them draws never shifts what another sees.
        streams = np.random.SeedSequence(config.seed).spawn(6)
        policy, value, intrinsic, self._resets = (int(s.generate_state(1)[0]) for s in streams[:4])
        self._action_rng, self._value_rng = (np.random.default_rng(s) for s in streams[4:])

        self.envs = make_env(config.env, config.num_envs, threads=config.threads)
        obs_space = self.envs.single_observation_space
        action_space = self.envs.single_action_space
        self.policy = make_policy(obs_space, action_space, config.policy, _generator(policy))
        self.policy.to(config.device)
        self.value = make_value(obs_space, config.value, _generator(value), config.device)
        self.intrinsic: Method | None = None
        if config.intrinsic is not None:
            self.intrinsic = make_intrinsic(obs_space, action_space, config.intrinsic, intrinsic)
            self.intrinsic.to(config.device)
        self._last: tuple[Rollout, Array] | None = None
        self._ahead: Ahead | None = None

        # Nets for vectors are too small to be split: a second thread in each operation gains
        # nothing, and stalls on a busy machine. The embedding learns beside the policy instead.
        beside = config.threads > 1 and not is_image(obs_space)
        torch.set_num_threads(1 if beside else config.threads)
        self._beside = ThreadPoolExecutor(1) if beside and self.intrinsic else None

    def iterate(self) -> Report:
        """One iteration; NotFiniteError names what became NaN or infinite, and when."""
        try:
            return self._iterate()
        except NotFiniteError as error:
            raise NotFiniteError(
                f"{error} in iteration {self.iteration + 1} of "
                f"{self.config.env} with {self.config.method}"
            ) from None

    def _iterate(self) -> Report:
        """One pass of Algorithm 1."""
        config = self.config

        # Collect samples {(s, a, s')} with π_θ.
        rollout = self._next_rollout()

        # Compute intrinsic rewards; update α, β, γ, ω by Adam on equation 7, now or meanwhile.
        bonus, learning = self._bonus(rollout)

        # Augment: r = r_env + η r_e.
        reward = self._learnt_from(rollout) + config.eta * rollout.grid(bonus)

        # Update π_θ with TRPO; the baseline is the one fitted in the previous iteration.
        advantage, value, target = self._advantage(rollout, reward)
        obs, clock = rollout.observations(), rollout.flat(rollout.clock)
        value_scalars = self.value.fit(obs, clock, target, self._value_rng)
        step = trpo_step(
            self.policy,
            obs,
            self._tensor(rollout.flat(rollout.action)),
            self._tensor(standardise(advantage).astype(np.float32)),
            config.trpo,
        )
        self._collect_ahead()
        scalars = learning() | value_scalars
        self._check_parameters()

        self.iteration += 1
        self.steps += rollout.steps
        self._last = (rollout, bonus)
        returns = rollout.episode_returns
        finished = len(returns) > 0
        metrics = {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": len(returns),
            "return_mean": float(returns.mean()) if finished else float("nan"),
            "return_std": float(returns.std()) if finished else float("nan"),
            "return_max": float(returns.max()) if finished else float("nan"),
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
        return Report(self.iteration, self.steps, metrics)

    def _next_rollout(self) -> Rollout:
        if self._ahead is None:
            return self._collect(self.iteration)
        rollout, self._ahead = self._ahead.rollout, None
        return rollout

    def _collect(self, iteration: int) -> Rollout:
        # Every iteration starts from a reset seeded by (run, iteration): so a checkpoint needs no
        # simulator state and a resumed run is the run that was never stopped.
        seed = np.random.SeedSequence([self._resets, iteration]).generate_state(1)
        rollout = collect(
            self.envs,
            self.policy,
            self.config.steps_per_iteration,
            self._action_rng,
            int(seed[0]),
        )
        check_finite("reward", rollout.reward)
        return rollout

    def _collect_ahead(self) -> None:
        """The next batch, while the embedding still learns from this one, if it does."""
        if self._beside is None or self.iteration + 1 >= self.total_iterations:
            return
        before = self._action_rng.bit_generator.state
        try:
            self._ahead = Ahead(self._collect(self.iteration + 1), before)
        except NotFiniteError:
            # It belongs to the next iteration, which will meet it again.
            self._action_rng.bit_generator.state = before

    def _bonus(self, rollout: Rollout) -> tuple[Array, Callable[[], dict[str, float]]]:
        """[n] intrinsic rewards of the batch, zeros without a method; and a way to await learning.

        What is awaited returns the method's scalars.
        """
        if self.intrinsic is None:
            return np.zeros(rollout.steps), dict
        batch = rollout.transitions(self.policy.to_env)
        bonus, learn = reward_and_rest(self.intrinsic, batch)
        flat = bonus.cpu().numpy().astype(np.float64)
        check_finite("bonus", flat)
        if self._beside is not None:
            return flat, self._beside.submit(learn).result
        scalars = learn()
        return flat, lambda: scalars

    def _learnt_from(self, rollout: Rollout) -> Array:
        """r_env [T, envs] as the agent learns from it; reports have the raw one."""
        return rollout.reward.clip(-1, 1) if self.config.clip_rewards else rollout.reward

    def _advantage(self, rollout: Rollout, reward: Array) -> tuple[Array, Array, Array]:
        """Advantages, values and returns of the batch, [n] each."""
        config = self.config
        flat_value = self.value.predict(rollout.observations(), rollout.flat(rollout.clock))
        value = rollout.grid(flat_value)
        after = successor_values(
            rollout, value, self.value.predict, bootstrap_timeouts=config.bootstrap_timeouts
        )

        def estimate(gae_lambda: float) -> Array:
            grid = gae(
                reward,
                value,
                after,
                rollout.ended,
                discount=config.discount,
                gae_lambda=gae_lambda,
            )
            return rollout.flat(grid)

        advantage = estimate(config.gae_lambda)
        target = flat_value + (advantage if config.gae_lambda == 1 else estimate(1.0))
        check_finite("advantage", advantage)
        return advantage, flat_value, target

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.config.device)

    def _check_parameters(self) -> None:
        for room, module in self._modules().items():
            for name, parameter in module.state_dict().items():
                if isinstance(parameter, Tensor):
                    check_finite(f"parameter {room}.{name}", parameter.cpu().numpy())

    def _modules(self) -> dict[str, nn.Module]:
        modules: dict[str, nn.Module] = {"policy": self.policy, "value": self.value}
        return modules if self.intrinsic is None else modules | {"intrinsic": self.intrinsic}

    def embedding_sample(self) -> dict[str, Tensor]:
        """States of the last batch in φ-space with time, bonus and S; empty without an embedding.

        The first environments' whole paths are taken, so that a path can be drawn. Vectors are kept
        as `obs`; of images, the newest frames of s and s', `frame` and `frame_next` [n, C, H, W].
        """
        if not isinstance(self.intrinsic, EMI) or self._last is None:
            return {}
        rollout, bonus = self._last
        space = self.envs.single_observation_space
        chosen = np.zeros_like(rollout.valid)
        if is_image(space):
            chosen[:FRAME_SAMPLE, 0] = rollout.valid[:FRAME_SAMPLE, 0]
        else:
            paths = max(1, EMBEDDING_SAMPLE // len(rollout.index))
            chosen[:, :paths] = rollout.valid[:, :paths]
        # Gathered in pieces where they are read: a path of stacks is never held at once.
        obs, next_obs = (
            Rows(rollout.pool, index[chosen]) for index in (rollout.index, rollout.next_index)
        )
        action = self.policy.to_env(rollout.action[chosen])
        env = np.broadcast_to(np.arange(chosen.shape[1]), chosen.shape)
        if is_image(space):
            newest = Pixels(space.shape, newest_frame=True).frames  # type: ignore[arg-type]
            seen = {"frame": obs, "frame_next": next_obs}
            states = {name: in_pieces(newest, "cpu", rows) for name, rows in seen.items()}
        else:
            states = {"obs": as_tensor(obs)}
        return {
            **states,
            "phi": self.intrinsic.embed_state(obs),
            "phi_next": self.intrinsic.embed_state(next_obs),
            "psi": self.intrinsic.embed_action(action),
            "error": self.intrinsic.error(obs, action),
            "bonus": torch.as_tensor(rollout.grid(bonus)[chosen]),
            "reward": torch.as_tensor(rollout.reward[chosen]),
            "clock": torch.as_tensor(rollout.clock[chosen]),
            "ended": torch.as_tensor(rollout.ended[chosen]),
            "env": torch.as_tensor(env[chosen].copy()),
        }

    def diagnose(self, passes: int = 3) -> Diagnosis:
        """Ask the method whether its bonus works, on the next batch; the run is not moved on."""
        if self.intrinsic is None:
            raise ValueError(f"{self.config.method} pays no bonus: give a run of another method")
        before = self._action_rng.bit_generator.state
        rollout = self._collect(self.iteration)
        self._action_rng.bit_generator.state = before
        # Whole paths of the first environments, as many as make a good sample.
        chosen = np.zeros_like(rollout.valid)
        paths = max(1, DIAGNOSIS_SAMPLE // len(rollout.index))
        chosen[:DIAGNOSIS_SAMPLE, :paths] = rollout.valid[:DIAGNOSIS_SAMPLE, :paths]
        rows = np.flatnonzero(rollout.flat(chosen))

        def advantages(reward: Array) -> Array:
            grid = np.zeros_like(rollout.reward)
            grid[chosen] = reward
            return self._advantage(rollout, grid)[0][rows]

        return diagnose(
            self.intrinsic,
            rollout.transitions(self.policy.to_env)[rows],
            reward=self._learnt_from(rollout)[chosen],
            coefficient=self.config.eta,
            advantages=advantages,
            passes=passes,
        )

    def state_dict(self) -> dict[str, Any]:
        """Nested dicts of tensors and plain values: all that the next iteration depends on."""
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "action_rng": self._action_rng.bit_generator.state
            if self._ahead is None
            else self._ahead.action_rng,
            "value_rng": self._value_rng.bit_generator.state,
            **{name: dict(module.state_dict()) for name, module in self._modules().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ahead = None
        self.iteration, self.steps = state["iteration"], state["steps"]
        self._action_rng.bit_generator.state = state["action_rng"]
        self._value_rng.bit_generator.state = state["value_rng"]
        for name, module in self._modules().items():
            module.load_state_dict(state[name])

    def close(self) -> None:
        if self._beside is not None:
            self._beside.shutdown()
        self.envs.close()


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def train(
    env: str,
    method: str = "emi",
    *,
    steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    overrides: Sequence[str] = (),
) -> Iterator[Report]:
    """Train and yield one report per iteration; nothing is written to disk."""
    config = resolve(
        env,
        method,
        steps=steps,
        seed=seed,
        threads=threads,
        device=device,
        overrides=overrides,
    )
    trainer = Trainer(config)
    try:
        while trainer.iteration < trainer.total_iterations:
            yield trainer.iterate()
    finally:
        trainer.close()
