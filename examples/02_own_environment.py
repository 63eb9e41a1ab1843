"""An environment of your own: register it with Gymnasium, name it "gym:<id>".

A corridor of 60 rooms with a reward in the last one. A random walk of 150 steps does not get there;
an agent that is paid for rooms it seldom saw does.

    python examples/02_own_environment.py
"""

import argparse
from typing import Any

import gymnasium
from gymnasium import spaces

import emi


class Corridor(gymnasium.Env[int, int]):
    """Rooms in a row; 0 goes left, 1 goes right, and the last room pays 1 and ends the episode."""

    observation_space = spaces.Discrete(60)  # becomes a one-hot vector
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = 0
        return self.room, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.room = max(0, self.room + (1 if action == 1 else -1))
        at_the_end = self.room == 59
        return self.room, float(at_the_end), at_the_end, False, {}


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=150)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=75_000)
parser.add_argument("--methods", nargs="+", default=["trpo", "simhash"])
options = parser.parse_args()

for method in options.methods:
    overrides = ["steps_per_iteration=3000", "num_envs=10"]
    reports = list(
        emi.train("gym:Corridor-v0", method=method, steps=options.steps, overrides=overrides)
    )
    shown = reports[:: max(1, len(reports) // 10)]
    shares = " ".join(f"{report.metrics['return_mean']:.2f}" for report in shown)
    print(f"{method:>8}: share of episodes that reach the end: {shares}")
