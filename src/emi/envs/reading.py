"""How networks read the observations of a `gym:` environment: as an image, or as one vector."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from emi.errors import FAILED, UserError
from emi.spaces import choose_entry, readable


def as_vector_or_image(
    env: gymnasium.Env, observation: str | None = None, name: str = "the environment"
) -> gymnasium.Env:
    """Wrap `env` so that its observations are an image or one vector: see `emi.spaces.readable`.

    `observation` is the key of the entry that is read. Vectors of floats and images are left as
    they are. `name` is what errors call the environment.
    """
    wrapped = ReadObservation(env, observation, name)
    return env if wrapped.observation_space is env.observation_space else wrapped


class ReadObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations as `emi.spaces.readable` reads them, of all entries or of one."""

    def __init__(
        self,
        env: gymnasium.Env,
        observation: str | None = None,
        name: str = "the environment",
    ) -> None:
        super().__init__(env)
        self._name = name
        self._space = _space_of(env)
        self._pick = None
        if observation is not None:
            self._space, self._pick = choose_entry(self._space, observation)
        found = readable(self._space)
        self._read = found.read
        self.observation_space = found.box
        self.left_out = found.left_out
        """entries that hold text, by their dotted keys"""

    def observation(self, observation: Any) -> Any:
        try:
            own = observation if self._pick is None else self._pick(observation)
            read = self._read(own)
        except UserError as error:
            raise self._wrong(str(error)) from None
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._wrong(f"{type(error).__name__}: {error}") from error
        if read.shape != self.observation_space.shape:
            raise self._wrong(f"it has {read.size} entries, not {self.observation_space.shape}")
        return read

    def _wrong(self, reason: str) -> UserError:
        sentence = f"{self._name} returned an observation that is not in its space {self._space}"
        return UserError(f"{sentence}: {reason}", FAILED)


def _space_of(env: gymnasium.Env) -> gymnasium.Space:
    """The observation space, with the bounds that its values have."""
    if "minigrid" not in sys.modules:
        return env.observation_space
    from minigrid.minigrid_env import MiniGridEnv

    return _grid_space(env) if isinstance(env.unwrapped, MiniGridEnv) else env.observation_space


# MiniGrid declares all its observations as bytes from 0 to 255. Scaled by these bounds, its values
# would all be near −1.
def _grid_space(env: gymnasium.Env) -> gymnasium.Space:
    """The space of a MiniGrid environment with the largest object, colour and state of a cell."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    grid: Any = env.unwrapped
    view = env.get_wrapper_attr("agent_view_size")
    objects, colours, states = max(OBJECT_TO_IDX.values()), max(COLOR_TO_IDX.values()), 3
    # An image of cells, not of pixels; FullyObsWrapper stores the direction, 0 to 3, as a state.
    cells = ((view, view), (grid.width, grid.height))

    def bounded(space: gymnasium.Space) -> gymnasium.Space:
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
            return space
        high: Any = None
        if len(space.shape) == 1:  # FlatObsWrapper: cells and a one-hot mission
            high = objects
        elif space.shape[:2] in cells and space.shape[2:] == (3,):
            high = [objects, colours, states]
        elif space.shape[:2] in cells:  # OneHotPartialObsWrapper
            high = 1
        if high is None:
            return space
        return spaces.Box(0, np.broadcast_to(np.uint8(high), space.shape), dtype=np.uint8)

    space = env.observation_space
    if isinstance(space, spaces.Dict):
        return spaces.Dict(OrderedDict((key, bounded(part)) for key, part in space.items()))
    return bounded(space)
