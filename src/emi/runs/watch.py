"""A video of one episode of a trained agent."""

import dataclasses
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from emi.envs import make_single
from emi.errors import FAILED, UserError
from emi.runs.progress import tell
from emi.runs.run import restore_newest
from emi.training.trainer import Trainer
from emi.runs.run_directory import RunDirectory, read_config

FORMATS = (".mp4", ".gif")
MAX_STEPS = 10_000  # some environments never end an episode by themselves
_GIF_FPS = 50  # viewers slow down GIFs that are faster


@dataclass(frozen=True)
class Episode:
    total_reward: float
    steps: int


def watch(run: Path, out: Path, *, seed: int = 0, deterministic: bool = False) -> Episode:
    """Play one episode with the newest policy of `run` and write it to `out`, .mp4 or .gif."""
    if out.suffix not in FORMATS:
        raise UserError(f"a video is .mp4 or .gif, not {out.name!r}: choose another --out")
    directory = RunDirectory(run)
    # Watching needs no accelerator, and the machine may be another one than that of the training.
    config = dataclasses.replace(read_config(directory), device="cpu", threads=1, num_envs=1)
    trainer = Trainer(config)
    try:
        restore_newest(trainer, directory, lambda warning: tell(f"warning: {warning}"))
        policy = trainer.policy
    finally:
        trainer.close()

    act = policy.mode if deterministic else policy.actor(np.random.default_rng(seed))
    env = _make(config.env)
    try:
        obs, _ = env.reset(seed=seed)
        with _Video(out, env.metadata.get("render_fps", 30)) as video:
            video.add(_frame(env))
            total, steps, ended = 0.0, 0, False
            while not ended and steps < MAX_STEPS:
                action = policy.to_env(act(np.asarray(obs)[None]))[0]
                obs, reward, terminated, truncated, _ = env.step(action)
                total, steps, ended = total + float(reward), steps + 1, terminated or truncated
                video.add(_frame(env))
    finally:
        env.close()
    return Episode(total, steps)


def _make(name: str) -> gymnasium.Env:
    try:
        return make_single(name, render_mode="rgb_array")
    except (gymnasium.error.Error, ImportError, RuntimeError) as error:
        raise UserError(f"{name} cannot be rendered here: {error}", FAILED) from None


def _frame(env: gymnasium.Env) -> np.ndarray:
    try:
        frame = env.render()
    except (gymnasium.error.Error, ImportError, RuntimeError) as error:
        raise UserError(
            f"{env.spec.id if env.spec else env} cannot be rendered: {error}", FAILED
        ) from None
    if not isinstance(frame, np.ndarray):
        raise UserError(f"{env.spec.id if env.spec else env} renders no pictures", FAILED)
    return frame


class _Video:
    """Frames written as they come; the file appears under its name when it is whole."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.stem}.writing{path.suffix}")
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
            if self._path.suffix == ".gif":
                self._writer = imageio.get_writer(self._beside, duration=1000 / self._fps, loop=0)
            else:
                # H.264 needs even sides, no more; the library's default of 16 would rescale.
                self._writer = imageio.get_writer(self._beside, fps=self._fps, macro_block_size=2)
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
            os.replace(self._beside, self._path)
        else:
            self._beside.unlink(missing_ok=True)
