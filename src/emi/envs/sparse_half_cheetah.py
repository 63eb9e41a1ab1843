"""SparseHalfCheetah: a planar cheetah with a reward only at more than 5 m from its start.

Observation (20): 8 joint positions (all except x), 9 joint velocities, the centre of mass (x, y, z)
of the whole animal after the step. Reward: 1 while |x of the centre of mass| > 5, else 0. An action
lasts one simulation step of 0.01 s. An episode has 500 steps and no other end (EMI, section 5). The
model is Gymnasium's half_cheetah.xml.
"""

import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from emi.envs.episodes import Array, Outcome
from emi.envs.mujoco_env import MujocoEnv, MujocoVectorEnv
from emi.envs.rendering import Marker

HORIZON = 500
REWARD_BEYOND = 5.0  # metres from the start
TOTAL_MASS = 14.0  # kg; the value of settotalmass in the file

# Both chains start at the torso. Angles add up along a chain, because all hinges turn about y.
CHAINS = (("torso", "bthigh", "bshin", "bfoot"), ("torso", "fthigh", "fshin", "ffoot"))

# Columns of a row of simulator state: time, then 9 positions, then 9 velocities.
POSITIONS, OBSERVED = 1, slice(2, 19)
ROOT_XZ = slice(1, 3)

CAMERA_DISTANCE = 4.5

# They show the rewarded region: a gate at x = ±5, and green ground behind it.
REWARD_MARKERS = tuple(
    marker
    for side in (-1, 1)
    for marker in (
        Marker((side * REWARD_BEYOND, 0.0, 0.6), (0.02, 1.0, 0.6), (0.1, 0.8, 0.2, 0.5)),
        Marker((side * (REWARD_BEYOND + 15.0), 0.0, 0.0), (15.0, 1.0, 0.004), (0.1, 0.8, 0.2, 0.3)),
    )
)


def load_model() -> mujoco.MjModel:
    """Gymnasium's half cheetah of 14 kg, with options that make a step a pure function.

    The file sets its total mass with `settotalmass`, which MuJoCo will remove and warns about on
    stderr and in a log file. Scaling the density of every geom gives the same masses.
    """
    path = files("gymnasium") / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    tree = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    for compiler in tree.iter("compiler"):
        compiler.attrib.pop("settotalmass", None)
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(tree, encoding="unicode"))
    scale = TOTAL_MASS / spec.compile().body_subtreemass[0]
    for geom in spec.geoms:
        geom.density *= scale
    model = spec.compile()
    model.opt.disableflags |= int(
        # The solver keeps no state between steps: the result does not depend on earlier steps, nor
        # on other environments that used the same scratch memory.
        mujoco.mjtDisableBit.mjDSBL_WARMSTART
        # One animal is one island; searching for more changes no bit and costs 5 %.
        | mujoco.mjtDisableBit.mjDSBL_ISLAND
        # MuJoCo would reset a diverged simulation silently; the caller must see it.
        | mujoco.mjtDisableBit.mjDSBL_AUTORESET
    )
    return model


def com_arms(model: mujoco.MjModel) -> Array:
    """Constants K [2, 2, 8]: the centre of mass is linear in cosines and sines with these weights.

    The contribution of a planar body to the centre of mass rotates with the body's own angle. Its
    arm is (m_b · own centre of mass + Σ_children subtree mass · child's position) / total mass.
    Axes: (cos, sin), (x, z), link of the two chains. The torso is in both and counts half in each.
    """
    torso = model.body("torso").id
    total = model.body_subtreemass[torso]
    arms = model.body_mass[:, None] * model.body_ipos / total
    for child in range(torso + 1, model.nbody):
        hangs = model.body_subtreemass[child] * model.body_pos[child] / total
        arms[model.body_parentid[child]] += hangs
    x, z = arms[[model.body(name).id for chain in CHAINS for name in chain]][:, [0, 2]].T
    x[[0, 4]] /= 2
    z[[0, 4]] /= 2
    # A rotation by θ about y maps (x, z) to (x cos θ + z sin θ, z cos θ − x sin θ).
    return np.array([[x, z], [z, -x]])


