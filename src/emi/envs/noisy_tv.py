"""NoisyTV: a grid with a television that shows random numbers while it is watched.

Observation (10): the cell (x, y) of the agent, scaled to [−1, 1], and the 8 numbers of the screen.
Actions: a step to the right, up, left or down, which a wall stops, or `WATCH`. Watching leaves the
agent where it is, and the screen shows new numbers, uniform in [−1, 1]; after any other action it
is dark (zeros). So everything but the screen is deterministic, and no model can predict the
screen. An episode starts at (0, 0). The reward is 1 in the opposite corner, where the episode ends,
else 0; an episode has at most 100 steps, and the way has 40.

A bonus for what is unpredictable rewards watching for ever: the noisy TV of Burda et al. (2019),
Large-scale study of curiosity-driven learning, section 5.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from emi.envs.episodes import Array, EpisodicEnv, EpisodicVectorEnv, Outcome
from emi.envs.positions import Map

SIDE = 21  # cells
SCREEN = 8  # numbers
HORIZON = 100
MOVES = np.array([(1, 0), (0, 1), (-1, 0), (0, -1), (0, 0)])
WATCH = 4  # the action
PIXELS = 16  # of a cell in a picture; video encoders require multiples of 16


class NoisyTVVectorEnv(EpisodicVectorEnv):
    """`num_envs` grids, stepped together; an environment does not depend on the others."""

    def __init__(
        self, num_envs: int = 1, threads: int | None = None, max_episode_steps: int | None = HORIZON
    ) -> None:
        """`threads` has no effect; `max_episode_steps=None`: no time limit."""
        observed = spaces.Box(-1.0, 1.0, (2 + SCREEN,), np.float32)
        super().__init__(num_envs, observed, spaces.Discrete(len(MOVES)), max_episode_steps)
        self._cell = np.zeros((num_envs, 2), np.int64)
        self._screen = np.zeros((num_envs, SCREEN))

    @property
    def cell(self) -> npt.NDArray[np.int64]:
        """The cells of the agents [num_envs, 2]."""
        return self._cell.copy()

    def map(self) -> Map:
        """The grid, in the units of the observation."""
        width = 2 / (SIDE - 1)
        return Map((-1 - width / 2,) * 2, (width, width), np.ones((SIDE, SIDE), np.bool_))

    def _start(self, index: int, stream: np.random.Generator) -> None:
        self._cell[index] = 0
        self._screen[index] = 0

    def _advance(self, actions: Array) -> Outcome:
        """Move by actions [num_envs], numbers of `MOVES`."""
        chosen = actions.astype(np.int64)
        if not ((actions == chosen) & (chosen >= 0) & (chosen < len(MOVES))).all():
            raise ValueError(f"actions must be whole numbers from 0 to {len(MOVES) - 1}.")
        self._cell = np.clip(self._cell + MOVES[chosen], 0, SIDE - 1)
        self._screen = np.zeros_like(self._screen)
        for i in np.flatnonzero(chosen == WATCH).tolist():
            self._screen[i] = self._streams[i].uniform(-1, 1, SCREEN)
        arrived = (self._cell == SIDE - 1).all(axis=1)
        return Outcome(self._observe(), arrived.astype(np.float64), arrived, {})

    def _observe(self) -> npt.NDArray[np.float32]:
        scaled = 2 * self._cell / (SIDE - 1) - 1
        return np.concatenate([scaled, self._screen], axis=1, dtype=np.float32, casting="same_kind")


class NoisyTVEnv(EpisodicEnv):
    """One grid as a single Gymnasium environment that can be rendered."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    _envs: NoisyTVVectorEnv

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(NoisyTVVectorEnv(), render_mode)

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The grid from above, [352, 336, 3], with the screen in the row above it."""
        if self.render_mode is None:
            return None
        cells = np.full((SIDE + 1, SIDE, 3), 235, np.uint8)
        cells[0] = 40
        screen = self._envs._screen[0]
        if screen.any():
            grey = np.rint(127.5 * (screen + 1)).astype(np.uint8)
            cells[0, 6 : 6 + SCREEN] = grey[:, None]
        cells[1, SIDE - 1] = (0, 158, 115)  # the goal
        x, y = self._envs.cell[0]
        cells[SIDE - y, x] = (0, 114, 178)
        return cells.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)
