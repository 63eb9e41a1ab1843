"""The effect of bfloat16 on what images networks learn, compared with float32 and with chance.

benchmarks/README.md describes the columns.
"""

import argparse
import copy
from collections.abc import Sequence

import torch
from fisher_fraction import Batch, batches, mean, take
from scipy.stats import spearmanr
from torch import Tensor
from turns import commit, machine

from emi.batch import Rows, Transitions, as_tensor
from emi.bfloat16 import Arithmetic, in_hardware, reader
from emi.intrinsic.emi import EMI
from emi.training.presets import resolve
from emi.training.trainer import Trainer

STEPS = 10_000  # of a batch
MINIBATCHES = 5
FLOAT32: dict[str, Arithmetic] = {
    "policy.arithmetic": "float32",
    "value.arithmetic": "float32",
    "intrinsic.arithmetic": "float32",
}


def cosine(a: Tensor, b: Tensor) -> float:
    return torch.cosine_similarity(a, b, dim=0).item()


def trained(env: str, iterations: int, seed: int) -> tuple[EMI, Transitions]:
    """EMI after some iterations in float32, and a batch that it was not trained on."""
    settings = {"steps": STEPS * (iterations + 1), "steps_per_iteration": STEPS, "seed": seed}
    trainer = Trainer(resolve(env, "emi", {**settings, **FLOAT32, "threads": 1}))
    for _ in range(iterations):
        trainer.iterate()
    rollout = trainer.collector.batch(iterations)
    assert isinstance(trainer.intrinsic, EMI)
    trainer.close()
    return trainer.intrinsic, rollout.transitions(trainer.policy.actions.to_env)


def gradients(emi: EMI, batch: Transitions, arithmetic: Arithmetic) -> list[Tensor]:
    """Of equation 7 in the weights of φ and S, on each of some minibatches."""
    emi = copy.deepcopy(emi)
    emi.reader = reader(emi.entries, arithmetic)
    found = []
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).numpy()
    for rows in order[: MINIBATCHES * emi.config.minibatch].reshape(MINIBATCHES, -1):
        columns = emi.entries.newest(batch.obs), batch.action, emi.entries.newest(batch.next_obs)
        obs, action, next_obs = (as_tensor(column[rows]) for column in columns)
        emi.zero_grad()
        emi.objective(emi.losses(obs, emi.actions(action), next_obs)).backward()
        weights = [*emi.phi.parameters(), *emi.S.parameters()]
        found.append(torch.cat([w.grad.flatten() for w in weights if w.grad is not None]))
    return found


def bonus_after(emi: EMI, batch: Transitions, arithmetic: Arithmetic, seed: int) -> Tensor:
    """The bonus of the batch after EMI was trained on it, in an order drawn by the seed."""
    emi = copy.deepcopy(emi)
    emi.reader = reader(emi.entries, arithmetic)
    emi.descent.generator.manual_seed(seed)
    emi.learn(batch)
    return emi.reward(batch)


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
        emi, batch = trained(env, options.iterations, options.seed)
        exact, rounded = (gradients(emi, batch, a) for a in ("float32", "bfloat16"))
        compare(
            env,
            "gradient of a minibatch, cosine",
            [cosine(a, b) for a, b in zip(exact, rounded, strict=True)],
            [cosine(a, b) for a, b in zip(exact, exact[1:], strict=False)],
        )
        bonus = bonus_after(emi, batch, "float32", 0)
        compare(
            env,
            "bonus after training, rank correlation",
            [rank_correlation(bonus, bonus_after(emi, batch, "bfloat16", 0))],
            [rank_correlation(bonus, bonus_after(emi, batch, "float32", 1))],
        )
        found = batches(env, STEPS, options.iterations, 1, options.seed, FLOAT32)
        compare(
            env,
            "trust-region step, cosine",
            [cosine(step(b, "float32"), step(b, "bfloat16")) for b in found],
            [
                cosine(step(b, "float32", slice(0, None, 2)), step(b, "float32", slice(1, None, 2)))
                for b in found
            ],
        )


if __name__ == "__main__":
    main()