def hinge_columns(model: mujoco.MjModel) -> npt.NDArray[np.intp]:
    """Columns of the simulator state that hold the angles along the two chains [2, 4]."""
    hinges = [["rooty" if body == "torso" else body for body in chain] for chain in CHAINS]
    return np.array(
        [[POSITIONS + model.joint(name).qposadr[0] for name in chain] for chain in hinges]
    )


def centre_of_mass(state: Array, hinges: npt.NDArray[np.intp], arms: Array, start: Array) -> Array:
    """Centre of mass (x, z) of every environment [n, 2] from simulator states [n, 19].

    `start` [n, 2] is the position of the torso if all joint positions are 0. MuJoCo's `subtree_com`
    lags one step behind, and updating it costs a Python call per environment; this is the same
    point in closed form. Each row is computed on its own, so its bits do not depend on the number
    of rows.
    """
    angles = np.add.accumulate(state.take(hinges, axis=1), axis=2).reshape(-1, 1, 8)
    com = np.vecdot(np.cos(angles), arms[0])
    com += np.vecdot(np.sin(angles), arms[1])
    com += state[:, ROOT_XZ]
    com += start
    return com


def sparse_reward(torso_x: Array) -> Array:
    """1 where the centre of mass is more than 5 m from x = 0, else 0."""
    return (np.abs(torso_x) > REWARD_BEYOND).astype(np.float64)


class SparseHalfCheetahVectorEnv(MujocoVectorEnv):
    """`num_envs` cheetahs, stepped together."""

    substeps = 1
    # Waking a thread pool costs as much as ten physics steps. On two shared cores, a vector step of
    # 10 environments took 60 to 75 µs in the calling thread and 85 to 185 µs in a pool of two
    # threads; of 64 environments, 370 to 725 µs and 400 to 450 µs.
    envs_per_thread = 16

    def __init__(
        self, num_envs: int = 1, threads: int | None = None, max_episode_steps: int | None = HORIZON
    ) -> None:
        """`threads` limits the pool (default: all cores); `max_episode_steps` may be None."""
        # MuJoCo calls a simulation beyond mjMAXVAL unstable.
        observed = spaces.Box(-mujoco.mjMAXVAL, mujoco.mjMAXVAL, (20,), np.float32)
        super().__init__(load_model(), num_envs, observed, max_episode_steps, threads)
        self._arms = com_arms(self.model)
        self._hinges = hinge_columns(self.model)
        self._start_xz = np.tile(self.model.body("torso").pos[[0, 2]], (num_envs, 1))
        self._com = np.zeros((num_envs, 2))

    @property
    def torso_x(self) -> Array:
        """x of each animal's centre of mass, in metres [num_envs]."""
        return self._com[:, 0].copy()

    def _advance(self, actions: Array) -> Outcome:
        """One simulation step with actions [num_envs, 6]."""
        self._simulate(actions[:, None])
        obs = self._observe()
        never = np.zeros(self.num_envs, dtype=np.bool_)
        return Outcome(obs, sparse_reward(self._com[:, 0]), never, {})

    def _observe(self) -> npt.NDArray[np.float32]:
        """Observations [num_envs, 20] of the current state; a diverged one is returned as it is."""
        obs = np.zeros((self.num_envs, 20), dtype=np.float32)
        with np.errstate(all="ignore"):
            self._com = centre_of_mass(self._state, self._hinges, self._arms, self._start_xz)
            obs[:, :17] = self._state[:, OBSERVED]
            obs[:, 17::2] = self._com  # y of the centre of mass is always 0
        return obs


class SparseHalfCheetahEnv(MujocoEnv):
    """One cheetah as a single Gymnasium environment that can be rendered."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 100}  # noqa: RUF012
    frame_shape = (384, 640)
    _envs: SparseHalfCheetahVectorEnv

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(SparseHalfCheetahVectorEnv(), render_mode)

    @property
    def torso_x(self) -> float:
        """x of the centre of mass, in metres."""
        return float(self._envs.torso_x[0])

    def _view(self) -> tuple[mujoco.MjvCamera, tuple[Marker, ...]]:
        """A view along y that follows the animal."""
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        camera.trackbodyid = self._envs.model.body("torso").id
        camera.azimuth, camera.elevation, camera.distance = 90.0, -12.0, CAMERA_DISTANCE
        return camera, REWARD_MARKERS
