"""The trust-region step with H from a fraction of the batch, compared with H from all of it.

benchmarks/README.md describes the columns.
"""

import argparse
import copy
import dataclasses
import subprocess
import time
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor
from turns import machine

import emi.training.trainer
from emi.agent.policy import AnyPolicy
from emi.agent.trpo import StepReport, TRPOConfig, flatten, trpo_step
from emi.batch import Rows
from emi.training.presets import resolve
from emi.training.trainer import Trainer

FRACTIONS = (1.0, 0.2, 0.1, 0.05)
# Steps of the batch by environment. The bonus of EMI gives an advantage before the first reward.
BATCHES = {"MontezumaRevenge": 10_000, "Freeway": 10_000, "SparseHalfCheetah": 5_000}


class Batch(NamedTuple):
    """The arguments of a trust-region step."""

    policy: AnyPolicy  # before the step
    obs: Rows
    action: Tensor
    advantage: Tensor
    config: TRPOConfig


def batches(env: str, steps: int, iterations: int, threads: int, seed: int) -> list[Batch]:
    """The batches of a run's last half of iterations."""
    settings = {"steps": steps * iterations, "steps_per_iteration": steps, "seed": seed}
    found: list[Batch] = []

    def record(policy: AnyPolicy, *rest: object) -> StepReport:
        found.append(Batch(copy.deepcopy(policy), *rest))  # type: ignore[arg-type]
        return trpo_step(policy, *rest)  # type: ignore[arg-type]

    trainer = Trainer(resolve(env, "emi", {**settings, "threads": threads}))
    torch.set_num_threads(threads)  # the trainer would use one for vectors
    with mock.patch.object(emi.training.trainer, "trpo_step", record):
        for _ in range(iterations):
            trainer.iterate()
            del found[: -iterations // 2]
    trainer.close()
    return found


def take(batch: Batch, fraction: float) -> tuple[Tensor, StepReport, float]:
    """The step of a copy of the policy, its report and its seconds."""
    policy = copy.deepcopy(batch.policy)
    config = dataclasses.replace(batch.config, fisher_fraction=fraction)
    start = time.perf_counter()
    report = trpo_step(policy, batch.obs, batch.action, batch.advantage, config)
    seconds = time.perf_counter() - start
    before, after = (flatten(list(p.parameters())).detach() for p in (batch.policy, policy))
    return after - before, report, seconds


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--environments", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root = Path(__file__).parents[1]
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True).strip()
    print(machine())
    print(
        f"commit {commit}; {options.threads} thread(s); means over the batches of the last ", end=""
    )
    print(f"{options.iterations // 2} of {options.iterations} iterations.\n")
    print("| environment | rows of H | cosine | KL | surrogate gain | tries | ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for env in options.environments:
        found = batches(env, BATCHES[env], options.iterations, options.threads, options.seed)
        take(found[0], FRACTIONS[-1])  # first calls allocate and compile
        whole: list[Tensor] = []
        for fraction in FRACTIONS:
            taken = [take(batch, fraction) for batch in found]
            whole = whole or [step for step, _, _ in taken]
            cosine = mean(
                [
                    torch.cosine_similarity(step, reference, dim=0).item()
                    for (step, _, _), reference in zip(taken, whole, strict=True)
                ]
            )
            reports = [report for _, report, _ in taken]
            columns = (
                f"{cosine:.3f}",
                f"{mean([r.kl for r in reports]):.4f}",
                f"{mean([r.surrogate for r in reports]):.4f}",
                f"{mean([float(r.tries) for r in reports]):.1f}",
                f"{1e3 * mean([seconds for _, _, seconds in taken]):,.0f}",
            )
            rows = f"{fraction:.0%} of {len(found[0].action):,}"
            print(f"| {env} | {rows} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
