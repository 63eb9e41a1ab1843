"""A video of one episode of a trained agent."""

import contextlib
import math
import os
from collections.abc import Iterator
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


def watch(run: Path, out: Path, *, seed: int = 0, deterministic: bool = False) -> WatchedEpisode:
    """Record one episode of the newest policy of `run` in the file `out`, .mp4 or .gif."""
    if out.suffix not in FORMATS:
        raise UserError(f"a video is .mp4 or .gif, not {out.name!r}: choose another --out")
    with restored(run, num_envs=1) as trainer:
        policy, name = trainer.policy, trainer.config.env
    act = policy.mode if deterministic else policy.actor(np.random.default_rng(seed))
    with _rendering(name):
        env = make_single(name, render_mode="rgb_array")
    with contextlib.closing(env):
        obs, _ = env.reset(seed=seed)
        with _Video(out, env.metadata.get("render_fps", 30)) as video:
            video.add(_frame(env, name))
            total, steps, ended = 0.0, 0, False
            while not ended and steps < MAX_STEPS:
                action = policy.to_env(act(np.asarray(obs)[None]))[0]
                obs, reward, terminated, truncated, _ = env.step(action)
                total, steps, ended = total + float(reward), steps + 1, terminated or truncated
                video.add(_frame(env, name))
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


class _Video:
    """A video file, written frame by frame under a temporary name and renamed when complete."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.stem}.writing{path.suffix}")
        self._every = math.ceil(fps / _GIF_FPS) if path.suffix == ".gif" else 1
        self._fps = fps / self._every
        self._frames = 0
        self._writer: Any = None

    def __enter__(self) -> "_Video":
        try:
            import imageio.v2 as imageio
        except ImportError:
            raise UserError("videos need imageio: pip install 'emi-rl[train]'", FAILED) from None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # H.264 needs even sides; the library's default, multiples of 16, would rescale.
            options: dict[str, Any] = {"fps": self._fps, "macro_block_size": 2}
            if self._path.suffix == ".gif":
                options = {"duration": 1000 / self._fps, "loop": 0}
            self._writer = imageio.get_writer(self._temporary, **options)
        except (OSError, ImportError, ValueError) as error:
            raise UserError(f"cannot write {self._path}: {error}", FAILED) from None
        return self

    def add(self, frame: np.ndarray) -> None:
        if self._frames % self._every == 0:
            self._writer.append_data(frame)
        self._frames += 1

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._writer.close()
        if error is None:
            os.replace(self._temporary, self._path)
        else:
            self._temporary.unlink(missing_ok=True)
