"""BoxImage: a disc in a box, seen from above, for looking at what an embedding learns of an image.

The true state is a position x in [0, 100]², which an action a in [−1, 1]² moves:
x ← min(max(x + a, 0), 100). Only its picture is observed: a white disc on black, 1×52×52. An
episode starts uniformly among the points with ‖x‖ ≥ 75. `info["position"]` tells the truth (EMI,
section 5.5 and supplementary section 7). The paper describes neither a reward nor an end: the
reward is 0, and an episode lasts 500 steps.
"""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Array = npt.NDArray[np.float64]
Image = npt.NDArray[np.uint8]

BOX = 100.0
START_BEYOND = 75.0  # distance from the corner (0, 0)

# Not published. As on the paper's other continuous worlds, and short enough for the starts to
# show in a batch: a random walk covers some 20 units in that time.
HORIZON = 500
NEVER = np.iinfo(np.int64).max

SIDE = 52  # pixels

# Not published. The disc is as wide as the first convolution of the paper's networks (8×8) looks.
RADIUS = 4  # pixels

# The picture is the box: at x = 0 and x = 100 the disc touches a wall and is never cut, so that
# equal steps look alike everywhere.
SCALE = (SIDE - 2 * RADIUS) / BOX  # pixels per unit of x

# Pixels that the disc can light, along one axis, around the one that holds its centre.
REACH = np.arange(-RADIUS, RADIUS + 1)

ENLARGED = 8  # to 416 pixels, a multiple of 16, as video encoders want it


def draw_discs(position: Array) -> Image:
    """Pictures [n, 1, 52, 52] of discs at positions [n, 2]: x₀ to the right, x₁ upwards.

    A pixel's brightness falls from white to black while its centre's distance d from the disc's
    centre grows by one pixel: min(max(RADIUS + ½ − d, 0), 1). An action moves the disc by 0.44
    pixels along an axis, or less. With such soft edges every step of 0.01 changes the picture;
    with hard ones half the steps of 0.1 would not, and with the centre rounded to a pixel 6 of 10
    random actions.
    """
    centre = RADIUS + SCALE * position
    centre[:, 1] = SIDE - centre[:, 1]  # rows are counted from above
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
    """A point [2] of the box, uniform among those with ‖x‖ ≥ 75; 1.8 attempts on average."""
    while True:
        position = stream.uniform(0.0, BOX, 2)
        if math.hypot(*position) >= START_BEYOND:
            return position


class BoxImageVectorEnv(VectorEnv[Image, npt.NDArray[Any], Any]):
    """`num_envs` boxes, moved and drawn together.

    An environment that ends is reset within the same step: the returned observation is the first
    of the next episode, `info["final_obs"][i]` the last of the ended one; so with
    `info["position"]` [num_envs, 2] and `info["final_info"]["position"]`. Results depend on the
    seed and the actions only, and for one environment not on its neighbours.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = HORIZON) -> None:
        """`max_episode_steps=None` never ends."""
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._position = np.zeros((num_envs, 2))
        self._streams: list[np.random.Generator] = []

        # Episodes end by the clock: one comparison of two numbers tells whether any does.
        self._max_episode_steps = max_episode_steps
        self._clock = 0
        self._deadlines = np.full(num_envs, NEVER)
        self._next_deadline = NEVER

    @property
    def position(self) -> Array:
        """Where each agent is [num_envs, 2]."""
        return self._position.copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Start new episodes, in all environments or where `options["reset_mask"]` is true.

        A seed gives every environment its own stream, the same whatever `num_envs` is; without
        one the streams go on.
        """
        super().reset(seed=seed)
        if seed is not None or not self._streams:
            children = np.random.SeedSequence(seed).spawn(self.num_envs)
            self._streams = [np.random.default_rng(child) for child in children]
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        if np.shape(mask) != (self.num_envs,):
            raise ValueError(
                f"reset_mask needs one boolean per environment ({self.num_envs}), "
                f"got shape {np.shape(mask)}."
            )
        self._start_episodes(np.flatnonzero(mask))
        return draw_discs(self._position), self._info()

    def step(
        self, actions: npt.NDArray[Any]
    ) -> tuple[Image, Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Advance all environments by one action each; actions [num_envs, 2] are clipped to ±1."""
        if not self._streams:
            raise gym.error.ResetNeeded("call reset() before the first step().")
        actions = np.asarray(actions, dtype=np.float64)
        if actions.shape != self._position.shape:
            raise ValueError(
                f"actions must have shape {self._position.shape}, got {actions.shape}."
            )
        if np.isnan(actions).any():
            raise ValueError("actions must be numbers, got NaN.")
        self._position += np.clip(actions, -1.0, 1.0)
        np.clip(self._position, 0.0, BOX, out=self._position)
        obs = draw_discs(self._position)
        reward = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        final: dict[str, Any] = {}
        self._clock += 1
        if self._clock >= self._next_deadline:
            truncated = self._deadlines <= self._clock
            ended = np.flatnonzero(truncated)
            final_obs = np.full(self.num_envs, None, dtype=object)
            for i in ended:
                final_obs[i] = obs[i]
            final = {
                "final_obs": final_obs,
                "_final_obs": truncated.copy(),
                "final_info": {
                    "position": np.where(truncated[:, None], self._position, 0.0),
                    "_position": truncated.copy(),
                },
                "_final_info": truncated.copy(),
            }
            self._start_episodes(ended)
            obs = draw_discs(self._position)
        return obs, reward, terminated, truncated, final | self._info()

    def _start_episodes(self, indices: npt.NDArray[np.intp]) -> None:
        for i in indices:
            self._position[i] = draw_start(self._streams[i])
        if self._max_episode_steps is not None:
            self._deadlines[indices] = self._clock + self._max_episode_steps
            self._next_deadline = int(self._deadlines.min())

    def _info(self) -> dict[str, Any]:
        """Positions in Gymnasium's form: an array, and a mask of the environments it is true of."""
        return {"position": self.position, "_position": np.ones(self.num_envs, dtype=np.bool_)}


class BoxImageEnv(gym.Env[Image, npt.NDArray[Any]]):
    """One box behind Gymnasium's single-environment interface, and pictures of it.

    It is environment 0 of a `BoxImageVectorEnv` with the same seed, bit by bit.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, max_episode_steps: int = HORIZON) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
        self.render_mode = render_mode
        # The end of an episode must not draw the next start by itself: reset() does.
        self._world = BoxImageVectorEnv(num_envs=1, max_episode_steps=None)
        self.observation_space = self._world.single_observation_space
        self.action_space = self._world.single_action_space
        self._max_episode_steps = max_episode_steps
        self._elapsed = 0

    @property
    def position(self) -> Array:
        """Where the agent is [2]."""
        return self._world.position.reshape(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Start a new episode; a seed starts a new random stream too."""
        super().reset(seed=seed)
        self._elapsed = 0
        obs, _ = self._world.reset(seed=seed)
        return obs[0], {"position": self.position}

    def step(self, action: npt.NDArray[Any]) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Advance by one action [2], clipped to ±1."""
        obs, reward, _, _, _ = self._world.step(np.asarray(action)[None])
        self._elapsed += 1
        truncated = self._elapsed >= self._max_episode_steps
        return obs[0], float(reward[0]), False, truncated, {"position": self.position}

    def render(self) -> Image | None:
        """What the agent sees, enlarged [416, 416, 3], or None without a render mode."""
        if self.render_mode is None:
            return None
        image = draw_discs(self._world.position)[0, 0]
        enlarged = image.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
        return np.stack([enlarged] * 3, axis=-1)
