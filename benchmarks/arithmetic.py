"""The effect of bfloat16 on what networks on images learn, compared with float32 and with chance.

benchmarks/README.md describes the columns.
"""

import argparse
import copy
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
from fisher_fraction import Batch, mean, take
from scipy.stats import spearmanr
from torch import Tensor
from turns import commit, machine

import emi.training.trainer
from emi.agent.policy import AnyPolicy
from emi.agent.trpo import StepReport, trpo_step
from emi.batch import Rows, Transitions, as_tensor
from emi.bfloat16 import Arithmetic, in_hardware, reader
from emi.intrinsic.emi import EMI
from emi.training.presets import resolve
from emi.training.trainer import Trainer

STEPS = 5_000  # of a batch
MINIBATCHES = 5
FLOAT32: dict[str, Arithmetic] = {
    "policy.arithmetic": "float32",
    "value.arithmetic": "float32",
    "intrinsic.arithmetic": "float32",
}


def cosine(a: Tensor, b: Tensor) -> float:
    return torch.cosine_similarity(a, b, dim=0).item()


class Learned(NamedTuple):
    """What a run in float32 has learned."""

    emi: EMI
    batch: Transitions  # that it was not trained on
    steps: list[Batch]  # the last trust-region steps


def run(env: str, iterations: int, seed: int) -> Learned:
    settings = {"steps": STEPS * (iterations + 1), "steps_per_iteration": STEPS, "seed": seed}
    found: list[Batch] = []

    def record(policy: AnyPolicy, *rest: Any) -> StepReport:
        found.append(Batch(copy.deepcopy(policy), *rest))
        return trpo_step(policy, *rest)

    trainer = Trainer(resolve(env, "emi", {**settings, **FLOAT32, "threads": 1}))
    with mock.patch.object(emi.training.trainer, "trpo_step", record):
        for _ in range(iterations):
            trainer.iterate()
            del found[:-2]
    rollout = trainer.collector.batch(iterations)
    assert isinstance(trainer.intrinsic, EMI)
    trainer.close()
    return Learned(trainer.intrinsic, rollout.transitions(trainer.policy.actions.to_env), found)


def gradients(method: EMI, batch: Transitions, arithmetic: Arithmetic) -> list[Tensor]:
    """Of equation 7 in the weights of φ, on each of some minibatches."""
    method = copy.deepcopy(method)
    method.reader = reader(method.entries, arithmetic)
    found = []
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).numpy()
    for rows in order[: MINIBATCHES * method.config.minibatch].reshape(MINIBATCHES, -1):
        columns = (
            method.entries.newest(batch.obs),
            batch.action,
            method.entries.newest(batch.next_obs),
        )
        obs, action, next_obs = (as_tensor(column[rows]) for column in columns)
        method.zero_grad()
        method.objective(method.losses(obs, method.actions(action), next_obs)).backward()
        weights = list(method.phi.parameters())
        found.append(torch.cat([w.grad.flatten() for w in weights if w.grad is not None]))
    return found


def bonus_after(method: EMI, batch: Transitions, arithmetic: Arithmetic, seed: int) -> Tensor:
    """The bonus of the batch after EMI was trained on it, in an order drawn by the seed."""
    method = copy.deepcopy(method)
    method.reader = reader(method.entries, arithmetic)
    method.descent.generator.manual_seed(seed)
    method.learn(batch)
    return method.reward(batch)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    return float(spearmanr(a.numpy(), b.numpy()).statistic)


def step(batch: Batch, arithmetic: Arithmetic, rows: slice = slice(None)) -> Tensor:
    """The trust-region step on some rows of a batch."""
    policy = copy.deepcopy(batch.policy)
    policy.reader = reader(policy.trunk[0], arithmetic)
    obs = Rows(batch.obs.pool, batch.obs.index[rows])
    part = batch._replace(
        policy=policy, obs=obs, action=batch.action[rows], advantage=batch.advantage[rows]
    )
    found, _, _ = take(part, batch.config.fisher_fraction)
    return found


def compare(env: str, name: str, found: Sequence[float], chance: Sequence[float]) -> None:
    print(f"| {env} | {name} | {mean([*found]):.4f} | {mean([*chance]):.4f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--environments", nargs="+", default=["MontezumaRevenge", "Freeway"])
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not in_hardware():
        parser.error("this processor has no bfloat16 instructions")
    print(f"{machine()}, commit {commit()}")
    print(f"Batches of {STEPS:,} steps after {options.iterations} iterations; one thread.\n")
    print("| environment | quantity | bfloat16 and float32 | float32 with other samples |")
    print("| --- | --- | ---: | ---: |")
    for env in options.environments:
        method, batch, steps = run(env, options.iterations, options.seed)
        exact, rounded = (gradients(method, batch, a) for a in ("float32", "bfloat16"))
        compare(
            env,
            "gradient of φ on a minibatch, cosine",
            [cosine(a, b) for a, b in zip(exact, rounded, strict=True)],
            [cosine(a, b) for a, b in itertools.pairwise(exact)],
        )
        bonus = bonus_after(method, batch, "float32", 0)
        compare(
            env,
            "bonus after training, rank correlation",
            [rank_correlation(bonus, bonus_after(method, batch, "bfloat16", 0))],
            [rank_correlation(bonus, bonus_after(method, batch, "float32", 1))],
        )
        compare(
            env,
            "trust-region step, cosine",
            [cosine(step(b, "float32"), step(b, "bfloat16")) for b in steps],
            [
                cosine(step(b, "float32", slice(0, None, 2)), step(b, "float32", slice(1, None, 2)))
                for b in steps
            ],
        )


if __name__ == "__main__":
    main()
