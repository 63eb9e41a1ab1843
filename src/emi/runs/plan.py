"""Go to a goal with the embedding of a trained run, and record the path."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from emi.batch import Array, FloatArray, Transitions
from emi.envs import make_single
from emi.envs.foreign import environment_errors
from emi.errors import UserError
from emi.intrinsic.emi import EMI
from emi.planning.fit import fit
from emi.planning.landmarks import LandmarkGraph
from emi.planning.planner import Planner
from emi.runs.run import restored
from emi.runs.watch import FORMATS, frame_of, rendering, video_file
from emi.settings import whole_number
from emi.training.exploration import explore
from emi.untrusted_file import read_file

PLANNERS = ("straight", "greedy", "graph")
DATA = 30_000  # transitions that the embedding is trained on and landmarks are taken from
PASSES = 2  # over them
MAX_STEPS = 500
ARRIVED = 1.0  # steps from the goal in the linear model
MOST_BYTES = 64_000_000  # of a file with a goal


@dataclass(frozen=True)
class PlannedPath:
    """A path to a goal. φ has d entries; distances are in steps of the linear model."""

    visited: FloatArray  # [n, d], φ of some states of the data
    plan: FloatArray  # [points, d], φ of the planned path, from the start to the goal
    phi: FloatArray  # [steps + 1, d], φ of the path
    distance: FloatArray  # [steps + 1], from the goal

    @property
    def steps(self) -> int:
        return len(self.phi) - 1

    @property
    def arrived(self) -> bool:
        return bool(self.distance[-1] <= ARRIVED)


def plan(
    run: Path,
    out: Path,
    goal: str = "random",
    *,
    planner: str = "straight",
    seed: int = 0,
    data: int = DATA,
    max_steps: int = MAX_STEPS,
    trusted: Collection[str] = (),
    show: Callable[[str], None] = lambda far: None,
) -> PlannedPath:
    """Record a path to `goal` in the video `out`, .mp4 or .gif.

    The goal is the name of a .npy file with an observation, the index of one of the `data` states
    that the run visits next, or "random" for any of these. They are collected here by continuing
    the run in memory: the embedding is trained on them, and the run is not changed. `trusted` are
    the user's modules that the config of the run may import.
    """
    if out.suffix not in FORMATS:
        raise UserError(f"a video is .mp4 or .gif, not {out.name!r}: choose another --out")
    if planner not in PLANNERS:
        raise UserError(f"unknown planner {planner!r}: choose one of {', '.join(PLANNERS)}")
    if data < 1:
        raise UserError(f"a planner needs data: --data must be positive, got {data}")
    with restored(run, trusted=trusted) as trainer:
        emi, config = trainer.intrinsic, trainer.config
        if not isinstance(emi, EMI):
            raise UserError(
                f"{run} is a run of {config.method}: only emi has an embedding to plan in"
            )
        space = trainer.envs.single_observation_space
        given = _goal_file(Path(goal), space.shape or ()) if goal.endswith(".npy") else None
        index = _goal_index(goal, data, seed) if given is None else 0
        show("collecting data")
        batch = explore(trainer, math.ceil(data / config.steps_per_iteration), data)
    show("training the embedding")
    fit(emi, batch, PASSES, np.random.default_rng(seed))
    target = given if given is not None else np.asarray(batch.next_obs[index % len(batch)])[None]
    steering = Planner(emi, "greedy" if planner == "greedy" else "straight")
    graph = LandmarkGraph(steering, batch) if planner == "graph" else None
    with rendering(config.env):
        env = make_single(config.env, render_mode="rgb_array", **config.env_options)
    phi_goal, phi, distance = steering.embed(target), [], []
    with contextlib.closing(env), environment_errors(config.env):
        obs, _ = env.reset(seed=seed)
        with video_file(out, env.metadata.get("render_fps", 30)) as add:
            ended = False
            while True:
                add(frame_of(env, config.env))
                seen = np.asarray(obs)[None]
                phi.append(steering.embed(seen)[0])
                distance.append(float(steering.steps(phi_goal - phi[-1])[0]))
                if distance[-1] <= ARRIVED or ended or len(phi) > max_steps:
                    break
                action = (graph or steering).act(seen, phi_goal)[0]
                obs, _, terminated, truncated, _ = env.step(action)
                ended = terminated or truncated
                show(f"{len(phi):,} steps, {distance[-1]:.1f} steps from the goal")
    planned = torch.stack([phi[0], phi_goal[0]])
    if graph is not None:
        planned = graph.path(phi[0], phi_goal[0])
    path = torch.stack(phi).double().numpy()
    return PlannedPath(_visited(emi, batch), planned.double().numpy(), path, np.array(distance))


def _visited(emi: EMI, batch: Transitions) -> FloatArray:
    every = np.linspace(0, len(batch) - 1, min(len(batch), 2_000)).astype(int)
    return emi.embed_state(batch.obs[every]).double().numpy()


def _goal_index(text: str, data: int, seed: int) -> int:
    if text == "random":
        return int(np.random.default_rng(seed).integers(data))
    try:
        index = whole_number(text)
    except ValueError:
        index = -1
    if not 0 <= index < data:
        raise UserError(
            f"--goal takes a .npy file, random, or an index from 0 to {data - 1:,}, got {text!r}"
        )
    return index


def _goal_file(path: Path, shape: tuple[int, ...]) -> Array:
    """The observation [1, *observation] in a .npy file."""

    try:
        found = np.load(io.BytesIO(read_file(path, MOST_BYTES)), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"cannot read the goal {path}: {error}") from None
    if found.shape != shape or found.dtype.kind not in "buif" or not np.isfinite(found).all():
        raise UserError(
            f"{path} must hold an observation of shape {shape}, got {found.dtype} {found.shape}"
        )
    return np.asarray(found[None])
