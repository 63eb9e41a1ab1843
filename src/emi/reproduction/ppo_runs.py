"""Runs of Stable-Baselines3's PPO with and without a bonus: training, rows and their file.

PPO has SB3's defaults, except for 16 environments, rollouts of 128 steps and minibatches of 256
rows, which take a fifth of the time. Observations and rewards are normalised by `VecNormalize`,
unless a task says otherwise.
"""

import csv
import functools
import io
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from emi.adapters.schedule import Eta
from emi.durable_file import write_durably
from emi.errors import UserError
from emi.intrinsic.recipe import bonus
from emi.report.packed import UNREADABLE
from emi.reproduction.experiment import Budget, Cell, FileMaker
from emi.reproduction.worker_pool import worker_pool
from emi.untrusted_file import read_file

FILE = "runs.csv"
LAST = 100  # episodes at the end of training that are summarised
PARTS = 20  # equal parts of a training in a curve
ENVIRONMENTS, ROLLOUT, MINIBATCH = 16, 128, 256
FEWEST_STEPS = 16_384  # of a scaled run: 1,024 in each environment, at least one episode
MOST_BYTES, LARGEST = 16_000_000, 1e12  # of a file that is read, and of a number in it


@dataclass(frozen=True)
class PPOTask:
    """An environment, and the return above which an episode has reached its goal.

    A run takes `longer` times the steps that the experiment asks for.
    """

    title: str
    env: str
    goal: float
    settings: tuple[tuple[str, Any], ...] = ()
    longer: int = 1
    ppo: tuple[tuple[str, Any], ...] = ()  # settings of PPO that are not SB3's defaults
    normalize: bool = True  # by `VecNormalize`

    def make(self) -> gymnasium.Env:
        """The environment; discrete observations and cells of MiniGrid become one-hot vectors."""
        if self.env.startswith("MiniGrid"):
            return _one_hot_cells(self.env)
        env = gymnasium.make(self.env, **dict(self.settings))
        if isinstance(env.observation_space, gymnasium.spaces.Discrete):
            env = gymnasium.wrappers.FlattenObservation(env)
        return env


def _one_hot_cells(env_id: str) -> gymnasium.Env:
    """A MiniGrid environment that observes its 7×7 cells as one-hot vectors, float32 [980]."""
    from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper

    env = gymnasium.wrappers.FlattenObservation(
        ImgObsWrapper(OneHotPartialObsWrapper(gymnasium.make(env_id)))
    )
    bits = gymnasium.spaces.Box(0.0, 1.0, env.observation_space.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs.astype(np.float32), bits)


@dataclass(frozen=True)
class PPOArm:
    """Runs that differ only in their seed. Without a method, PPO alone."""

    title: str
    task: PPOTask
    method: str | None = None
    eta: Eta = 0.0


class Finished(NamedTuple):
    """An episode that ended."""

    steps: int  # environment steps taken when it ended
    total: float  # its return, without the bonus


class Trained(NamedTuple):
    episodes: list[Finished]
    shares: list[float]  # `intrinsic/share` of each rollout
    warned: bool


class PPORow(NamedTuple):
    """One row of runs.csv."""

    arm: str
    seed: int
    steps: int
    episodes: int
    reached: float  # share of the last episodes that reached the goal
    final_return: float  # mean of the last episodes
    first_reached: int | None  # steps when the first episode did
    late_share: float  # mean share of the bonus in the reward, second half of the training
    warned: int  # 1 if the callback warned of that share
    seconds: float
    curve: str  # share of episodes that reached the goal, in percent, in each part of the training


Runs = dict[Cell, PPORow]


