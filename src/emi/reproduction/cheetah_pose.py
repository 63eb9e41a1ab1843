"""The limbs of the half cheetah in the plane, computed from its observations.

Gymnasium ships the model, so that a recorded episode can be drawn without a simulator.
"""

import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from emi.batch import FloatArray

# Columns of an observation of SparseHalfCheetah: height, then 7 angles; x of the centre of mass.
HEIGHT, ANGLES, CENTRE_X = 0, slice(1, 8), 17


class Limb(NamedTuple):
    """A capsule: the body that it belongs to, and its ends in the frame of that body."""

    name: str
    body: int
    ends: FloatArray  # [2, 2]: from and to, (x, z)
    radius: float

    @property
    def volume(self) -> float:
        length = float(np.linalg.norm(self.ends[1] - self.ends[0]))
        return float(np.pi * self.radius**2 * (length + 4 / 3 * self.radius))


class Skeleton(NamedTuple):
    """The bodies in the order of their angles, and the limbs of all of them."""

    parents: list[int]  # of each body; -1 for the torso
    places: FloatArray  # [bodies, 2]: the hinge in the frame of the parent
    limbs: list[Limb]

    def pose(self, obs: FloatArray) -> FloatArray:
        """Observations [n, 20] to the ends of all limbs in the simulation, [n, limbs, 2, 2]."""
        n = len(obs)
        angle, place = np.zeros((len(self.parents), n)), np.zeros((len(self.parents), n, 2))
        for body, parent in enumerate(self.parents):
            angle[body] = obs[:, ANGLES][:, body]
            place[body] = self.places[body]
            if parent < 0:
                place[body, :, 1] += obs[:, HEIGHT]
            else:
                angle[body] += angle[parent]
                place[body] = place[parent] + rotated(self.places[body], angle[parent])
        ends = [
            place[limb.body][:, None] + rotated(limb.ends, angle[limb.body][:, None])
            for limb in self.limbs
        ]
        scene = np.stack(ends, axis=1)
        scene[..., 0] += (obs[:, CENTRE_X] - self.centre(scene)[:, 0])[:, None, None]
        return scene

    def centre(self, pose: FloatArray) -> FloatArray:
        """The centre of mass [n, 2] of a pose [n, limbs, 2, 2]: all limbs have the same density."""
        volumes = np.array([limb.volume for limb in self.limbs])
        return np.asarray(np.einsum("nlc,l->nc", pose.mean(axis=2), volumes / volumes.sum()))


def rotated(points: FloatArray, angle: FloatArray) -> FloatArray:
    """Points (x, z) turned about the y axis; shapes [..., 2] and [...] are broadcast."""
    x, z = points[..., 0], points[..., 1]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([x * cos + z * sin, z * cos - x * sin], axis=-1)


def load_skeleton() -> Skeleton:
    path = files("gymnasium") / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    torso = ElementTree.fromstring(path.read_text(encoding="utf-8")).find("worldbody/body")
    assert torso is not None, "the model has a torso"
    skeleton = Skeleton([], np.zeros((0, 2)), [])
    return _add(skeleton, torso, parent=-1)


def _add(skeleton: Skeleton, body: ElementTree.Element, parent: int) -> Skeleton:
    number = len(skeleton.parents)
    places = np.vstack([skeleton.places, _numbers(body, "pos")[[0, 2]]])
    limbs = [_limb(geom, number) for geom in body.findall("geom")]
    skeleton = Skeleton([*skeleton.parents, parent], places, [*skeleton.limbs, *limbs])
    for child in body.findall("body"):
        skeleton = _add(skeleton, child, number)
    return skeleton


def _limb(geom: ElementTree.Element, body: int) -> Limb:
    size = _numbers(geom, "size")
    if "fromto" in geom.attrib:
        ends = _numbers(geom, "fromto").reshape(2, 3)[:, [0, 2]]
    else:
        # A capsule lies along z before it is turned about y.
        along = rotated(np.array([0.0, size[1]]), _numbers(geom, "axisangle")[3])
        ends = _numbers(geom, "pos")[[0, 2]] + np.stack([-along, along])
    return Limb(geom.attrib["name"], body, ends, float(size[0]))


def _numbers(element: ElementTree.Element, name: str) -> FloatArray:
    return np.array(element.attrib[name].split(), dtype=np.float64)
