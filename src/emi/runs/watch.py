"""A video of one episode of a trained agent."""

import contextlib
import io
import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from emi.agent.policy import actor
from emi.durable_file import write_durably
from emi.envs import make_single
from emi.envs.foreign import environment_errors, outside_emi
from emi.errors import FAILED, ForeignError, UserError
from emi.program import install
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
    show: Callable[[str], None] = lambda far: None,
) -> WatchedEpisode:
    """Record one episode of the newest policy of `run` in the file `out`, .mp4 or .gif.

    `trusted` are the user's modules that the config of the run may import. `show` is called after
    every step with how far the episode is.
    """
    if out.suffix not in FORMATS:
        raise UserError(f"a video is .mp4 or .gif, not {out.name!r}: choose another --out")
    with restored(run, num_envs=1, trusted=trusted) as trainer:
        policy, name = trainer.policy, trainer.config.env
        options = trainer.config.env_options
    act = policy.mode if deterministic else actor(policy, np.random.default_rng(seed))
    with rendering(name):
        env = make_single(name, render_mode="rgb_array", **options)
    with contextlib.closing(env), environment_errors(name):
        obs, _ = env.reset(seed=seed)
        with video_file(out, env.metadata.get("render_fps", 30)) as add:
            add(frame_of(env, name))
            total, steps, ended = 0.0, 0, False
            while not ended and steps < MAX_STEPS:
                action = policy.actions.to_env(act(np.asarray(obs)[None]))[0]
                obs, reward, terminated, truncated, _ = env.step(action)
                total, steps, ended = total + float(reward), steps + 1, terminated or truncated
                add(frame_of(env, name))
                show(f"{steps:,} steps, return {total:g}")
    return WatchedEpisode(total, steps)


@contextlib.contextmanager
def rendering(name: str) -> Iterator[None]:
    """Turn a renderer's complaint into one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each renderer has its own
        sentence = f"{name} cannot be rendered: {error}"
        if outside_emi(error) is None:
            raise UserError(sentence, FAILED) from error
        raise ForeignError(sentence) from error


def frame_of(env: gymnasium.Env, name: str) -> np.ndarray:
    with rendering(name):
        frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise UserError(f"{name} renders no images", FAILED)
    return frame


@contextlib.contextmanager
def video_file(path: Path, fps: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that adds a frame to a video, which is written to `path` when it is complete."""
    try:
        import imageio.v2 as imageio
    except ImportError:
        raise UserError(f"videos need imageio: {install('train')}", FAILED) from None
    # H.264 needs even sides; the library's default, multiples of 16, would rescale.
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 2}
    every = 1
    if path.suffix == ".gif":
        every = math.ceil(fps / _GIF_FPS)
        options = {"duration": 1000 * every / fps, "loop": 0}
    video = io.BytesIO()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):  # before an episode is played for nothing
            raise PermissionError(f"no permission to write in {path.parent}")
        writer: Any = imageio.get_writer(video, format=path.suffix, **options)
    except (OSError, ImportError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot write {path}: {reason or error}", FAILED) from None
    number = itertools.count()

    def add(frame: np.ndarray) -> None:
        if next(number) % every == 0:
            writer.append_data(frame)

    with writer:
        yield add
    try:
        write_durably(path, video.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", FAILED) from None
