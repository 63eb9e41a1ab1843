"""Seconds per iteration and peak memory of every method, on vectors and on images.

Vectors: SparseHalfCheetah, the preset of each method, 5,000 steps. Images: 10,000 steps of a cheap
environment defined here, with four grey frames of 52×52 in which a square moves.
"""

import argparse
import functools
import os
import statistics
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from trpo_speed import require_speed, reward_speed
from turns import Train, machine, measure

IMAGES = "benchmark/MovingSquare-v0"
SIZE, SIDE, MOVES = 52, 6, np.array([[0, 0], [0, 2], [0, -2], [2, 0], [-2, 0]])


class MovingSquare(gymnasium.Env[Any, Any]):
    """A square that moves over a grey floor; the reward is the step to the right."""

    observation_space = spaces.Box(0, 255, (4, SIZE, SIZE), np.uint8)
    action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._place = self.np_random.integers(0, SIZE - SIDE, 2)
        self._frames = np.zeros((4, SIZE, SIZE), np.uint8)
        self._clock = 0
        self._draw()
        return self._frames.copy(), {}

    def _draw(self) -> None:
        self._frames[:-1] = self._frames[1:]
        self._frames[-1] = 40
        top, left = self._place
        self._frames[-1, top : top + SIDE, left : left + SIDE] = 220

    def step(self, action: Any) -> Any:
        before = self._place[1]
        self._place = np.clip(self._place + MOVES[action], 0, SIZE - SIDE)
        self._clock += 1
        self._draw()
        reward = float(self._place[1] - before)
        return self._frames.copy(), reward, False, self._clock >= 500, {}


def trainer(env: str, method: str, settings: dict[str, int]) -> Train:
    """Our trainer with a reward for speed, so that the policy update does not stop early."""
    from emi.training.presets import resolve
    from emi.training.trainer import Trainer

    gymnasium.register(IMAGES, entry_point=MovingSquare)
    made = Trainer(resolve(env, method, settings))
    if env == "SparseHalfCheetah":
        reward_speed(made)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            made.iterate()
        made.collector.wait()  # for the batch that was begun early: it is part of the round
        if env == "SparseHalfCheetah":
            require_speed(made)

    return train


def table(title: str, env: str, methods: Sequence[str], options: argparse.Namespace) -> None:
    settings = {"threads": options.threads}
    if env != "SparseHalfCheetah":
        settings |= {"steps_per_iteration": 10_000, "num_envs": 20}
    contenders = {name: functools.partial(trainer, env, name, settings) for name in methods}
    measured = measure(contenders, options.rounds, options.iterations, options.warm_up)
    medians = {name: statistics.median(m.seconds) for name, m in measured.items()}
    print(f"\n{title}\n")
    print("| method | s / iteration | lowest | highest | relative to EMI | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, m in measured.items():
        seconds = " | ".join(f"{s:.2f}" for s in (medians[name], min(m.seconds), max(m.seconds)))
        ratio = medians[name] / medians["emi"]
        print(f"| {name} | {seconds} | {ratio:.1f}× | {m.peak_mb:,.0f} |")


def main() -> None:
    from emi.intrinsic.table import METHODS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=3, help="iterations in a round")
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before the first round")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--only", choices=["vectors", "images"], help="default: both")
    options = parser.parse_args()
    print(machine())
    print(
        f"Threads: {options.threads}; {options.rounds} rounds of {options.iterations} iterations."
    )
    if options.only != "images":
        table("SparseHalfCheetah, 5,000 steps", "SparseHalfCheetah", list(METHODS), options)
    if options.only != "vectors":
        images = [name for name in METHODS if name != "vime"]  # vectors only
        table("Images, 10,000 steps", f"gym:{IMAGES}", images, options)


if __name__ == "__main__":
    main()
