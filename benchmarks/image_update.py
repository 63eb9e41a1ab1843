"""Seconds of one EMI update on images, compared with a direct implementation of the same.

benchmarks/README.md lists the differences. `--before DIR/src` also measures another checkout.
"""

import argparse
import functools
import os
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus
from turns import Train, machine, measure

MINIBATCH, STEPS, ACTIONS = 512, 8_192, 18  # many steps: `learn` ends with one more forward pass
LAMBDA_ERROR, LAMBDA_INFO, KL_WEIGHT = 100.0, 0.1, 0.5


def frames(seed: int = 0) -> np.ndarray:
    """Grey frames [steps + 4, 52, 52] of 4×4 blocks; a tenth of the blocks change per step."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 256, (13, 13), dtype=np.uint8)
    path = []
    for _ in range(STEPS + 4):
        changed = rng.random((13, 13)) < 0.1
        levels = np.where(changed, rng.integers(0, 256, (13, 13)), levels).astype(np.uint8)
        path.append(np.kron(levels, np.ones((4, 4), np.uint8)))
    return np.stack(path)


def ours(threads: int) -> Train:
    """`EMI.learn` on a batch as the trainer passes it, one epoch."""
    from emi import EMI, EMIConfig
    from emi.batch import Rows, Stacks, Transitions

    torch.set_num_threads(threads)
    index = np.arange(STEPS + 1)[:, None] + np.arange(4)
    pool, rows = Stacks(frames(), index), np.arange(STEPS)
    action = np.random.default_rng(1).integers(0, ACTIONS, STEPS)
    batch = Transitions(Rows(pool, rows), action, Rows(pool, rows + 1))
    config = EMIConfig(
        lambda_error=LAMBDA_ERROR,
        lambda_info=LAMBDA_INFO,
        kl_target="action",
        kl_weight=KL_WEIGHT,
        minibatch=MINIBATCH,
        epochs=1,
    )
    method = EMI(spaces.Box(0, 255, (4, 52, 52), np.uint8), spaces.Discrete(ACTIONS), config)

    def train(updates: int) -> None:
        for _ in range(updates * MINIBATCH // STEPS):
            method.learn(batch)

    return train


def before(source: Path, threads: int) -> Train:
    """The same with the package `emi` of another checkout; every contender is a process."""
    sys.path.insert(0, str(source))
    import emi

    if source not in Path(emi.__file__).parents:
        raise SystemExit(f"the package was imported from {emi.__file__}, not from {source}")
    return ours(threads)


def trunk() -> nn.Sequential:
    """The paper's convolutions on the newest frame."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 4), nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(800, 256), nn.ReLU(),
    )  # fmt: skip


def head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def statistic() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )


class Straightforward(nn.Module):
    """EMI's networks and objective, written as in the paper."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(*trunk(), nn.Linear(256, 2))
        self.psi = head(ACTIONS, 64, 2)
        self.s_trunk, self.s_head = trunk(), head(256 + ACTIONS, 256, 2)
        self.t_s, self.t_a = statistic(), statistic()

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        phi, phi_next, psi = self.phi(obs), self.phi(next_obs), self.psi(action)
        error = self.s_head(torch.cat([self.s_trunk(obs), action], 1))
        loss = (phi + psi + error - phi_next).square().sum(1).mean()
        loss = loss + LAMBDA_ERROR * error.square().sum(1).mean()
        half = len(obs) // 2
        s, a, n = phi[:half], psi[:half], phi_next[:half]
        joint = torch.cat([s, a, n], 1)
        other_state = torch.cat([s, a, phi_next[half:]], 1)
        other_action = torch.cat([s, psi[half:], n], 1)
        for statistic, other in ((self.t_s, other_state), (self.t_a, other_action)):
            bound = softplus(-statistic(joint)).mean() + softplus(statistic(other)).mean()
            loss = loss + LAMBDA_INFO * bound
        covariance = torch.cov(psi.T)
        kl = covariance.trace() + psi.mean(0).square().sum() - 2 - torch.logdet(covariance)
        return loss + KL_WEIGHT * kl / 2


def contiguous(threads: int) -> Train:
    """Stacks as float32 arrays [n, 4, 52, 52], networks and Adam with PyTorch's defaults."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    path = frames()
    stacks = np.stack([path[k : k + 4] for k in range(STEPS + 1)])
    action = np.random.default_rng(1).integers(0, ACTIONS, STEPS)
    method = Straightforward()
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-3)

    def floats(rows: np.ndarray) -> Tensor:
        return torch.as_tensor(stacks[rows].astype(np.float32) / 127.5 - 1)[:, -1:]

    def train(updates: int) -> None:
        order = np.random.default_rng(2)
        for _ in range(updates * MINIBATCH // STEPS):
            shuffled = order.permutation(STEPS)
            for start in range(0, STEPS, MINIBATCH):
                rows = shuffled[start : start + MINIBATCH]
                one_hot = torch.eye(ACTIONS)[action[rows]]
                loss = method(floats(rows), one_hot, floats(rows + 1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--before", type=Path, metavar="SRC", help="the src of another checkout")
    options = parser.parse_args()
    others = ["contiguous"] if options.before is None else ["contiguous", "before"]
    print(machine())
    print(f"{options.rounds} rounds; medians, and the lowest and highest ratio of a round.\n")
    print("| threads | ours, ms | other | other, ms | times as fast | lowest | highest |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for threads in options.threads:
        contenders = {
            "ours": functools.partial(ours, threads),
            "contiguous": functools.partial(contiguous, threads),
        }
        if options.before is not None:
            source = options.before.resolve()
            contenders["before"] = functools.partial(before, source, threads)
        updates = STEPS // MINIBATCH
        found = measure(contenders, options.rounds, updates, warm_up=updates)
        mine = found["ours"].seconds
        for name in others:
            theirs = found[name].seconds
            ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
            print(
                f"| {threads} | {1e3 * statistics.median(mine):.1f} | {name} "
                f"| {1e3 * statistics.median(theirs):.1f} | {statistics.median(ratios):.1f} "
                f"| {min(ratios):.1f} | {max(ratios):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
