"""BoxImage: which embedding should be held near a normal distribution, ψ's or φ's? (section 5.5)

30,000 transitions of a random policy; one embedding learnt with KL(P_ψ ‖ N(0, I)), one with
KL(P_φ ‖ N(0, I)), all else equal. The paper shows a picture: with the first, embedded states lie as
the true positions do and embedded actions as the true actions; with the second they do not. We
also give the picture numbers: R² of an affine map from φ(s) to the true position, and from ψ(a) to
the true action.

python -m emi.paper.box_image run --out results/box_image      (about three minutes a seed)
python -m emi.paper.box_image draw results/box_image
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from safetensors.numpy import load_file, save_file

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.data import Array, FloatArray, Transitions
from emi.envs.box_image import HORIZON, BoxImageVectorEnv
from emi.intrinsic import EMI, EMIConfig

Target = Literal["action", "state"]
TARGETS: tuple[Target, ...] = ("action", "state")
SEEDS = range(5)
SAMPLES = 30_000  # supplementary section 7
SHOWN = 2_000  # points of each picture

# λ from supplementary section 7. The weight of the KL is that of the authors' image script: the
# paper names none, nor the number of epochs.
CONFIG = EMIConfig(lambda_error=100.0, lambda_info=0.01, embedding_dim=2, kl_weight=0.5, epochs=20)


class Sample(NamedTuple):
    """Transitions, and the truth about them."""

    batch: Transitions
    position: FloatArray  # [n, 2], of s
    action: FloatArray  # [n, 2], as it moved the agent


class _Positions(VectorWrapper):
    """Remembers where the agents were when each action was taken."""

    env: BoxImageVectorEnv

    def __init__(self, env: BoxImageVectorEnv) -> None:
        super().__init__(env)
        self.before: list[FloatArray] = []

    def step(self, actions: Any) -> Any:
        self.before.append(self.env.position)
        return super().step(actions)


def sample(seed: int, samples: int) -> Sample:
    """Transitions of a policy that was never trained, in episodes from start to end."""
    envs = _Positions(BoxImageVectorEnv(num_envs=max(1, samples // HORIZON)))
    policy = make_policy(
        envs.single_observation_space,
        envs.single_action_space,
        PolicyConfig(),
        torch.Generator().manual_seed(seed),
    )
    rollout = collect(envs, policy, samples, np.random.default_rng(seed), seed)
    batch = rollout.transitions(policy.to_env)
    position = rollout.flat(np.stack(envs.before))
    return Sample(batch, position, np.asarray(batch.action, np.float64))


def affine_r2(x: Array, y: Array) -> float:
    """Share of the variance of y [n, b] that the best affine map of x [n, a] explains."""
    inputs = np.column_stack([x, np.ones(len(x))])
    coefficients, *_ = np.linalg.lstsq(inputs, y)
    residual = y - inputs @ coefficients
    return 1 - float((residual**2).sum() / ((y - y.mean(0)) ** 2).sum())


def learn(data: Sample, target: Target, seed: int, config: EMIConfig) -> dict[str, Array]:
    """Embeddings learnt with the KL on `target`: φ [n, 2] and ψ [n, 2] of every transition."""
    space = BoxImageVectorEnv()
    emi = EMI(
        space.single_observation_space,
        space.single_action_space,
        dataclasses.replace(config, kl_target=target),
        seed,
    )
    emi.learn(data.batch)
    phi, psi = emi.embed_state(data.batch.obs), emi.embed_action(data.batch.action)
    return {"phi": phi.numpy(), "psi": psi.numpy()}


def run(
    out: Path, seeds: Sequence[int], samples: int = SAMPLES, config: EMIConfig = CONFIG
) -> None:
    """Learn for every seed and target that `out` does not hold yet."""
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        missing = [t for t in TARGETS if not (out / f"{t}-seed{seed}.safetensors").exists()]
        if not missing:
            continue
        data = sample(seed, samples)
        shown = np.random.default_rng(seed).permutation(len(data.position))[:SHOWN]
        for target in missing:
            found = learn(data, target, seed, config)
            r2 = np.array(
                [affine_r2(found["phi"], data.position), affine_r2(found["psi"], data.action)]
            )
            arrays = found | {"position": data.position, "action": data.action}
            kept = {name: array[shown].astype(np.float32) for name, array in arrays.items()}
            save_file(kept | {"r2": r2}, out / f"{target}-seed{seed}.safetensors")
            print(f"seed {seed}, KL on the {target}: R² position {r2[0]:.3f}, action {r2[1]:.3f}")


def draw(results: Path, out: Path) -> list[Path]:
    """The figure of the first seed, and the table of all."""
    found = {
        (target, seed): load_file(results / f"{target}-seed{seed}.safetensors")
        for target in TARGETS
        for seed in SEEDS
        if (results / f"{target}-seed{seed}.safetensors").exists()
    }
    if not found:
        raise ValueError(f"no embeddings in {results}: make them with 'run --out {results}'")
    out.mkdir(parents=True, exist_ok=True)
    table = out / "r2.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kl_on", "seed", "r2_position", "r2_action"])
        for (target, seed), arrays in found.items():
            writer.writerow([target, seed, *(f"{value:.4f}" for value in arrays["r2"])])
    first = min(seed for _, seed in found)
    shown = {target: found[target, first] for target in TARGETS if (target, first) in found}
    return [*_draw_figure(shown, out / "embeddings"), table]


def _draw_figure(shown: dict[Target, dict[str, Array]], stem: Path) -> list[Path]:
    """Truth on the left, then one column for each target: states above, actions below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from emi.report.curves import save_figure

    truth = next(iter(shown.values()))
    columns = [
        ("the truth", truth["position"], truth["action"]),
        *((f"KL on the {target}s", a["phi"], a["psi"]) for target, a in shown.items()),
    ]
    figure = Figure(figsize=(3.2 * len(columns), 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(columns), squeeze=False)
    colours = [_colours(truth["position"]), _colours(truth["action"])]
    for column, (title, states, actions) in enumerate(columns):
        names = ("position", "action") if column == 0 else ("φ(s)", "ψ(a)")
        for row, points in enumerate((states, actions)):
            panel = axes[row, column]
            panel.scatter(*points.T, c=colours[row], s=3, linewidths=0)
            panel.set_aspect("equal", adjustable="datalim")
            panel.set_title(f"{title}: {names[row]}", fontsize=10)
            panel.tick_params(labelsize=7)
    return save_figure(figure, stem)


def _colours(points: Array) -> Array:
    """Red along one axis and blue along the other, so that a turned picture is seen as turned."""
    low, high = points.min(0), points.max(0)
    unit = (points - low) / np.maximum(high - low, 1e-12)
    green = np.full(len(unit), 0.35)
    return np.column_stack([0.1 + 0.85 * unit[:, 0], green, 0.1 + 0.85 * unit[:, 1]])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m emi.paper.box_image")
    commands = parser.add_subparsers(required=True, dest="command")
    to_run = commands.add_parser("run", help="learn the embeddings that are missing")
    to_run.add_argument("--out", type=Path, required=True)
    to_run.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    to_draw = commands.add_parser("draw", help="figure and table of what is there")
    to_draw.add_argument("results", type=Path)
    to_draw.add_argument("--out", type=Path, help="default: beside the results")
    options = parser.parse_args(arguments)
    try:
        if options.command == "run":
            run(options.out, options.seeds)
        else:
            for path in draw(options.results, options.out or options.results):
                print(path)
    except (ValueError, OSError) as error:
        print(f"emi.paper.box_image: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
