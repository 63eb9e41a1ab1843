"""CartPoleSwingUp: swing a hanging pole up by moving its cart, rewarded only near the top.

The cart and the pole are those of Gymnasium's CartPole, with a continuous force and integrated by
semi-implicit Euler. The pole starts hanging. The reward is 1 in every step that ends with
cos θ > 0.8, where θ is the angle from the upright position, and 0 otherwise, as in the sparse task
of VIME (Houthooft et al., 2016). An episode ends where the cart leaves the track.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from emi.envs.episodes import Array, EpisodicEnv, EpisodicVectorEnv, Outcome

Image = npt.NDArray[np.uint8]

# Gymnasium's CartPole-v1.
GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, TRACK = 9.8, 1.0, 0.1, 0.5, 10.0, 2.4
TIME_STEP = 0.02  # seconds

NEAR_THE_TOP = 0.8  # cos θ (VIME)
START_NOISE = 0.05  # largest deviation of each entry of the state at the start
HORIZON = 500  # as in the paper's other tasks

SIDE, METRE, THICK = 192, 36.0, 3.0  # of the picture, in pixels


def accelerations(state: Array, force: Array) -> tuple[Array, Array]:
    """ẍ and θ̈ [n] of states (x, ẋ, θ, θ̇) [n, 4] under forces [n] (Barto, Sutton, Anderson, 1983).

    θ̈ = (g sin θ − cos θ · p) / (l (4/3 − m cos² θ / M)),  ẍ = p − m l θ̈ cos θ / M,
    p = (F + m l θ̇² sin θ) / M, where M is the mass of cart and pole, m that of the pole.
    """
    _, _, angle, spin = state.T
    cos, sin, total = np.cos(angle), np.sin(angle), CART_MASS + POLE_MASS
    push = (force + POLE_MASS * HALF_LENGTH * spin**2 * sin) / total
    lever = HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / total)
    turning = (GRAVITY * sin - cos * push) / lever
    return push - POLE_MASS * HALF_LENGTH * turning * cos / total, turning


class CartPoleSwingUpVectorEnv(EpisodicVectorEnv):
    """`num_envs` carts, computed together; observations (x, ẋ, cos θ, sin θ, θ̇)."""

    def __init__(
        self, num_envs: int = 1, threads: int | None = None, max_episode_steps: int | None = HORIZON
    ) -> None:
        """`threads` has no effect; `max_episode_steps=None`: no time limit."""
        seen = spaces.Box(-np.inf, np.inf, (5,), np.float32)
        super().__init__(num_envs, seen, spaces.Box(-1.0, 1.0, (1,), np.float32), max_episode_steps)
        self._state = np.zeros((num_envs, 4))

    @property
    def state(self) -> Array:
        """(x, ẋ, θ, θ̇) of every cart, [num_envs, 4]."""
        return self._state.copy()

    def _start(self, index: int, stream: np.random.Generator) -> None:
        noise = stream.uniform(-START_NOISE, START_NOISE, 4)
        self._state[index] = np.array([0.0, 0.0, np.pi, 0.0]) + noise

    def _advance(self, actions: Array) -> Outcome:
        """Push by actions [num_envs, 1], clipped to ±1, in units of 10 N."""
        force = FORCE * np.clip(actions[:, 0], -1.0, 1.0)
        acceleration, turning = accelerations(self._state, force)
        x, speed, angle, spin = self._state.T
        speed += TIME_STEP * acceleration
        spin += TIME_STEP * turning
        x += TIME_STEP * speed
        angle += TIME_STEP * spin
        off = np.abs(x) > TRACK
        reward = np.where(~off & (np.cos(angle) > NEAR_THE_TOP), 1.0, 0.0)
        return Outcome(self._observe(), reward, off, {})

    def _observe(self) -> npt.NDArray[Any]:
        x, speed, angle, spin = self._state.T
        return np.stack([x, speed, np.cos(angle), np.sin(angle), spin], 1).astype(np.float32)


def draw_cart(state: Array) -> Image:
    """A picture [192, 192, 3] of one state [4]: the track, the cart and the pole."""
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5
    right, up = (columns - SIDE / 2) / METRE, (SIDE / 2 - rows) / METRE  # metres
    x, _, angle, _ = state
    along = np.array([np.sin(angle), np.cos(angle)])
    far = np.clip((right - x) * along[0] + up * along[1], 0, 2 * HALF_LENGTH)
    from_pole = np.hypot(right - x - far * along[0], up - far * along[1])
    picture = np.full((SIDE, SIDE, 3), 255, np.uint8)
    picture[(np.abs(up) < 1 / METRE) & (np.abs(right) <= TRACK)] = (150, 150, 150)
    picture[(np.abs(up) < 0.15) & (np.abs(right - x) < 0.25)] = (40, 40, 40)
    top = np.cos(angle) > NEAR_THE_TOP
    picture[from_pole < THICK / METRE] = (0, 158, 115) if top else (213, 94, 0)
    return picture


class CartPoleSwingUpEnv(EpisodicEnv):
    """One cart as a single Gymnasium environment that can be rendered."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    _envs: CartPoleSwingUpVectorEnv

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(CartPoleSwingUpVectorEnv(), render_mode)

    def render(self) -> Image | None:
        """The cart, green near the top, or None without a render mode."""
        return None if self.render_mode is None else draw_cart(self._envs.state[0])
