"""BoxImage (section 5.5): which embedding should be regularised towards N(0, I), ψ or φ?

30,000 transitions of a random policy; one embedding is trained with KL(P_ψ ‖ N(0, I)), one with
KL(P_φ ‖ N(0, I)), all else equal. The paper shows a figure: with the first, embedded states and
actions are arranged as the true positions and actions; with the second they are not. We also
measure it: R² of an affine map from φ(s) to the true position, and from ψ(a) to the true action.

A seed takes about five minutes on one core.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from safetensors import SafetensorError
from safetensors.numpy import load, save

from emi.agent.policy import PolicyConfig, make_policy
from emi.agent.rollout import collect
from emi.batch import Array, FloatArray, Transitions
from emi.durable_file import write_durably
from emi.envs.box_image import HORIZON, BoxImageVectorEnv
from emi.errors import UserError
from emi.intrinsic.emi import EMI, EMIConfig
from emi.report.style import WIDTH, in_our_style, new_figure, save_figure, set_heading
from emi.report.summary import Estimate
from emi.report.tables import estimate, write_csv
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found
from emi.untrusted_file import read_file

Target = Literal["action", "state"]
TARGETS: tuple[Target, ...] = ("action", "state")
SEEDS = range(5)
SAMPLES = 30_000  # supplementary section 7
SHOWN = 2_000  # points per scatter plot
FEWEST_SAMPLES = 1_000  # of a scaled run
MOST_BYTES = 1_000_000  # of a file that is read

# λ from supplementary section 7; minibatches and epochs as in all experiments of the paper. The
# weight of the KL is that of the authors' image script; the paper does not state it.
CONFIG = EMIConfig(lambda_error=100.0, lambda_info=0.01, embedding_dim=2, kl_weight=0.5)


class _Positions(VectorWrapper):
    """Records the positions at which actions were taken."""

    env: BoxImageVectorEnv

    def __init__(self, env: BoxImageVectorEnv) -> None:
        super().__init__(env)
        self.before: list[FloatArray] = []

    def step(self, actions: Any) -> Any:
        self.before.append(self.env.position)
        return super().step(actions)


def sample(seed: int, samples: int) -> tuple[Transitions, FloatArray]:
    """Complete episodes of an untrained policy, and the true position [n, 2] of every s."""
    envs = _Positions(BoxImageVectorEnv(num_envs=max(1, samples // HORIZON)))
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(*spaces, PolicyConfig(), torch.Generator().manual_seed(seed))
    rollout = collect(envs, policy, samples, np.random.default_rng(seed), seed)
    return rollout.transitions(policy.actions.to_env), rollout.flat(np.stack(envs.before))


def affine_r2(x: Array, y: Array) -> float:
    """Share of the variance of y [n, b] explained by the best affine map of x [n, a]."""
    inputs = np.column_stack([x, np.ones(len(x))])
    coefficients, *_ = np.linalg.lstsq(inputs, y)
    residual = y - inputs @ coefficients
    return 1 - float((residual**2).sum() / ((y - y.mean(0)) ** 2).sum())


def learn(batch: Transitions, seed: int, config: EMIConfig) -> tuple[Array, Array]:
    """Train on `batch`; returns φ [n, 2] and ψ [n, 2] of every transition."""
    envs = BoxImageVectorEnv()
    emi = EMI(envs.single_observation_space, envs.single_action_space, config, seed)
    emi.learn(batch)
    return emi.embed_state(batch.obs).numpy(), emi.embed_action(batch.action).numpy()


def make(
    root: Path, cells: Sequence[Cell], samples: int, budget: Budget, config: EMIConfig = CONFIG
) -> None:
    """Train each (target, seed) of `cells` on so many samples."""
    torch.set_num_threads(budget.threads)
    for seed in dict.fromkeys(seed for _, seed in cells):
        batch, position = sample(seed, samples)
        action = np.asarray(batch.action, np.float64)
        shown = np.random.default_rng(seed).permutation(len(position))[:SHOWN]
        for target in (target for target in TARGETS if (target, seed) in cells):
            phi, psi = learn(batch, seed, replace(config, kl_target=target))
            r2 = np.array([affine_r2(phi, position), affine_r2(psi, action)])
            arrays = {"phi": phi, "psi": psi, "position": position, "action": action}
            kept = {name: array[shown].astype(np.float32) for name, array in arrays.items()}
            about = {"r2": r2, "samples": np.array([len(position)])}
            write_durably(root / FILES[target, seed], save(kept | about))
            print(f"seed {seed}, KL on the {target}: R² position {r2[0]:.3f}, action {r2[1]:.3f}")


def read(root: Path) -> dict[Cell, dict[str, Array]]:
    """The arrays of all files below `root`."""
    found = {}
    for cell, path in ((cell, root / name) for cell, name in FILES.items()):
        if path.exists():
            try:
                found[cell] = load(read_file(path, MOST_BYTES))
                _check(found[cell])
            except (SafetensorError, OSError, KeyError, ValueError) as error:
                raise UserError(f"{path} is damaged ({error}): run box_image again") from None
    return found


def _check(arrays: dict[str, Array]) -> None:
    """KeyError or ValueError unless `arrays` are those that `make` writes."""
    rows = len(arrays["phi"])
    shapes = dict.fromkeys(("phi", "psi", "position", "action"), (rows, 2))
    for name, shape in (shapes | {"r2": (2,), "samples": (1,)}).items():
        array = arrays[name]
        if not 1 <= rows <= SHOWN or array.shape != shape or array.dtype.kind not in "fi":
            raise ValueError(f"{name} is {array.dtype} {array.shape}")
        if not (np.abs(array) <= 1e15).all():
            raise ValueError(f"{name} is not finite")


def sizes(root: Path) -> dict[Cell, int]:
    return {cell: int(arrays["samples"][0]) for cell, arrays in read(root).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    (target / "box_image").mkdir(parents=True, exist_ok=True)
    for name in (FILES[cell] for cell in cells):
        write_durably(target / name, (source / name).read_bytes())
    return [target / FILES[cell] for cell in cells]


def draw(found: Found, stem: Path) -> list[Path]:
    """The figure of the first seed that has both targets, and the table of all seeds."""
    embeddings = read(found.root)
    fewest = min(int(arrays["samples"][0]) for arrays in embeddings.values())
    scaled = f"SCALED: {fewest:,} of {SAMPLES:,} samples" if fewest < SAMPLES else ""
    r2 = {cell: arrays["r2"].tolist() for cell, arrays in embeddings.items()}
    rows = [
        {"kl_on": target, "seed": seed, "r2_position": position, "r2_action": action}
        for (target, seed), (position, action) in r2.items()
    ]
    seeds = [seed for _, seed in embeddings]
    first = min(seeds, key=lambda seed: (seeds.count(seed) < len(TARGETS), seed))
    shown = {target: arrays for (target, seed), arrays in embeddings.items() if seed == first}
    return [
        _draw_figure(shown, stem, scaled),
        write_markdown(found, stem, _table(embeddings), scaled),
        write_csv(stem, rows),
    ]


def _table(embeddings: dict[Cell, dict[str, Array]]) -> str:
    """Means over the seeds."""
    rows = []
    for target in dict.fromkeys(target for target, _ in embeddings):
        scores = [arrays["r2"] for (name, _), arrays in embeddings.items() if name == target]
        row = {"KL on": f"{target}s", "seeds": str(len(scores))}
        for name, values in zip(("position", "action"), np.stack(scores, axis=1), strict=True):
            mean = estimate(Estimate.of_mean(values), len(values), decimals=3)
            row[f"R² of the {name} [95 % CI]"] = mean
        rows.append(row)
    return table_of(rows)


@in_our_style
def _draw_figure(shown: dict[str, dict[str, Array]], stem: Path, title: str) -> Path:
    """The true values on the left, then one column per target: states above, actions below."""
    truth = next(iter(shown.values()))
    figure = new_figure(WIDTH * (1 + len(shown)) / 3, 4.7, title)
    axes = figure.subplots(2, 1 + len(shown), squeeze=False)
    rows = (("position", "phi", "φ(s)"), ("action", "psi", "ψ(a)"))
    for panels, (true, embedding, symbol) in zip(axes, rows, strict=True):
        columns = {f"True {true}": ("", truth[true])}
        columns |= {f"KL on {t}s": (symbol, a[embedding]) for t, a in shown.items()}
        for panel, (heading, (name, points)) in zip(panels, columns.items(), strict=True):
            panel.scatter(*points.T, c=_colours(truth[true]), s=2, linewidths=0)
            panel.set(box_aspect=1, aspect="equal", adjustable="datalim")
            set_heading(panel, f"{heading}: {name}" if name else heading)
            panel.spines[["top", "right"]].set_visible(True)
            panel.locator_params(nbins=5)  # more labels would overlap
    return save_figure(figure, stem)


def _colours(points: Array) -> Array:
    """Red along one axis and blue along the other, so that a rotation is visible."""
    low, high = points.min(0), points.max(0)
    unit = (points - low) / np.maximum(high - low, 1e-12)
    green = np.full(len(unit), 0.35)
    return np.column_stack([0.1 + 0.85 * unit[:, 0], green, 0.1 + 0.85 * unit[:, 1]])


FILES: dict[Cell, str] = {
    (target, seed): f"box_image/{target}-seed{seed}.safetensors"
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
