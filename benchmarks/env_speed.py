"""Environment steps per second of every environment, compared with its simulator alone.

benchmarks/README.md describes the bounds.
"""

import argparse
import functools
import os
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from turns import Train, machine, measure


class Task(NamedTuple):
    name: str
    num_envs: int
    steps: int  # of all environments together, in a round
    bound: Callable[..., Train]


def ours(name: str, num_envs: int, threads: int) -> Train:
    """Our environments as the trainer steps them, with a linear policy that reads everything."""
    if name in IN_PROCESSES and threads > 1:
        return in_processes(name, num_envs, threads)
    return in_this_process(name, num_envs, threads)


def in_processes(name: str, num_envs: int, threads: int) -> Train:
    """A part of the environments in each of `threads` worker processes, 500 steps per batch."""
    from emi.agent.acting import ActingLayer, ActingNetwork
    from emi.envs import make_vec
    from emi.training.workers import Workers

    envs = make_vec(name, num_envs)
    (inputs,), (outputs,) = envs.single_observation_space.shape, envs.single_action_space.shape
    weights = np.random.default_rng(0).normal(size=(outputs, inputs)).astype(np.float32)
    network = ActingNetwork(
        [ActingLayer("linear"), ActingLayer("tanh")], [weights, np.zeros(outputs, np.float32)]
    )
    workers = Workers(name, num_envs, threads)
    noise = np.zeros((500, num_envs, outputs), np.float32)

    def train(steps: int) -> None:
        for batch in range(steps // (500 * num_envs)):
            workers.start(network, noise, batch)
            workers.result()

    return train


def in_this_process(name: str, num_envs: int, threads: int) -> Train:
    """Our vector environment, stepped by this process."""
    import gymnasium

    from emi.envs import make_vec

    envs = make_vec(name, num_envs, seed=0, threads=threads)
    space = envs.single_action_space
    continuous = isinstance(space, gymnasium.spaces.Box)
    outputs = space.shape[0] if continuous else int(space.n)
    obs, _ = envs.reset(seed=0)
    inputs = min(16, obs[0].size)
    weights = np.random.default_rng(0).normal(size=(inputs, outputs)).astype(np.float32)

    def train(steps: int) -> None:
        nonlocal obs
        for _ in range(steps // num_envs):
            scores = obs.reshape(num_envs, -1)[:, -inputs:] @ weights
            obs, *_ = envs.step(np.tanh(scores) if continuous else scores.argmax(1))

    return train


def physics(name: str, num_envs: int, threads: int) -> Train:
    """MuJoCo alone: 500 actions of every environment in a single call."""
    import mujoco
    from mujoco.rollout import Rollout

    from emi.envs import make_vec, swimmer_gather

    envs: Any = make_vec(name, num_envs, seed=0, threads=threads)
    envs.reset(seed=0)
    substeps = swimmer_gather.SUBSTEPS if name == "SwimmerGather" else 1
    model, start = envs.model, envs._state.copy()
    pool = threads if threads > 1 else 0
    rollout = Rollout(nthread=pool)
    data = [mujoco.MjData(model) for _ in range(max(pool, 1))]
    actions = np.random.default_rng(0).uniform(-1, 1, (num_envs, 500, model.nu))
    control = np.repeat(actions, substeps, axis=1)

    def train(steps: int) -> None:
        for _ in range(steps // (500 * num_envs)):
            rollout.rollout([model] * num_envs, data, start, control)

    return train


def emulator(name: str, num_envs: int, threads: int) -> Train:
    """The vector environment of ale-py with the same frames and a constant action."""
    from emi.envs.atari import load_games

    games: Any = load_games(name, num_envs, threads)
    games.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)

    def train(steps: int) -> None:
        for _ in range(steps // num_envs):
            games.step(actions)

    return train


def pixels(name: str, num_envs: int, threads: int) -> Train:
    """Filling new arrays with as many pixels."""
    from emi.envs.box_image import BoxImageVectorEnv

    shape = BoxImageVectorEnv(num_envs).observation_space.shape

    def train(steps: int) -> None:
        for step in range(steps // num_envs):
            np.full(shape, step % 255, np.uint8)

    return train


IN_PROCESSES = ("SparseHalfCheetah", "SwimmerGather")
TASKS = (
    Task("SparseHalfCheetah", 10, 100_000, physics),
    Task("SparseHalfCheetah", 64, 128_000, physics),
    Task("SparseHalfCheetah", 256, 256_000, physics),
    Task("SwimmerGather", 100, 50_000, physics),
    Task("Freeway", 20, 10_000, emulator),
    Task("Frostbite", 20, 10_000, emulator),
    Task("MontezumaRevenge", 20, 10_000, emulator),
    Task("BoxImage", 20, 40_000, pixels),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--envs", nargs="+", help="default: all")
    options = parser.parse_args()
    print(machine())
    print(f"{options.rounds} rounds; medians, and the lowest and highest ratio of a round.\n")
    print("| environment | number | threads | steps/s | bound | ratio | lowest | highest |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for task in TASKS:
        if options.envs and task.name not in options.envs:
            continue
        for threads in options.threads:
            given = (task.name, task.num_envs, threads)
            contenders = {
                "ours": functools.partial(ours, *given),
                "bound": functools.partial(task.bound, *given),
            }
            found = measure(contenders, options.rounds, task.steps, warm_up=task.steps // 5)
            speed = {name: [1 / s for s in m.seconds] for name, m in found.items()}
            ratios = [a / b for a, b in zip(speed["ours"], speed["bound"], strict=True)]
            mean, bound = (statistics.median(speed[name]) for name in ("ours", "bound"))
            print(
                f"| {task.name} | {task.num_envs} | {threads} | {mean:,.0f} | {bound:,.0f} "
                f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
