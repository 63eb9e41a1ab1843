"""Environment steps per second of our trainer and of sb3-contrib's TRPO, on SparseHalfCheetah.

benchmarks/README.md describes the contenders.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import statistics
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from turns import Measured, Train, commit, machine, measure, save

from emi.start import WAITING

BATCH = 5_000
NUM_ENVS = 10
SPEED = 8  # index of the forward velocity in an observation, after 8 joint positions


class SpeedRewardVector(gymnasium.vector.VectorWrapper):
    """The reward is the forward speed.

    That of SparseHalfCheetah is 0 for a long time: TRPO's gradient is then exactly 0 and our update
    stops early, which would flatter us.
    """

    def step(self, actions: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(actions)
        return obs, obs[:, SPEED].astype(np.float64), terminated, truncated, info


class SpeedReward(gymnasium.Wrapper):
    """The same for one environment."""

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(obs[SPEED]), terminated, truncated, info


def reward_speed(trainer: Any) -> None:
    """Replace the reward in every batch of our trainer, whoever steps its environments.

    `train` must call `require_speed` after the first iteration.
    """
    batch = trainer.collector.batch

    def with_speed(iteration: int) -> Any:
        rollout = batch(iteration)
        speed = rollout.pool[rollout.next_index.reshape(-1)][:, SPEED]
        reward = speed.reshape(rollout.reward.shape).astype(np.float64)
        return dataclasses.replace(rollout, reward=reward)

    trainer.collector.batch = with_speed


def require_speed(trainer: Any) -> None:
    """Fail if the reward of the last batch was not replaced."""
    rollout, _ = trainer.last_batch
    speed = rollout.pool[rollout.next_index.reshape(-1)][:, SPEED].reshape(rollout.reward.shape)
    if not rollout.reward.any() or not np.array_equal(rollout.reward, speed.astype(np.float64)):
        raise RuntimeError("the reward of the batch is not the speed: reward_speed has no effect")


def ours(method: str, *, threads: int, **settings: Any) -> Train:
    """Our trainer with the paper's preset."""
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    config = resolve("SparseHalfCheetah", method, {"threads": threads, **settings})
    assert (config.steps_per_iteration, config.num_envs) == (BATCH, NUM_ENVS)
    trainer = Trainer(config)
    reward_speed(trainer)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            trainer.iterate()
        trainer.collector.wait()  # for the batch that was begun early: it is part of the round
        require_speed(trainer)

    return train


def sb3(*, own_physics: bool, cheap_critic: bool = False, threads: int) -> Train:
    """sb3-contrib's TRPO with our batch, networks and trust region."""
    import torch
    from sb3_contrib import TRPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    import emi.envs

    torch.set_num_threads(threads)
    if own_physics:
        envs = emi.envs.make_vec("SparseHalfCheetah", NUM_ENVS, threads=threads)
        venv = as_sb3_vec_env(SpeedRewardVector(envs))
    else:
        venv = DummyVecEnv(
            [lambda: SpeedReward(gymnasium.make("emi/SparseHalfCheetah-v0"))] * NUM_ENVS
        )
    model = TRPO(
        "MlpPolicy",
        venv,
        n_steps=BATCH // NUM_ENVS,
        gamma=0.995,
        gae_lambda=1.0,
        cg_max_steps=10,
        cg_damping=1e-5,
        line_search_max_iter=15,
        target_kl=0.01,
        policy_kwargs={
            "net_arch": {"pi": [64, 32], "vf": [32]},
            "activation_fn": torch.nn.Tanh,
        },
        seed=0,
        device="cpu",
        # Defaults: 10 passes in minibatches of 128; 125 is the nearest size that divides the batch.
        n_critic_updates=1 if cheap_critic else 10,
        batch_size=BATCH if cheap_critic else 125,
    )

    def train(iterations: int) -> None:
        model.learn(iterations * BATCH, reset_num_timesteps=False)

    return train


