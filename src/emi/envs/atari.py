"""Atari 2600 games with the paper's preprocessing: the newest four frames in grey, 52×52.

An action lasts four frames. An observation is the pixel-wise maximum of the last two, the whole
screen downsampled by area averaging. Rewards are the points of the game. An episode ends when the
game is over, at the latest after 4,500 actions; a lost life does not end it. Nothing is random:
there are no sticky actions, no random no-ops at the start, and FIRE is not pressed automatically
(EMI, section 5 and supplementary section 1; otherwise as in the authors' atari_wrappers.py). The
games come with ale-py.
"""

import os
from pathlib import Path
from typing import Any, cast

import ale_py
import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from emi.envs.episodes import last_of
from emi.errors import UserError, did_you_mean
from emi.images import FrameStack

Images = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

HORIZON = 4_500
FRAME_SKIP = 4
STACK = 4
SIZE = 52

# ale-py skips the last frame of an episode that it truncates itself. So it never truncates, and
# episodes are truncated here.
NO_FRAME_LIMIT = 2**30

# Any seed makes ale-py load the game again, and its value has no effect: see `start_games`.
LOAD_AGAIN = 0

# ale-py writes its autoreset mode into the metadata dictionary that all VectorEnv classes share, so
# that an environment without a declared mode would seem to have one. This gives it its own.
ale_py.AtariVectorEnv.metadata = {}


def rom_of(game: str) -> str:
    """The file name ale-py gives a game: "montezuma_revenge" for "MontezumaRevenge"."""
    registered = [spec for spec in gym.registry.values() if spec.namespace == "ALE"]
    roms: dict[str, str] = {spec.name: spec.kwargs["game"] for spec in registered}
    if game in roms:
        return roms[game]
    raise UserError(f"unknown Atari game {game!r}{did_you_mean(game, roms, ' in ale-py')}")


def load_games(game: str, num_envs: int, threads: int) -> ale_py.AtariVectorEnv:
    """Emulators that start no episode on their own, as long as ended ones are reset."""
    return ale_py.AtariVectorEnv(
        rom_of(game),
        num_envs,
        num_threads=threads,
        max_num_frames_per_episode=NO_FRAME_LIMIT,
        repeat_action_probability=0.0,
        full_action_space=False,
        # Episodes are restarted here instead of in ale-py, so that there is one implementation.
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=SIZE,
        img_width=SIZE,
        grayscale=True,
        stack_num=STACK,
        frameskip=FRAME_SKIP,
        maxpool=True,
        noop_max=0,
        episodic_life=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def stacks() -> Any:
    """The space of observations, [4, 52, 52]."""
    return FrameStack(spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8), STACK)


def start_games(games: ale_py.AtariVectorEnv, mask: Flags, *, load: bool) -> Images:
    """Start episodes where `mask` [n] is true; returns all observations [n, 4, 52, 52].

    In some games, for example Solaris, RESET leaves traces of what was played before. Loading the
    game again leaves none, but takes as long as 300 steps.
    """
    seeds = np.full(np.count_nonzero(mask), LOAD_AGAIN) if load else None
    obs: Images = games.reset(seed=seeds, options={"reset_mask": mask})[0]
    return obs


