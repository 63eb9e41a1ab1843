"""BoxImage: a disc in a box, to study the embeddings of images (EMI, section 5.5).

The true state is a position x in [0, 100]², which an action a in [−1, 1]² moves:
x ← min(max(x + a, 0), 100). Only an image of it is observed: a white disc on black, 1×52×52. The
start is uniform among the points with ‖x‖ ≥ 75. `info["position"]` holds the true position. See
also supplementary section 7. The paper describes neither a reward nor an end of episodes: the
reward is 0, and an episode has 500 steps.

Ours: BoxImageWall has a vertical wall in the middle with a door, both visible in the image. The
disc slides along the wall and passes only through the door.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from emi.envs.episodes import Array, EpisodicEnv, EpisodicVectorEnv, Mask, Outcome
from emi.envs.positions import Map

Image = npt.NDArray[np.uint8]

BOX = 100.0
START_BEYOND = 75.0  # distance from the corner (0, 0)

# Not published. As in the paper's other continuous tasks, and short enough that a batch shows the
# distribution of starts: a random walk moves about 20 units in that time.
HORIZON = 500

SIDE = 52  # pixels

# Not published. The disc is as wide as the first convolution of the paper's networks (8×8).
RADIUS = 4  # pixels

# The image shows the whole box: at x = 0 and x = 100 the disc touches a wall and is not cut, so
# that equal steps look the same everywhere.
SCALE = (SIDE - 2 * RADIUS) / BOX  # pixels per unit of x

# Pixels that the disc can cover along one axis, relative to the pixel of its centre.
REACH = np.arange(-RADIUS, RADIUS + 1)

# The wall of BoxImageWall: two columns of pixels at x₀ = 50. The disc does not overlap it, so that
# its centre keeps a distance, except in the door, a strip of x₁ in which the centre may pass.
WALL = slice(SIDE // 2 - 1, SIDE // 2 + 1)  # columns
WALL_BRIGHTNESS = 128
KEEP_OFF = (RADIUS + 1) / SCALE  # distance of the centre from x₀ = 50
DOOR = (14.0, 26.0)  # x₁ of the centre

ENLARGED = 8  # to 416 pixels, a multiple of 16, as video encoders require


def draw_discs(position: Array) -> Image:
    """Images [n, 1, 52, 52] of discs at positions [n, 2]: x₀ to the right, x₁ upwards.

    The edge is soft. A pixel at the distance d from the centre of the disc has the brightness
    min(max(RADIUS + ½ − d, 0), 1). An action moves the disc by at most 0.44 pixels along an axis.
    With soft edges every step of 0.01 changes the image. With hard edges half of the steps of 0.1
    would change nothing; with the centre rounded to a pixel, 6 of 10 random actions.
    """
    centre = RADIUS + SCALE * position
    centre[:, 1] = SIDE - centre[:, 1]  # rows are counted from the top
    # Only the square around each disc is computed: 81 pixels of 2704.
    middle = np.minimum(centre.astype(np.intp), SIDE - 1 - RADIUS)
    pixels = middle[:, :, None] + REACH
    columns, rows = pixels[:, 0, None, :], pixels[:, 1, :, None]
    squared = (pixels + 0.5 - centre[:, :, None]) ** 2
    distance = np.sqrt(squared[:, 0, None, :] + squared[:, 1, :, None])
    brightness = np.clip(RADIUS + 0.5 - distance, 0.0, 1.0)
    images = np.zeros((len(position), 1, SIDE, SIDE), dtype=np.uint8)
    images[np.arange(len(position))[:, None, None], 0, rows, columns] = np.rint(255 * brightness)
    return images


def draw_start(stream: np.random.Generator) -> Array:
    """A point [2] of the box, uniform among those with ‖x‖ ≥ 75; takes 1.8 draws on average."""
    while True:
        position = stream.uniform(0.0, BOX, 2)
        if math.hypot(*position) >= START_BEYOND:
            return position


def draw_wall(images: Image) -> Image:
    """Add the wall to images [n, 1, 52, 52]; the door is as wide as the discs that pass through."""
    rows = np.arange(SIDE) + 0.5
    low, high = (RADIUS + SCALE * x for x in DOOR)
    shut = (SIDE - rows < low - RADIUS) | (SIDE - rows > high + RADIUS)
    wall = np.zeros((SIDE, SIDE), np.uint8)
    wall[shut, WALL] = WALL_BRIGHTNESS
    return np.maximum(images, wall)


def slide_along_wall(before: Array, after: Array) -> Array:
    """Positions [n, 2] after moves of at most 1 per axis that the wall may stop."""
    x, y = after.T.copy()
    side = np.where(before[:, 0] < BOX / 2, -1.0, 1.0)
    in_door = (before[:, 1] >= DOOR[0]) & (before[:, 1] <= DOOR[1])
    kept_off = BOX / 2 + side * np.maximum(side * (x - BOX / 2), KEEP_OFF)
    x = np.where(in_door, x, kept_off)
    inside = in_door & (np.abs(x - BOX / 2) < KEEP_OFF)
    return np.stack([x, np.where(inside, y.clip(*DOOR), y)], 1)


class BoxImageVectorEnv(EpisodicVectorEnv):
    """`num_envs` boxes, computed together.

    `info["position"]` [num_envs, 2] belongs to the observations, `info["final_info"]["position"]`
    to the last observations of ended episodes. Results depend only on the seed and the actions; an
    environment does not depend on the others.
    """

    def __init__(
        self,
        num_envs: int = 1,
        threads: int | None = None,
        max_episode_steps: int | None = HORIZON,
        wall: bool = False,
    ) -> None:
        """`threads` has no effect; `max_episode_steps=None`: no time limit."""
        picture = spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
        move = spaces.Box(-1.0, 1.0, (2,), np.float32)
        super().__init__(num_envs, picture, move, max_episode_steps)
        self._position = np.zeros((num_envs, 2))
        self._wall = wall

    @property
    def position(self) -> Array:
        """The true positions [num_envs, 2]."""
        return self._position.copy()

    def map(self) -> Map:
        """The box, in 50 × 50 cells."""
        return Map((0.0, 0.0), (2.0, 2.0), np.ones((50, 50), np.bool_), ("x₀", "x₁"))

    def place(self, position: Array) -> Image:
        """Move the discs to positions [num_envs, 2]; returns the observations there."""
        self._position[:] = position
        return self._observe()

    def _start(self, index: int, stream: np.random.Generator) -> None:
        start = draw_start(stream)
        while self._wall and abs(start[0] - BOX / 2) < KEEP_OFF:
            start = draw_start(stream)
        self._position[index] = start

    def _advance(self, actions: Array) -> Outcome:
        """Move by actions [num_envs, 2], clipped to ±1, within the walls."""
        before = self._position.copy()
        self._position += np.clip(actions, -1.0, 1.0)
        np.clip(self._position, 0.0, BOX, out=self._position)
        if self._wall:
            self._position[:] = slide_along_wall(before, self._position)
        never = np.zeros(self.num_envs, dtype=np.bool_)
        info = self._state_info(self._everywhere)
        return Outcome(self._observe(), np.zeros(self.num_envs), never, info)

    def _observe(self) -> Image:
        """Images [num_envs, 1, 52, 52] of the current positions."""
        discs = draw_discs(self._position)
        return draw_wall(discs) if self._wall else discs

    def _state_info(self, where: Mask) -> dict[str, npt.NDArray[Any]]:
        position = np.where(where[:, None], self._position, 0.0)
        return {"position": position, "_position": where.copy()}


class BoxImageEnv(EpisodicEnv):
    """One box as a single Gymnasium environment that can be rendered."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    _envs: BoxImageVectorEnv

    def __init__(self, render_mode: str | None = None, wall: bool = False) -> None:
        super().__init__(BoxImageVectorEnv(wall=wall), render_mode)

    @property
    def position(self) -> Array:
        """The true position [2]."""
        return self._envs.position.reshape(2)

    def render(self) -> Image | None:
        """The observed image, enlarged to [416, 416, 3], or None without a render mode."""
        if self.render_mode is None:
            return None
        image = self._envs._observe()[0, 0]
        enlarged = image.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
        return np.stack([enlarged] * 3, axis=-1)