def as_sb3_vec_env(envs: Any) -> Any:
    """Our vector environment with the interface of Stable-Baselines3."""
    from stable_baselines3.common.vec_env import VecEnv

    class OurVecEnv(VecEnv):
        def __init__(self) -> None:
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
            self._actions = np.empty(0)

        def reset(self) -> Any:
            return envs.reset(seed=0)[0]

        def step_async(self, actions: Any) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            obs, reward, terminated, truncated, info = envs.step(self._actions)
            infos: list[dict[str, Any]] = [{} for _ in range(envs.num_envs)]
            for i in np.flatnonzero(terminated | truncated):
                infos[i]["terminal_observation"] = info["final_obs"][i]
                infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            return obs, reward.astype(np.float32), terminated | truncated, infos

        def close(self) -> None:
            envs.close()

        def get_attr(self, name: str, indices: Any = None) -> list[Any]:
            return [None] * envs.num_envs  # only render_mode is read

        def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
            raise AttributeError(f"{name} cannot be set here")

        def env_method(
            self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
        ) -> Any:
            raise AttributeError(f"{method_name} cannot be called here")

        def env_is_wrapped(self, wrapper: type, indices: Any = None) -> list[bool]:
            return [False] * envs.num_envs

    return OurVecEnv()


OURS: dict[str, Callable[..., Train]] = {
    "emi, TRPO": functools.partial(ours, "trpo"),
    "emi, EMI": functools.partial(ours, "emi"),
    "emi, TRPO, value network": functools.partial(ours, "trpo", value={"kind": "network"}),
}
RIVALS: dict[str, Callable[..., Train]] = {
    "sb3, TRPO": functools.partial(sb3, own_physics=False),
    "sb3, TRPO, our physics": functools.partial(sb3, own_physics=True),
    "sb3, TRPO, our physics, 1 critic step": functools.partial(
        sb3, own_physics=True, cheap_critic=True
    ),
}


WAITS: dict[str, dict[str, str]] = {"spinning": {}, "sleeping": WAITING}  # while threads wait


def settings_of_rivals(threads: int) -> dict[str, tuple[str, int, str]]:
    """Rival, threads and wait policy, by the name of the contender: all that a user can choose."""
    every = itertools.product(RIVALS, sorted({1, threads}), WAITS)
    return {f"{name}, {k} threads, {wait}": (name, k, wait) for name, k, wait in every}


def show(measured: dict[str, Measured], rivals: dict[str, tuple[str, int, str]]) -> None:
    """Speeds of all contenders; ratios of the best rounds, each rival at its best setting."""
    speeds = {name: [BATCH / s for s in m.seconds] for name, m in measured.items()}
    best = {name: max(values) for name, values in speeds.items()}
    print(f"{'':58s} {'best':>8s} {'median':>8s} {'lowest':>8s} {'peak MB':>8s}")
    for name, values in speeds.items():
        numbers = (best[name], statistics.median(values), min(values), measured[name].peak_mb)
        print(f"{name:58s}", *(f"{number:8,.0f}" for number in numbers))
    for rival in RIVALS:
        winner = max((name for name, (of, _, _) in rivals.items() if of == rival), key=best.get)
        ratios = (f"{name} {best[name] / best[winner]:.1f}×" for name in OURS)
        print(f"\nbest rounds, relative to {winner}:\n  {';  '.join(ratios)}")
    own = best["emi, EMI"] / best["emi, TRPO"]
    print(f"\nbest rounds, emi, EMI relative to emi, TRPO: {own:.2f}")
    rows = [
        {
            "contender": rivals[name][0] if name in rivals else name,
            "threads": rivals[name][1] if name in rivals else "",
            "waiting": rivals[name][2] if name in rivals else "",
            "best": round(best[name]),
            "median": round(statistics.median(values)),
            "lowest": round(min(values)),
            "peak_mb": round(measured[name].peak_mb),
        }
        for name, values in speeds.items()
    ]
    print(f"\n{save('trpo_speed', rows).name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=4, help="iterations in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    options = parser.parse_args()
    print(f"{machine()}, commit {commit()}")
    print(
        f"Threads: {options.threads}, rounds: {options.rounds}. "
        f"A round is {options.iterations} × {BATCH:,} steps in {NUM_ENVS} environments.\n"
    )
    rivals = settings_of_rivals(options.threads)
    contenders = {
        name: functools.partial(make, threads=options.threads) for name, make in OURS.items()
    } | {name: functools.partial(RIVALS[of], threads=k) for name, (of, k, _) in rivals.items()}
    # Ours get what the command `emi` sets.
    environments = dict.fromkeys(OURS, WAITING) | {n: WAITS[w] for n, (_, _, w) in rivals.items()}
    show(measure(contenders, options.rounds, options.iterations, 2, environments), rivals)


if __name__ == "__main__":
    main()
