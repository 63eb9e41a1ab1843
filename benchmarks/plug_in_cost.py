"""Milliseconds that a bonus adds to a rollout of 2,048 steps, and those of rllte-core's methods.

Scoring and learning as in the callback of each library, on the same transitions: 256 steps of 8
environments. rllte-core is measured if it can be imported; see benchmarks/README.md.
"""

import argparse
import functools
import importlib.util
import os
import statistics
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import VectorEnv
from turns import Train, machine, measure

STEPS, NUM_ENVS = 256, 8
NEEDED = ("rllte", "termcolor", "pynvml")  # what rllte's reward modules import, apart from torch


class Task(NamedTuple):
    observations: Box
    actions: Space[Any]


TASKS = {
    "vectors of 17, 6 continuous actions": Task(
        Box(-np.inf, np.inf, (17,), np.float32), Box(-1, 1, (6,), np.float32)
    ),
    "vectors of 17, 6 discrete actions": Task(Box(-np.inf, np.inf, (17,), np.float32), Discrete(6)),
    "images of 4×84×84, 6 discrete actions": Task(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6)),
}
# Ours with their defaults, and with the layers, passes and gradient steps of rllte's.
OURS = ("EMI", "RND", "ICM", "RND, rllte's sizes", "ICM, rllte's sizes")
THEIRS = ("rllte RND", "rllte ICM")


def data(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Observations [time + 1, env, ...] and actions [time, env, ...]; no episode ends."""
    rng, shape = np.random.default_rng(0), (STEPS + 1, NUM_ENVS, *task.observations.shape)
    if task.observations.dtype == np.uint8:
        obs = rng.integers(0, 256, shape, np.uint8)
    else:
        obs = rng.normal(size=shape).astype(np.float32)
    if isinstance(task.actions, Discrete):
        return obs, rng.integers(0, task.actions.n, (STEPS, NUM_ENVS))
    size = (STEPS, NUM_ENVS, *(task.actions.shape or ()))
    return obs, rng.uniform(-1, 1, size).astype(np.float32)


def ours(name: str, task: Task, threads: int) -> Train:
    """One of our methods, on a batch as from `IntrinsicRewardCallback`."""
    import torch

    import emi
    from emi.batch import Rows

    torch.set_num_threads(threads)
    method: emi.IntrinsicReward
    match name:
        case "EMI":
            method = emi.EMI(*task)
        case "RND":
            method = emi.RND(*task)
        case "ICM":
            method = emi.ICM(*task)
        case "RND, rllte's sizes":
            rnd = emi.RNDConfig(features=128, hidden=(256,), epochs=1, minibatches=8)
            method = emi.RND(*task, rnd)
        case "ICM, rllte's sizes":
            icm = emi.ICMConfig(hidden=(256, 128), epochs=1, minibatch=256)
            method = emi.ICM(*task, icm)
        case _:
            raise ValueError(f"unknown method {name!r}")
    obs, action = data(task)
    row = np.arange((STEPS + 1) * NUM_ENVS).reshape(STEPS + 1, NUM_ENVS)

    def train(rollouts: int) -> None:
        for _ in range(rollouts):
            pool = obs.reshape(-1, *task.observations.shape)
            batch = emi.Transitions(
                Rows(pool, row[:-1].reshape(-1)),
                action.reshape(-1, *action.shape[2:]),
                Rows(pool, row[1:].reshape(-1)),
                env_index=np.tile(np.arange(NUM_ENVS), STEPS),
            )
            emi.score_and_learn(method, batch)

    return train


class Shown(VectorEnv):
    """Repeats the data: the constructors of rllte's modules take 2,560 steps."""

    def __init__(self, task: Task) -> None:
        import torch

        self.num_envs = NUM_ENVS
        self.single_observation_space, self.single_action_space = task
        self.observations = torch.as_tensor(data(task)[0])
        self.clock = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.observations[0], {}

    def step(self, actions: Any) -> Any:
        self.clock += 1
        none = np.zeros(NUM_ENVS, bool)
        return self.observations[self.clock % STEPS], np.zeros(NUM_ENVS), none, none, {}


def theirs(name: str, task: Task, threads: int) -> Train:
    """One of rllte's modules with its defaults, on a rollout as from its storage."""
    import torch
    from rllte.xplore.reward import ICM, RND

    torch.set_num_threads(threads)
    module = {"rllte RND": RND, "rllte ICM": ICM}[name](Shown(task), device="cpu")
    obs, action = data(task)
    floats = torch.as_tensor(obs, dtype=torch.float32)
    zeros = torch.zeros(STEPS, NUM_ENVS)
    samples = {
        "observations": floats[:-1],
        "actions": torch.as_tensor(action),
        "rewards": zeros,
        "terminateds": zeros,
        "truncateds": zeros,
        "next_observations": floats[1:],
    }

    def train(rollouts: int) -> None:
        for _ in range(rollouts):
            module.compute(samples, sync=True)

    return train


def missing() -> list[str]:
    """The packages that are missing to measure rllte."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def failure(name: str, task: Task) -> str:
    """The first line of the error that rllte raises on this task; empty if it works."""
    try:
        theirs(name, task, 1)(1)
    except (RuntimeError, ImportError) as error:
        return str(error).splitlines()[0]
    return ""


def table(title: str, task: Task, with_rllte: bool, options: argparse.Namespace) -> None:
    """Milliseconds of every contender, and its speed relative to rllte's modules."""
    print(f"\n{title}\n")
    contenders = {name: functools.partial(ours, name, task, options.threads) for name in OURS}
    for name in THEIRS if with_rllte else ():
        if why := failure(name, task):
            print(f"{name} fails on this task: {why}\n")
        else:
            contenders[name] = functools.partial(theirs, name, task, options.threads)
    found = measure(contenders, options.rounds, options.rollouts)
    medians = {name: 1e3 * statistics.median(m.seconds) for name, m in found.items()}
    rivals = [name for name in THEIRS if name in found]
    ratios_header = "".join(f" | times as fast as {name}" for name in rivals)
    print(f"| | ms / rollout | lowest | highest{ratios_header} |")
    print("| --- " + "| ---: " * (3 + len(rivals)) + "|")
    for name, m in found.items():
        cells = [medians[name], 1e3 * min(m.seconds), 1e3 * max(m.seconds)]
        # The ratio of each round: both are measured under the same load.
        ratios = [
            statistics.median(b / a for a, b in zip(m.seconds, found[rival].seconds, strict=True))
            for rival in rivals
        ]
        text = [f"{cell:.1f}" for cell in cells] + [f"{ratio:.2f}" for ratio in ratios]
        print(f"| {name} | " + " | ".join(text) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rollouts", type=int, default=3, help="rollouts in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--only", choices=["vectors", "images"], help="default: both")
    options = parser.parse_args()
    print(machine())
    print(
        f"Threads: {options.threads}; {options.rounds} rounds of {options.rollouts} rollouts of "
        f"{STEPS * NUM_ENVS:,} steps; medians."
    )
    if absent := missing():
        print(f"rllte-core is not measured: {', '.join(absent)} cannot be imported here.")
    for title, task in TASKS.items():
        if options.only is None or title.startswith(options.only):
            table(title, task, not absent, options)


if __name__ == "__main__":
    main()
