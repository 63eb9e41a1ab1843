"""Off-screen rendering of MuJoCo simulations.

MuJoCo's own Renderer reads MUJOCO_GL when mujoco is first imported, and that import fails if the
OpenGL backend is missing. Here the backend is chosen when the first image is rendered. So a machine
without OpenGL can train, and a program that imported mujoco earlier can render.
"""

import atexit
import contextlib
import functools
import importlib
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

BACKENDS = ("egl", "osmesa", "glfw", "cgl")
NO_BACKEND = (
    "rendering needs an off-screen OpenGL: apt-get install libegl1 libegl-mesa0 libgl1, "
    "or apt-get install libosmesa6"
)


class Marker(NamedTuple):
    """A coloured box that is drawn and has no physical effect."""

    centre: tuple[float, float, float]
    half_size: tuple[float, float, float]
    rgba: tuple[float, float, float, float]


def rendering_backend() -> str:
    """Name of the OpenGL backend: egl, osmesa, glfw or cgl.

    Raises RuntimeError with what to install if none works.
    """
    return _backend()[0]


class OffscreenRenderer:
    """Renders simulations of one model to uint8 images [height, width, 3]."""

    def __init__(self, model: Any, height: int, width: int) -> None:
        import mujoco

        _, context_class = _backend()
        self._context = context_class(width, height)
        self._context.make_current()
        self._model = model
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        # Without a graphics card, shadows make a frame four times slower, reflections twice.
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._painter = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._painter)
        self._view = mujoco.MjrRect(0, 0, width, height)
        self._release = weakref.finalize(self, _release, self._context, self._painter)
        # OpenGL memory must be freed while its context exists, and mujoco closes its EGL display in
        # its own exit handler. Handlers run last in, first out, so this one runs before it.
        self._release.atexit = False
        atexit.register(self._release)

    def frame(
        self, data: Any, camera: Any, markers: Sequence[Marker] = ()
    ) -> npt.NDArray[np.uint8]:
        """The simulation `data` seen by `camera`, with `markers` added to the scene."""
        import mujoco

        self._context.make_current()
        mujoco.mjv_updateScene(
            self._model,
            data,
            mujoco.MjvOption(),
            None,
            camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        for marker in markers:
            geom = self._scene.geoms[self._scene.ngeom]
            mujoco.mjv_initGeom(
                geom,
                mujoco.mjtGeom.mjGEOM_BOX.value,
                np.array(marker.half_size),
                np.array(marker.centre),
                np.eye(3).reshape(-1),
                np.array(marker.rgba, dtype=np.float32),
            )
            geom.emission = 0.5  # the same colour from every side
            self._scene.ngeom += 1
        pixels = np.empty((self._view.height, self._view.width, 3), dtype=np.uint8)
        mujoco.mjr_render(self._view, self._scene, self._painter)
        mujoco.mjr_readPixels(pixels, None, self._view, self._painter)
        return pixels[::-1].copy()  # OpenGL counts rows from the bottom

    def close(self) -> None:
        """Free the OpenGL memory; may be called again."""
        self._release()


def _release(context: Any, painter: Any) -> None:
    context.make_current()
    painter.free()
    context.free()


def _candidates() -> list[str]:
    """Backends to try, best first: the one in MUJOCO_GL, else those that need no window."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in BACKENDS:
        return [asked]
    if sys.platform == "darwin":
        return ["cgl"]
    if sys.platform == "win32":
        return ["glfw"]
    return ["egl", "glfw", "osmesa"] if os.environ.get("DISPLAY") else ["egl", "osmesa"]


@functools.cache
def _backend() -> tuple[str, Any]:
    """The first backend that works, and its context class.

    A backend that fails leaves libraries behind with which no other one works, in the same process.
    So each is first tried in a process of its own, except if there is no choice.
    """
    # Software OpenGL makes the symbols of its LLVM global. Triton contains another LLVM and crashes
    # if it is loaded after that. CUDA builds of torch load Triton with the first optimizer.
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")
    names = _candidates()
    reason = ""
    for name in names:
        tried = _tried_elsewhere(name) if len(names) > 1 else ""
        if not tried:
            try:
                return name, _working_context_class(name)
            # If a library is missing, PyOpenGL and glfw raise ImportError, AttributeError,
            # TypeError or their own errors.
            except Exception as error:
                tried = str(error)
        reason = f"{name}: {tried}"
    raise RuntimeError(f"{NO_BACKEND} ({reason}).")


def _tried_elsewhere(name: str) -> str:
    """Try a backend in another process; return what it complains about, empty if it works."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, name], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _working_context_class(name: str) -> Any:
    """The context class of a backend, after an empty rendering as a test."""
    import mujoco

    context_class = importlib.import_module(f"mujoco.{name}").GLContext
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    context = context_class(16, 16)
    context.make_current()
    _release(context, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value))
    return context_class


if __name__ == "__main__":
    _working_context_class(sys.argv[1])
