"""How often do policies with random weights meet the reward of SparseHalfCheetah, before training?

    python benchmarks/fresh_policies.py results/development/fresh_policies.csv

One row per standard deviation σ of the actions and per policy: in how many of 20 episodes it
met the reward, and how far it got.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.envs import make_vec

STDS = (1.5, 1.0, 0.7, 0.5, 0.3)
POLICIES, EPISODES, LENGTH = 60, 20, 500
X = 17  # column of the observation: x of the centre of mass


def main(out: Path) -> None:
    torch.set_num_threads(1)
    envs = make_vec("SparseHalfCheetah", EPISODES, threads=1)
    spaces = envs.single_observation_space, envs.single_action_space
    rows = []
    for std in STDS:
        for k in range(POLICIES):
            weights = torch.Generator().manual_seed(1_000 + k)
            policy = make_policy(*spaces, PolicyConfig(init_std=std), weights)
            rollout = collect(envs, policy, EPISODES * LENGTH, np.random.default_rng(k), k)
            met = int((rollout.episode_returns > 0).sum())
            farthest = float(np.abs(np.asarray(rollout.observations())[:, X]).max())
            rows.append({"std": std, "policy": k, "rewarded": met, "farthest": f"{farthest:.2f}"})
        own = [row["rewarded"] for row in rows[-POLICIES:]]
        share, rate = np.mean(np.array(own) > 0), np.mean(own) / EPISODES
        print(f"σ {std}: {share:.0%} of the policies, {rate:.1%} of the episodes")
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
