"""Ours: Stable-Baselines3's SAC and DQN on sparse tasks, alone and with a bonus.

The trainers draw their batches from a replay buffer, and the bonus of a row is computed when it is
drawn. SAC drives MountainCarContinuous, where every action has a cost and only the flag gives a
reward. DQN walks over a frozen lake without holes, where only the goal gives a reward and an
episode is exactly as long as the shortest path to it.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from emi.adapters.schedule import Decay, Eta
from emi.intrinsic.emi import EMI
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.report.style import look_of
from emi.reproduction import sb3_success
from emi.reproduction.benchmark import open_lake
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker
from emi.reproduction.sb3_success import FILES, SEEDS, EpisodeEnd, Row, Task, train_cells

BLACK, BLUE = look_of("trpo"), look_of("emi")  # an agent without a bonus, and EMI
FEWEST_STEPS = 1_000  # of a scaled run: one episode of SAC


@dataclass(frozen=True)
class Bench:
    """A trainer with and without EMI on one environment."""

    trainer: str
    task: Task
    failed: float  # a larger return is that of an episode that reached the flag
    coefficients: Mapping[str, Eta]  # by arm; an arm without one has no bonus
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the trainer, not SB3's defaults
    env_args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[Cell, ...]:
        # Seed by seed, so that an interrupted experiment compares all arms.
        return tuple((arm, seed) for seed in SEEDS for arm in self.task.titles)

    def make(self) -> gymnasium.Env:
        """The environment; discrete observations become one-hot vectors."""
        env = gymnasium.make(self.task.env, **self.env_args)
        if isinstance(env.observation_space, gymnasium.spaces.Discrete):
            env = gymnasium.wrappers.FlattenObservation(env)
        return env


# Each bonus is divided by the running standard deviation of its discounted sum, and EMI reads
# observations in units of their standard deviation; docs/results.md explains the choices.
SAC = Bench(
    "SAC",
    Task(
        "sb3_sac",
        "MountainCarContinuous-v0",
        20_000,
        90.0,  # Gymnasium's reward threshold
        {"sac": "SAC", "sac-emi": "SAC + EMI"},
        {"sac": BLACK, "sac-emi": BLUE},
        last=10,  # an episode that fails has 999 steps: there are few
    ),
    0.0,  # the flag gives 100, and the actions of an episode cost at most 99.9
    {"sac-emi": 5.0},
)
# η was chosen on the seeds 100 to 104: constants of 1, 5 and 20 all reach the flag, the larger the
# sooner, and with a constant 20 the car keeps paying for the bonus.
SAC_DECAY = Bench(
    "SAC",
    dataclasses.replace(SAC.task, folder="sb3_sac_decay", steps=30_000),
    SAC.failed,
    {"sac-emi": Decay(20.0)},
)
# With SB3's defaults the target network is updated every 10,000 steps, three times in the whole
# training: a value would reach no farther than three steps from the goal.
DQN = Bench(
    "DQN",
    Task(
        "sb3_dqn",
        "FrozenLake-v1",
        30_000,
        0.5,  # random actions, 5 % of all, let one episode in three fail
        {"dqn": "DQN", "dqn-emi": "DQN + EMI"},
        {"dqn": BLACK, "dqn-emi": BLUE},
        last=100,  # an episode has 14 steps
        goal="goal",
        title="FrozenLake 8×8 without holes",
        decimals=2,
        tells_first=True,
    ),
    0.0,
    {"dqn-emi": Decay(1.0)},
    {"target_update_interval": 500},
    dict(open_lake(8)),
)
BENCHES = {bench.task.folder: bench for bench in (SAC, SAC_DECAY, DQN)}


def train(bench: Bench, arm: str, seed: int, steps: int, **settings: Any) -> list[EpisodeEnd]:
    """Every finished training episode of one run, on one thread; `settings` are the trainer's."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.monitor import Monitor

    from emi.adapters.stable_baselines3 import IntrinsicRewardCallback

    torch.set_num_threads(1)
    env = Monitor(bench.make())
    kind = getattr(stable_baselines3, bench.trainer)
    model = kind("MlpPolicy", env, seed=seed, device="cpu", **{**bench.settings, **settings})
    callback = None
    if arm in bench.coefficients:
        spaces = model.observation_space, model.action_space
        method = NormalizeReward(EMI(*spaces, seed=seed))
        callback = IntrinsicRewardCallback(method, bench.coefficients[arm])
    model.learn(steps, callback=callback)
    env.close()
    ends, totals = np.cumsum(env.get_episode_lengths()).tolist(), env.get_episode_rewards()
    pairs = zip(ends, totals, strict=True)
    return [EpisodeEnd(end, total, int(total > bench.failed)) for end, total in pairs]


def work(cell: Cell, name: str, steps: int) -> tuple[Row, list[EpisodeEnd]]:
    """Train one (arm, seed) and time it."""
    start, bench = time.perf_counter(), BENCHES[name]
    episodes = train(bench, *cell, steps)
    seconds = time.perf_counter() - start
    return sb3_success.summarise_run(*cell, steps, episodes, seconds, bench.task), episodes


def experiment(bench: Bench, question: str) -> Experiment:
    task = bench.task

    def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
        run = functools.partial(work, name=task.folder, steps=steps)
        train_cells(root, cells, run, budget, task)

    return Experiment(
        name=task.folder,
        question=question,
        paper="trains with TRPO only.",
        draw=functools.partial(sb3_success.draw, task=task),
        files=tuple(f"{task.folder}/{name}" for name in FILES),
        maker=FileMaker(
            bench.cells,
            task.steps,
            FEWEST_STEPS,
            functools.partial(sb3_success.sizes, task=task),
            make,
            functools.partial(sb3_success.copy, task=task),
        ),
    )


SAC_EXPERIMENT = experiment(
    SAC, "Does EMI's bonus let Stable-Baselines3's SAC solve MountainCarContinuous?"
)
SAC_DECAY_EXPERIMENT = experiment(
    SAC_DECAY, "And if the coefficient of the bonus falls from 20 to 0, in 30,000 steps?"
)
DQN_EXPERIMENT = experiment(
    DQN, "Does EMI's bonus help Stable-Baselines3's DQN to reach the goal of a frozen lake?"
)
