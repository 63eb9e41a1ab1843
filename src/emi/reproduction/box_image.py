"""BoxImage (section 5.5): which embedding should be regularised towards N(0, I), ψ or φ?

30,000 transitions of a random policy; one embedding is trained with KL(P_ψ ‖ N(0, I)), one with
KL(P_φ ‖ N(0, I)), all else equal. The paper shows a figure: with the first, embedded states and
actions are arranged as the true positions and actions; with the second they are not. We also
measure it: R² of an affine map from φ(s) to the true position, and from ψ(a) to the true action.

A seed takes about five minutes on one core.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.batch import Array, FloatArray, Transitions
from emi.envs.box_image import HORIZON, BoxImageVectorEnv
from emi.errors import UserError
from emi.intrinsic.emi import EMI, EMIConfig
from emi.report.curves import new_figure, save_figure
from emi.report.summary import Estimate
from emi.report.tables import estimate, markdown_table, write_csv
from emi.reproduction.drawing import write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found

Target = Literal["action", "state"]
TARGETS: tuple[Target, ...] = ("action", "state")
SEEDS = range(5)
SAMPLES = 30_000  # supplementary section 7
SHOWN = 2_000  # points per scatter plot
FEWEST_SAMPLES = 1_000  # of a scaled run
FOLDER = "box_image"

# λ from supplementary section 7; minibatches and epochs as in all experiments of the paper. The
# weight of the KL is that of the authors' image script; the paper does not state it.
CONFIG = EMIConfig(lambda_error=100.0, lambda_info=0.01, embedding_dim=2, kl_weight=0.5)


class Sample(NamedTuple):
    """Transitions with the true positions and actions."""

    batch: Transitions
    position: FloatArray  # [n, 2], of s
    action: FloatArray  # [n, 2], the movement of the agent


class _Positions(VectorWrapper):
    """Records the positions at which actions were taken."""

    env: BoxImageVectorEnv

    def __init__(self, env: BoxImageVectorEnv) -> None:
        super().__init__(env)
        self.before: list[FloatArray] = []

    def step(self, actions: Any) -> Any:
        self.before.append(self.env.position)
        return super().step(actions)


def sample(seed: int, samples: int) -> Sample:
    """Transitions of an untrained policy in complete episodes."""
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
    """Share of the variance of y [n, b] explained by the best affine map of x [n, a]."""
    inputs = np.column_stack([x, np.ones(len(x))])
    coefficients, *_ = np.linalg.lstsq(inputs, y)
    residual = y - inputs @ coefficients
    return 1 - float((residual**2).sum() / ((y - y.mean(0)) ** 2).sum())


def learn(data: Sample, target: Target, seed: int, config: EMIConfig) -> dict[str, Array]:
    """Train with the KL on `target`; returns φ [n, 2] and ψ [n, 2] of every transition."""
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


def make(
    root: Path,
    cells: Sequence[Cell],
    samples: int,
    budget: Budget,
    config: EMIConfig = CONFIG,
) -> None:
    """Train each (target, seed) of `cells` on so many samples."""
    torch.set_num_threads(budget.threads)
    for seed in dict.fromkeys(seed for _, seed in cells):
        data = sample(seed, samples)
        shown = np.random.default_rng(seed).permutation(len(data.position))[:SHOWN]
        for target in (target for target in TARGETS if (target, seed) in cells):
            found = learn(data, target, seed, config)
            r2 = np.array(
                [affine_r2(found["phi"], data.position), affine_r2(found["psi"], data.action)]
            )
            arrays = found | {"position": data.position, "action": data.action}
            kept = {name: array[shown].astype(np.float32) for name, array in arrays.items()}
            about = {"r2": r2, "samples": np.array([len(data.position)])}
            save_file(kept | about, root / FILES[target, seed])
            print(f"seed {seed}, KL on the {target}: R² position {r2[0]:.3f}, action {r2[1]:.3f}")


def read(root: Path) -> dict[Cell, dict[str, Array]]:
    """The arrays of all files below `root`."""
    found = {}
    for cell, path in ((cell, root / name) for cell, name in FILES.items()):
        if path.exists():
            try:
                found[cell] = load_file(path)
            except (SafetensorError, OSError) as error:
                raise UserError(f"{path} is damaged ({error}): run box_image again") from None
    return found


def sizes(root: Path) -> dict[Cell, int]:
    return {cell: int(arrays["samples"][0]) for cell, arrays in read(root).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    (target / FOLDER).mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(source / FILES[c], target / FILES[c])) for c in cells]


def draw(found: Found, stem: Path) -> list[Path]:
    """The figure of the first seed that has both targets, and the table of all seeds."""
    embeddings = read(found.root)
    fewest = min(int(arrays["samples"][0]) for arrays in embeddings.values())
    scaled = f"SCALED: {fewest:,} of {SAMPLES:,} samples" if fewest < SAMPLES else ""
    rows: list[dict[str, object]] = [
        {
            "kl_on": target,
            "seed": seed,
            "r2_position": float(arrays["r2"][0]),
            "r2_action": float(arrays["r2"][1]),
        }
        for (target, seed), arrays in embeddings.items()
    ]
    whole = [seed for seed in SEEDS if all((target, seed) in embeddings for target in TARGETS)]
    shown = {
        target: arrays
        for (target, seed), arrays in embeddings.items()
        if seed == (whole[0] if whole else min(seed for _, seed in embeddings))
    }
    return [
        _draw_figure(shown, stem, scaled),
        write_markdown(found, stem, _table(embeddings), scaled),
        write_csv(stem, rows),
    ]


def _table(embeddings: dict[Cell, dict[str, Array]]) -> str:
    """Means over the seeds."""
    lines = []
    for target in TARGETS:
        scores = [arrays["r2"] for (name, _), arrays in embeddings.items() if name == target]
        if not scores:
            continue
        cells = []
        for values in np.stack(scores, axis=1):
            cells.append(estimate(Estimate.of_mean(values), len(values), decimals=3))
        lines.append([f"{target}s", str(len(scores)), *cells])
    header = ["KL on", "seeds", "R² of the position [95 % CI]", "R² of the action [95 % CI]"]
    return markdown_table(header, lines)


def _draw_figure(shown: dict[str, dict[str, Array]], stem: Path, title: str) -> Path:
    """The true values on the left, then one column per target: states above, actions below."""
    truth = next(iter(shown.values()))
    columns = [
        ("the truth", truth["position"], truth["action"]),
        *((f"KL on the {target}s", a["phi"], a["psi"]) for target, a in shown.items()),
    ]
    figure = new_figure(3.2 * len(columns), 6.2, title)
    axes = figure.subplots(2, len(columns), squeeze=False)
    colours = [_colours(truth["position"]), _colours(truth["action"])]
    for column, (heading, states, actions) in enumerate(columns):
        names = ("position", "action") if column == 0 else ("φ(s)", "ψ(a)")
        for row, points in enumerate((states, actions)):
            panel = axes[row, column]
            panel.scatter(*points.T, c=colours[row], s=3, linewidths=0)
            panel.set_aspect("equal", adjustable="datalim")
            panel.set_title(f"{heading}: {names[row]}", fontsize=10)
            panel.tick_params(labelsize=7)
            panel.locator_params(nbins=5)  # more labels would overlap
    return save_figure(figure, stem)


def _colours(points: Array) -> Array:
    """Red along one axis and blue along the other, so that a rotation is visible."""
    low, high = points.min(0), points.max(0)
    unit = (points - low) / np.maximum(high - low, 1e-12)
    green = np.full(len(unit), 0.35)
    return np.column_stack([0.1 + 0.85 * unit[:, 0], green, 0.1 + 0.85 * unit[:, 1]])


FILES: dict[Cell, str] = {
    (target, seed): f"{FOLDER}/{target}-seed{seed}.safetensors"
    for target in TARGETS
    for seed in SEEDS
}

EXPERIMENT = Experiment(
    name="box_image",
    question="Which embedding should be regularised towards N(0, I), that of actions or of states?",
    paper="with the KL on actions the embeddings are arranged as the true positions and actions; "
    "with the KL on states they are severely degraded (a figure, no numbers).",
    draw=draw,
    files=tuple(FILES.values()),
    maker=FileMaker(tuple(FILES), SAMPLES, FEWEST_SAMPLES, sizes, make, copy),
)
