"""SwimmerGather: a swimmer of three links that collects apples and avoids bombs.

Observation (33): 5 joint positions, 5 joint velocities, the centre of mass (x, y, z) of the animal
after the step, 10 sensor readings of apples, 10 of bombs. Reward: +1 for each apple and −1 for each
bomb that comes nearer than 1 m to the centre of mass, and nothing else. An action lasts 0.05 s. An
episode ends when no object is left, at the latest after 500 steps (EMI, section 5). The numbers are
those of rllab's SwimmerGatherEnv.
"""

import math
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from emi.envs.episodes import Array, Mask, Outcome
from emi.envs.mujoco_env import MujocoEnv, MujocoVectorEnv
from emi.envs.rendering import Marker

HORIZON = 500
SUBSTEPS = 50  # simulation steps per action

APPLES, BOMBS = 8, 8
CATCH_RADIUS = 1.0
BINS = 10
SENSOR_RANGE = 6.0
SENSOR_SPAN = math.pi

# Possible positions of objects [35, 2]: a grid of 2 m, at least 2 m from the origin. As in rllab,
# it ends at 4, because its upper end is exclusive.
CELLS = np.array(
    [(x, y) for x in range(-6, 6, 2) for y in range(-6, 6, 2) if math.hypot(x, y) >= 2], np.float64
)

# Contacts and warm start are off as in rllab, where not even the walls collide. So a simulation
# step is a pure function of the state and does not depend on earlier uses of the scratch memory.
# Autoreset is off because MuJoCo would reset a diverged simulation silently; the caller must see
# it. A gear of 50 with control in ±1 gives the torques of rllab's gear of 1 with control in ±50.
SWIMMER = """
<mujoco model="swimmer">
  <option timestep="0.001" density="4000" viscosity="0.1" integrator="Euler">
    <flag contact="disable" warmstart="disable" autoreset="disable"/>
  </option>
  <default>
    <geom type="capsule" size="0.1" density="1000" rgba="0.9 0.6 0.2 1"/>
    <joint type="hinge" axis="0 0 1" range="-100 100"/>
    <motor gear="50" ctrllimited="true" ctrlrange="-1 1"/>
  </default>
  <asset>
    <texture name="water" type="2d" builtin="checker" rgb1="0.16 0.24 0.34" rgb2="0.2 0.29 0.4"
             width="256" height="256"/>
    <material name="water" texture="water" texrepeat="0.5 0.5" texuniform="true"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 5" dir="0 0 -1" diffuse="0.6 0.6 0.6" specular="0 0 0"/>
    <geom name="floor" type="plane" pos="0 0 -0.1" size="20 20 1" material="water" rgba="1 1 1 1"/>
    <body name="torso">
      <joint name="x" type="slide" axis="1 0 0" limited="false"/>
      <joint name="y" type="slide" axis="0 1 0" limited="false"/>
      <joint name="heading" limited="false"/>
      <geom name="torso" fromto="1.5 0 0 0.5 0 0" rgba="1 0.9 0.4 1"/>
      <body name="mid" pos="0.5 0 0">
        <joint name="mid" limited="true"/>
        <geom name="mid" fromto="0 0 0 -1 0 0"/>
        <body name="back" pos="-1 0 0">
          <joint name="back" limited="true"/>
          <geom name="back" fromto="0 0 0 -1 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="mid"/>
    <motor joint="back"/>
  </actuator>
</mujoco>
"""

# Columns of a row of simulator state: time, then 5 positions, then 5 velocities.
ROOT_XY, HINGES, HEADING = slice(1, 3), slice(3, 6), 3

# The contribution of each link to the centre of mass, along its own direction. A third of the mass
# lies at its middle (1, −1/2, −1/2 m from its joint), and the links behind it are attached at 1/2
# and −1 m: 1/3 · 1 + 2/3 · 1/2, 1/3 · −1/2 + 1/3 · −1, 1/3 · −1/2.
COM_ARMS = np.array([2 / 3, -1 / 2, -1 / 6])

CAMERA_DISTANCE = 18.5
APPLE_RGBA, BOMB_RGBA = (0.1, 0.8, 0.2, 1.0), (0.9, 0.1, 0.1, 1.0)

# The walls of the arena at rllab's distance; they are drawn and have no physical effect.
WALLS = tuple(
    Marker(centre, half_size, (0.3, 0.33, 0.36, 1.0))
    for side in (-7.0, 7.0)
    for centre, half_size in (
        ((side, 0.0, 0.0), (0.5, 7.5, 0.1)),
        ((0.0, side, 0.0), (7.5, 0.5, 0.1)),
    )
)


def centre_of_mass(state: Array) -> Array:
    """Centre of mass (x, y) of every animal [n, 2] from simulator states [n, 11].

    MuJoCo's `subtree_com` lags one step behind, and updating it costs a Python call per
    environment; this is the same point in closed form. Each row is computed on its own, so its bits
    do not depend on the number of rows.
    """
    angles = np.add.accumulate(state[:, HINGES], axis=1)
    com = np.empty((len(state), 2))
    np.vecdot(np.cos(angles), COM_ARMS, out=com[:, 0])
    np.vecdot(np.sin(angles), COM_ARMS, out=com[:, 1])
    com += state[:, ROOT_XY]
    return com


def within_reach(objects: Array, com: Array) -> Mask:
    """[n, 16]: which objects [n, 16, 2] are nearer than 1 m to the centre of mass."""
    offset = objects - com[:, None]
    return np.vecdot(offset, offset) < CATCH_RADIUS**2


