"""A video of one episode of a trained agent."""

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from emi.envs import make_single
from emi.errors import FAILED, UserError
from emi.runs.run import restored

FORMATS = (".mp4", ".gif")
MAX_STEPS = 10_000  # some environments have no time limit
_GIF_FPS = 50  # viewers slow down faster GIFs


@dataclass(frozen=True)
class WatchedEpisode:
    total_reward: float
    steps: int


def watch(
    run: Path,
    out: Path,
    *,
    seed: int = 0,
    deterministic: bool = False,
    trusted: Collection[str] = (),
) -> WatchedEpisode:
    """Record one episode of the newest policy of `run` in the file `out`, .mp4 or .gif.

    `trusted` are the user's modules that the config of the run may import.
    """
    if out.suffix not in FORMATS:
        raise UserError(f"a video is .mp4 or .gif, not {out.name!r}: choose another --out")
    with restored(run, num_envs=1, trusted=trusted) as trainer:
        policy, name = trainer.policy, trainer.config.env
    act = policy.mode if deterministic else policy.actor(np.random.default_rng(seed))
    with _rendering(name):
        env = make_single(name, render_mode="rgb_array")
    with contextlib.closing(env):
        obs, _ = env.reset(seed=seed)
        with _video(out, env.metadata.get("render_fps", 30)) as add:
            add(_frame(env, name))
            total, steps, ended = 0.0, 0, False
            while not ended and steps < MAX_STEPS:
                action = policy.to_env(act(np.asarray(obs)[None]))[0]
                obs, reward, terminated, truncated, _ = env.step(action)
                total, steps, ended = total + float(reward), steps + 1, terminated or truncated
                add(_frame(env, name))
    return WatchedEpisode(total, steps)


@contextlib.contextmanager
def _rendering(name: str) -> Iterator[None]:
    """Turn a renderer's complaint into one sentence."""
    try:
        yield
    except (gymnasium.error.Error, ImportError, RuntimeError) as error:
        raise UserError(f"{name} cannot be rendered: {error}", FAILED) from None


def _frame(env: gymnasium.Env, name: str) -> np.ndarray:
    with _rendering(name):
        frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise UserError(f"{name} renders no images", FAILED)
    return frame


@contextlib.contextmanager
def _video(path: Path, fps: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that adds a frame to a video file, which is renamed to `path` when complete."""
    try:
        import imageio.v2 as imageio
    except ImportError:
        raise UserError("videos need imageio: pip install 'emi-rl[train]'", FAILED) from None
    # H.264 needs even sides; the library's default, multiples of 16, would rescale.
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 2}
    every = 1
    if path.suffix == ".gif":
        every = math.ceil(fps / _GIF_FPS)
        options = {"duration": 1000 * every / fps, "loop": 0}
    temporary = path.with_name(f".{path.stem}.writing{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # in a stranger's run it can be a link to any file
        writer: Any = imageio.get_writer(temporary, **options)
    except (OSError, ImportError, ValueError) as error:
        raise UserError(f"cannot write {path}: {error}", FAILED) from None
    number = itertools.count()

    def add(frame: np.ndarray) -> None:
        if next(number) % every == 0:
            writer.append_data(frame)

    try:
        with writer:
            yield add
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
