"""The vocabulary every room shares: transitions, and the rollout they are cut from.

Time is always the first axis and environments the second, `[time, env, ...]`. A flat batch is the
same steps in time-major order with the steps that are not transitions left out, `[n, ...]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

# What a setting may be, said where it is declared; `experiment.config.validate` reads it.
PositiveInt = Annotated[int, "positive"]
PositiveFloat = Annotated[float, "positive"]
NotNegativeInt = Annotated[int, "zero or more"]
NotNegativeFloat = Annotated[float, "zero or more"]
Fraction = Annotated[float, "in (0, 1]"]
FractionOrZero = Annotated[float, "in [0, 1]"]


@dataclass(frozen=True)
class Stacks:
    """Stacks of frames [rows, k, *frame] that hold every frame once; read like an array."""

    frames: Array  # [frames, *frame]
    index: IntArray  # [rows, k], the frames of each row, the newest last

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Any) -> Array:
        return self.frames[self.index[which]]


@dataclass(frozen=True)
class Rows:
    """Rows `pool[index]`, gathered only when asked for, so that images are held in memory once."""

    pool: Array | Stacks  # [rows, ...]
    index: IntArray  # [n]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Any) -> Array:
        return self.pool[self.index[which]]


Batched = Array | Tensor | Rows


@dataclass(frozen=True)
class Transitions:
    """A batch of (s, a, s'), each with a leading batch axis: arrays, tensors, or `emi.data.Rows`.

    `next_obs` is the true successor, also where an episode ended. Actions are in the units of the
    environment's action space. Methods that follow a stream of bonuses read `env`: the rows of one
    environment are in the order of time. Without it, all rows are one stream.
    """

    obs: Batched  # [n, *observation]
    action: Batched  # [n, *action]
    next_obs: Batched  # [n, *observation]
    env: IntArray | None = None  # [n], which environment a row came from, counted from 0

    def __post_init__(self) -> None:
        if self.env is not None and len(self.env) != len(self.action):
            raise ValueError(
                f"env must have one entry for each of the {len(self.action)} transitions, "
                f"got {len(self.env)}"
            )
        lengths = {len(self.obs), len(self.action), len(self.next_obs)}
        if len(lengths) != 1:
            raise ValueError(
                "obs, action and next_obs must have one length, got "
                f"{len(self.obs)}, {len(self.action)} and {len(self.next_obs)}"
            )

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, which: Any) -> Transitions:
        env = None if self.env is None else self.env[which]
        return Transitions(self.obs[which], self.action[which], self.next_obs[which], env)


class UnitRange(NamedTuple):
    """How a `Box` maps to [−1, 1]: value = centre + half · unit.

    Entries without bounds pass as they are, and so do those whose bounds are farther apart than a
    number can be: they stand for none. An entry with a single value has half = 0. Each [*shape];
    `limit` is 1 where there are bounds and infinite elsewhere.
    """

    centre: npt.NDArray[np.float32]
    half: npt.NDArray[np.float32]
    limit: npt.NDArray[np.float32]

    @classmethod
    def of(cls, space: gymnasium.spaces.Box) -> UnitRange:
        with np.errstate(over="ignore"):
            width = space.high.astype(np.float64) - space.low.astype(np.float64)
        bounded = width < np.finfo(np.float32).max
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        centre, half, limit = (high + low) / 2, (high - low) / 2, np.where(bounded, 1.0, np.inf)
        return cls(*(x.astype(np.float32) for x in (centre, half, limit)))


def as_tensor(array: Batched, device: torch.device | str = "cpu") -> Tensor:
    """The rows as a tensor on `device`; no copy where none is needed."""
    return torch.as_tensor(array[:] if isinstance(array, Rows) else array, device=device)


# Large batches go in pieces: the images of a whole iteration need not become floats at once.
PIECE_ROWS = 8_192  # most rows in a piece
PIECE_ENTRIES = 2**22  # most entries in it: a convolution makes several times as many of them


def pieces(*columns: Batched, device: torch.device | str) -> Iterator[tuple[Tensor, ...]]:
    """The columns in order as tensors on `device`, the same rows of each at a time."""
    widest = max(math.prod(column[:1].shape) for column in columns)
    rows = max(1, min(PIECE_ROWS, PIECE_ENTRIES // max(1, widest)))
    for start in range(0, len(columns[0]), rows):
        yield tuple(as_tensor(column[start : start + rows], device) for column in columns)


def in_pieces(
    function: Callable[..., Tensor], device: torch.device | str, *columns: Batched
) -> Tensor:
    """`function` of the columns, row by row the same as at once; no gradients."""
    with torch.no_grad():
        return torch.cat([function(*part) for part in pieces(*columns, device=device)])


class NotFiniteError(RuntimeError):
    """Something became NaN or infinite; the message names it."""


def check_finite(name: str, array: Array) -> None:
    """Raise NotFiniteError if any entry is NaN or infinite."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinite"
        raise NotFiniteError(f"{name} became {what}")


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """How `envs` begins the next episode; refuses to guess, because a wrong guess is silent."""
    mode = envs.metadata.get("autoreset_mode")
    if mode is None:
        raise ValueError(
            "the vector environment does not say how it resets: set "
            'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode'
        )
    return AutoresetMode(mode)


@dataclass(frozen=True)
class Rollout:
    """`steps` of `envs` environments: what one iteration learns from.

    Observations are stored once, in `pool`; `index` and `next_index` name the rows of s and s'.
    A step is `valid` when it is a real transition: with Gymnasium's NEXT_STEP autoreset, the step
    that only resets is not.
    """

    pool: Array | Stacks  # [rows, *observation]
    index: IntArray  # [time, env]
    next_index: IntArray  # [time, env]
    action: Array  # [time, env, *action], as sampled: the likelihood is that of this value
    reward: FloatArray  # [time, env], raw
    terminated: BoolArray  # [time, env]
    truncated: BoolArray  # [time, env]
    clock: IntArray  # [time, env], steps since the episode began
    valid: BoolArray  # [time, env]
    episode_returns: FloatArray  # [finished episodes], raw

    def __post_init__(self) -> None:
        shape = self.index.shape
        for name in ("next_index", "reward", "terminated", "truncated", "clock", "valid"):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"{name} must have the axes [time, env] = {shape}, "
                    f"got {getattr(self, name).shape}"
                )
        if self.action.shape[:2] != shape:
            raise ValueError(
                f"action must begin with the axes [time, env] = {shape}, got {self.action.shape}"
            )

    @property
    def ended(self) -> BoolArray:
        """[time, env]: no trace and no transition goes beyond this step."""
        return self.terminated | self.truncated

    @property
    def steps(self) -> int:
        """Number of real transitions."""
        return int(self.valid.sum())

    def flat(self, grid: Array) -> Array:
        """[time, env, ...] to [n, ...]: the valid steps in time-major order."""
        return grid[self.valid]

    def grid(self, flat: Array) -> Array:
        """[n] to [time, env], zero where a step is no transition: the inverse of `flat`."""
        out = np.zeros(self.valid.shape, flat.dtype)
        out[self.valid] = flat
        return out

    def observations(self) -> Rows:
        """[n, *observation]: s of every valid step."""
        return Rows(self.pool, self.flat(self.index))

    def transitions(self, to_env: Callable[[Array], Array]) -> Transitions:
        """The valid steps as (s, a, s'), actions brought into the environment's units."""
        env = np.broadcast_to(np.arange(self.index.shape[1]), self.index.shape)
        return Transitions(
            obs=self.observations(),
            action=to_env(self.flat(self.action)),
            next_obs=Rows(self.pool, self.flat(self.next_index)),
            env=self.flat(env),
        )