def sensor_readings(objects: Array, left: Mask, com: Array, heading: Array) -> Array:
    """Sensor readings [n, 20]: ten bins of apples, then ten of bombs.

    The bins cover half a turn from right to left around `heading` [n], as seen from the centre of
    mass. The reading of a bin is 1 − distance / 6 of the nearest object of its kind that is still
    `left` [n, 16]; 0 if there is none within 6 m.
    """
    offset = objects - com[:, None]
    distance = np.sqrt(np.vecdot(offset, offset))
    from_right = np.arctan2(offset[..., 1], offset[..., 0]) - heading[:, None] + SENSOR_SPAN / 2
    from_right %= 2 * math.pi
    env, slot = np.nonzero(left & (from_right <= SENSOR_SPAN))
    bins = (from_right[env, slot] * (BINS / SENSOR_SPAN)).astype(np.intp)
    bins = np.minimum(bins, BINS - 1)  # exactly left; rllab raises an index error
    readings = np.zeros((len(objects), 2, BINS))  # 0 also for objects beyond the range
    np.maximum.at(readings, (env, slot // APPLES, bins), 1 - distance[env, slot] / SENSOR_RANGE)
    return readings.reshape(-1, 2 * BINS)


class SwimmerGatherVectorEnv(MujocoVectorEnv):
    """`num_envs` swimmers, stepped together.

    `info["apples"]` and `info["bombs"]` [num_envs] count the objects caught in the step, also in
    environments that ended in it.
    """

    substeps = SUBSTEPS
    # A step of one environment takes 0.11 ms, and a pool costs 0.01 ms per step even if its threads
    # share a core: each environment may have a thread.
    envs_per_thread = 1

    def __init__(
        self, num_envs: int = 1, threads: int | None = None, max_episode_steps: int | None = HORIZON
    ) -> None:
        """`threads` limits the pool (default: all cores); `max_episode_steps` may be None."""
        # MuJoCo calls a simulation beyond mjMAXVAL unstable.
        high = np.repeat([mujoco.mjMAXVAL, 1.0], [13, 2 * BINS]).astype(np.float32)
        low = np.repeat([-mujoco.mjMAXVAL, 0.0], [13, 2 * BINS]).astype(np.float32)
        observed = spaces.Box(low, high, dtype=np.float32)
        model = mujoco.MjModel.from_xml_string(SWIMMER)
        super().__init__(model, num_envs, observed, max_episode_steps, threads)
        self._controls = np.zeros((num_envs, SUBSTEPS, 2))
        self._com = np.zeros((num_envs, 2))
        # Apples in the first 8 places, bombs in the others.
        self._objects = np.zeros((num_envs, APPLES + BOMBS, 2))
        self._left = np.zeros((num_envs, APPLES + BOMBS), dtype=np.bool_)

    def _start(self, index: int, stream: np.random.Generator) -> None:
        self._objects[index] = stream.choice(CELLS, APPLES + BOMBS, replace=False)
        self._left[index] = True
        super()._start(index, stream)
        self._com[index] = centre_of_mass(self._state[[index]])

    def _advance(self, actions: Array) -> Outcome:
        """Apply the actions [num_envs, 2] and catch objects."""
        self._controls[:] = actions[:, None]
        self._simulate(self._controls)
        self._state[:] = self._states[:, -1]
        with np.errstate(all="ignore"):
            self._com = centre_of_mass(self._state)
            caught = self._left & within_reach(self._objects, self._com)
        self._left &= ~caught
        apples, bombs = caught[:, :APPLES].sum(axis=1), caught[:, APPLES:].sum(axis=1)
        reward = (apples - bombs).astype(np.float64)
        none_left = np.logical_not(self._left.any(axis=1))
        return Outcome(self._observe(), reward, none_left, {"apples": apples, "bombs": bombs})

    def _observe(self) -> npt.NDArray[np.float32]:
        """Observations [num_envs, 33] of the current state; a diverged one is returned as it is."""
        obs = np.empty((self.num_envs, 33), dtype=np.float32)
        with np.errstate(all="ignore"):
            obs[:, :10] = self._state[:, 1:]
            obs[:, 10:12] = self._com
            obs[:, 12] = 0.0  # z of the centre of mass is always 0
            heading = self._state[:, HEADING]
            obs[:, 13:] = sensor_readings(self._objects, self._left, self._com, heading)
        return obs


class SwimmerGatherEnv(MujocoEnv):
    """One swimmer as a single Gymnasium environment that can be rendered.

    The info counts the apples and bombs caught in a step.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    frame_shape = (480, 480)
    _envs: SwimmerGatherVectorEnv

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(SwimmerGatherVectorEnv(), render_mode)

    def _view(self) -> tuple[mujoco.MjvCamera, list[Marker]]:
        """The arena from above, x to the right and y upwards, with walls and remaining objects."""
        camera = mujoco.MjvCamera()
        camera.azimuth, camera.elevation, camera.distance = 90.0, -90.0, CAMERA_DISTANCE
        drawn = list(WALLS)
        for slot in np.flatnonzero(self._envs._left[0]):
            x, y = self._envs._objects[0, slot].tolist()
            rgba = APPLE_RGBA if slot < APPLES else BOMB_RGBA
            drawn.append(Marker((x, y, 0.0), (0.25, 0.25, 0.1), rgba))
        return camera, drawn