class AtariVectorEnv(VectorEnv[Images, npt.NDArray[Any], Any]):
    """`num_envs` copies of one game, played in ale-py's C++ threads.

    An environment that ends is reset within the same step: the returned observation is the first
    of the next episode, and `info["final_obs"][i]` is the last of the ended one. Results depend
    only on the actions since the last `reset(seed=…)`, not on `threads` nor on the value of the
    seed; an environment does not depend on the others. ale-py does not read the last frame of a
    game that is over: the newest image in the final observation is the one before, or a maximum
    with it.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        threads: int | None = None,
        max_episode_steps: int = HORIZON,
    ) -> None:
        """`game` as in "MontezumaRevenge"; `threads` limits the pool (default: all cores)."""
        self.num_envs = num_envs
        self._games: Any = load_games(game, num_envs, min(threads or os.cpu_count() or 1, num_envs))
        self.single_observation_space = stacks()
        self.single_action_space = self._games.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._max_episode_steps = max_episode_steps
        self._ages = np.zeros(num_envs, dtype=np.int64)  # steps taken in the current episodes
        self._started = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Images, dict[str, Any]]:
        """Start new episodes, in all environments or where `options["reset_mask"]` is true.

        With any seed, the games are loaded again, as if just switched on.
        """
        super().reset(seed=seed)
        everywhere = np.ones(self.num_envs, dtype=np.bool_)
        mask = np.asarray((options or {}).get("reset_mask", everywhere))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(
                f"reset_mask needs one boolean per environment ({self.num_envs}), "
                f"got {mask.dtype} of shape {mask.shape}."
            )
        if not self._started and not mask.all():
            raise gym.error.ResetNeeded("the first reset() must be of all environments.")
        self._started = True
        self._ages[mask] = 0
        return start_games(self._games, mask, load=seed is not None), {}

    def step(
        self, actions: npt.NDArray[Any]
    ) -> tuple[Images, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Play one action in each environment for four frames; actions [num_envs]."""
        if not self._started:
            raise gym.error.ResetNeeded("call reset() before the first step().")
        obs, points, terminated, _, _ = self._games.step(self._checked(actions))
        self._ages += 1
        truncated = (self._ages >= self._max_episode_steps) & ~terminated
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if ended.any():
            info = last_of(ended, obs, {})
            self._ages[ended] = 0
            obs = start_games(self._games, ended, load=False)
        return obs, points.astype(np.float64), terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Free the emulators and their threads."""
        self._games = None
        self._started = False

    def _checked(self, actions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The actions, if the game has them; ale-py would hang on others."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions must have shape ({self.num_envs},), got {actions.shape}.")
        if actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be whole numbers, got {actions.dtype}.")
        last = self._games.single_action_space.n - 1
        if actions.min() < 0 or actions.max() > last:
            raise ValueError(f"actions must be from 0 to {last}, got {actions.tolist()}.")
        return actions.astype(np.int64)


class AtariEnv(gym.Env[Images, Any]):
    """One game as a single Gymnasium environment that can be rendered in colour.

    It equals environment 0 of an `AtariVectorEnv`, bit for bit. It has no time limit of its own:
    `gymnasium.make` adds the registered one, or the `max_episode_steps` it is given.
    """

    # The games have 60 frames a second, and an action lasts four of them.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
        self.render_mode = render_mode
        self._games: Any = load_games(game, num_envs=1, threads=1)
        self._screen = None if render_mode is None else Screen(rom_of(game))
        self.observation_space = stacks()
        self.action_space = self._games.single_action_space
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Images, dict[str, Any]]:
        """Start a new episode; with any seed, the game is loaded again."""
        super().reset(seed=seed)
        self._playing = True
        if self._screen is not None:
            self._screen.start(load=seed is not None)
        return start_games(self._games, np.array([True]), load=seed is not None)[0], {}

    def step(self, action: Any) -> tuple[Images, float, bool, bool, dict[str, Any]]:
        """Play one action for four frames."""
        if not self._playing:
            raise gym.error.ResetNeeded("call reset() before step().")
        if not self.action_space.contains(action):
            raise ValueError(f"action must be one of {self.action_space}, got {action!r}.")
        if self._screen is not None:
            self._screen.play(int(action))
        obs, points, over, _, _ = self._games.step(np.array([action], dtype=np.int64))
        terminated = bool(over[0])
        self._playing = not terminated
        return obs[0], float(points[0]), terminated, False, {}

    def render(self) -> Images | None:
        """The screen [210, 160, 3], or None without a render mode."""
        return None if self._screen is None else self._screen.picture()

    def close(self) -> None:
        """Free the emulators."""
        self._games = self._screen = None
        self._playing = False


class Screen:
    """A second emulator that plays the same game, because the first one has no colour output."""

    def __init__(self, rom: str) -> None:
        self._game = ale_py.ALEInterface()
        self._game.setFloat("repeat_action_probability", 0.0)
        # It is None for an unknown game, but then the first emulator would not exist.
        self._rom = cast(Path, ale_py.roms.get_rom_path(rom))
        self._game.loadROM(self._rom)
        self._actions = self._game.getMinimalActionSet()

    def start(self, *, load: bool) -> None:
        """Start an episode as `start_games` does, so that both show the same."""
        if load:
            self._game.loadROM(self._rom)
        self._game.reset_game()

    def play(self, action: int) -> None:
        """Repeat the action with this number for four frames."""
        for _ in range(FRAME_SKIP):
            self._game.act(self._actions[action])  # does nothing once the game is over

    def picture(self) -> Images:
        """The newest frame [210, 160, 3] in colour."""
        return self._game.getScreenRGB()