def train(arm: PPOArm, seed: int, steps: int) -> Trained:
    """Train one run on one thread."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from emi.adapters.stable_baselines3 import IntrinsicRewardCallback

    class Recorder(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    episodes.append(Finished(self.num_timesteps, float(info["episode"]["r"])))
            return True

        def _on_rollout_end(self) -> None:
            shares.append(self.logger.name_to_value.get("intrinsic/share", 0.0))

    torch.set_num_threads(1)
    episodes: list[Finished] = []
    shares: list[float] = []
    envs = DummyVecEnv([lambda: Monitor(arm.task.make())] * ENVIRONMENTS)
    settings: dict[str, Any] = {"n_steps": ROLLOUT, "batch_size": MINIBATCH, "device": "cpu"}
    read = VecNormalize(envs, gamma=0.99) if arm.task.normalize else envs
    model = PPO("MlpPolicy", read, seed=seed, **settings, **dict(arm.task.ppo))
    callbacks: list[BaseCallback] = []
    if arm.method is not None:
        method = bonus(arm.method, envs.observation_space, envs.action_space, seed=seed)
        callbacks.append(IntrinsicRewardCallback(method, arm.eta))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(steps, callback=[*callbacks, Recorder()])
    envs.close()
    warned = any("let eta fall to 0" in str(warning.message) for warning in caught)
    return Trained(episodes, shares, warned)


def summarise_run(
    name: str, goal: float, seed: int, steps: int, trained: Trained, seconds: float
) -> PPORow:
    """The row of a run; UserError if no episode ended."""
    episodes = trained.episodes
    if not episodes:
        raise UserError(f"no episode ended in {steps} steps: take more steps")
    at_goal = np.array([episode.total > goal for episode in episodes])
    taken = max(steps, episodes[-1].steps)
    part = [min(PARTS * episode.steps // (taken + 1), PARTS - 1) for episode in episodes]
    parts = [at_goal[np.array(part) == k] for k in range(PARTS)]
    return PPORow(
        name,
        seed,
        steps,
        len(episodes),
        round(float(at_goal[-LAST:].mean()), 4),
        round(float(np.mean([episode.total for episode in episodes[-LAST:]])), 3),
        next((e.steps for e, reached in zip(episodes, at_goal, strict=True) if reached), None),
        round(float(np.mean(trained.shares[len(trained.shares) // 2 :])), 4),
        int(trained.warned),
        round(seconds, 1),
        " ".join(f"{100 * own.mean():.0f}" if len(own) else "-" for own in parts),
    )


def curve_of(row: PPORow) -> list[float]:
    """Share of episodes that reached the goal in each part; NaN where none ended."""
    return [float("nan") if word == "-" else float(word) / 100 for word in row.curve.split()]


def work(cell: Cell, arms: Mapping[str, PPOArm], steps: int) -> PPORow:
    """Train one (arm, seed) and time it."""
    name, seed = cell
    arm, start = arms[name], time.perf_counter()
    taken = arm.task.longer * steps
    trained = train(arm, seed, taken)
    seconds = time.perf_counter() - start
    return summarise_run(name, arm.task.goal, seed, taken, trained, seconds)


def save(place: Path, runs: Runs, arms: Mapping[str, PPOArm]) -> None:
    """Write runs.csv; the same runs give the same bytes."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(PPORow._fields)
    for cell in sorted(runs, key=lambda cell: (list(arms).index(cell[0]), cell[1])):
        table.writerow(["" if value is None else value for value in runs[cell]])
    place.mkdir(parents=True, exist_ok=True)
    write_durably(place / FILE, text.getvalue().encode())


def load(place: Path, arms: Mapping[str, PPOArm]) -> Runs:
    """What `save` wrote, empty if there is nothing; UserError if it is damaged."""
    runs: Runs = {}
    if not (place / FILE).exists():
        return runs
    try:
        text = read_file(place / FILE, MOST_BYTES).decode()
        for line in csv.DictReader(text.splitlines()):
            numbers = [_number(line[name]) for name in PPORow._fields[1:-1]]
            row = PPORow._make([line["arm"], *numbers, line["curve"]])
            if row.arm not in arms or None in row._replace(first_reached=0):
                raise ValueError("an unknown arm, or a number is missing")
            if len(curve_of(row)) != PARTS:
                raise ValueError("a curve is incomplete")
            runs[row.arm, row.seed] = row
    except UNREADABLE as error:
        raise UserError(f"{place / FILE} is damaged ({error}): restore it") from None
    return runs


def to_draw(place: Path, arms: Mapping[str, PPOArm], steps: int) -> tuple[Runs, str]:
    """The runs of a folder, and a note if some have fewer than `steps`; UserError without any."""
    runs = load(place, arms)
    if not runs:
        raise UserError(f"{place / FILE} holds no run: run it again")
    fewest = min(row.steps // arms[row.arm].task.longer for row in runs.values())
    return runs, f"SCALED: {fewest:,} of {steps:,} steps" if fewest < steps else ""


def _number(text: str) -> Any:
    """A whole number, a number or nothing; ValueError for anything else."""
    if not text:
        return None
    value = float(text) if "." in text else int(text)
    if not abs(value) <= LARGEST:  # NaN as well
        raise ValueError(f"{value:g} is too large")
    return value


def maker_of(
    folder: str, arms: Mapping[str, PPOArm], cells: Sequence[Cell], steps: int
) -> FileMaker:
    """How the runs of `cells` are made in `folder`."""

    def sizes(root: Path) -> dict[Cell, int]:
        runs = load(root / folder, arms)
        return {cell: row.steps // arms[cell[0]].task.longer for cell, row in runs.items()}

    def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
        try:
            import emi.adapters.stable_baselines3  # noqa: F401
        except ModuleNotFoundError as error:
            raise UserError(str(error)) from None
        runs = load(root / folder, arms)
        print(f"{len(cells)} runs to do, {len(runs)} there", flush=True)
        with worker_pool(budget.jobs or 1) as pool:
            one = functools.partial(work, arms=dict(arms), steps=steps)
            for row in pool.imap_unordered(one, cells):
                runs[row.arm, row.seed] = row
                save(root / folder, runs, arms)
                print(
                    f"{row.arm} seed {row.seed}: {row.reached:.0%} of the last {LAST} episodes at "
                    f"the goal, return {row.final_return:.1f}, {row.seconds:.0f} s",
                    flush=True,
                )

    def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
        new = load(source / folder, arms)
        merged = load(target / folder, arms) | {cell: new[cell] for cell in cells}
        save(target / folder, merged, arms)
        return [target / folder / FILE]

    return FileMaker(tuple(cells), steps, FEWEST_STEPS, sizes, make, copy)
