"""An environment of your own: register it with Gymnasium and name it "gym:<id>".

A corridor of 60 cells with a reward in the last one. A random walk of 150 steps does not reach it;
an agent with a bonus for rarely visited cells does.

    python examples/02_own_environment.py
"""

import argparse
from typing import Any

import gymnasium
from gymnasium import spaces

import emi


class Corridor(gymnasium.Env[int, int]):
    """Action 0 moves left, 1 moves right; the last cell gives reward 1 and ends the episode."""

    observation_space = spaces.Discrete(60)  # becomes a one-hot vector
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        reached = self.cell == 59
        return self.cell, float(reached), reached, False, {}


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=150)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=75_000)
parser.add_argument("--methods", nargs="+", default=["trpo", "simhash"])
options = parser.parse_args()

for method in options.methods:
    settings = {"steps": options.steps, "steps_per_iteration": 3_000, "num_envs": 10}
    reports = list(emi.train("gym:Corridor-v0", method, **settings))
    shown = reports[:: max(1, len(reports) // 10)]
    shares = " ".join(f"{report.metrics['return_mean']:.2f}" for report in shown)
    print(f"{method:>8}: share of episodes that reach the end: {shares}")
