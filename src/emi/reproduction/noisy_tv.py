"""Ours: how much does each method pay for noise that it can never predict?

NoisyTV is a grid with a television (`emi.envs.noisy_tv`). Two measurements for every method:

- pure scoring: all methods read the same batches of uniformly random actions, in the order in which
  a trainer lets them score and learn. In the last batch, the mean bonus of steps that watched is
  compared with the mean bonus of the others: their quotient, which only bonuses without negative
  values have, and their difference in standard deviations of the bonus, which does not depend on
  its offset and scale. A bonus that ignores the screen has 1 and 0.
- training: the share of steps in which the agent watches in the last fifth of its iterations. A
  random agent watches 20 % of the time.

A seed takes about ten seconds on one core with most methods.
"""

import csv
import functools
import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes

from emi.agent.acting import DiscreteActions
from emi.agent.observations import make_keeper
from emi.agent.play import play
from emi.agent.rollout import rollout_of
from emi.batch import FloatArray, Transitions
from emi.durable_file import write_durably
from emi.envs import make_vec
from emi.envs.noisy_tv import MOVES, SIDE, WATCH
from emi.errors import UserError
from emi.intrinsic.contract import checked_score, find_method
from emi.intrinsic.table import METHODS, order_of, title_of
from emi.report.packed import UNREADABLE
from emi.report.style import (
    GREY,
    WIDTH,
    in_our_style,
    look_of,
    new_figure,
    save_figure,
    set_heading,
)
from emi.report.summary import Estimate
from emi.report.tables import estimate
from emi.reproduction.drawing import table_of, write_markdown
from emi.reproduction.experiment import Budget, Cell, Experiment, FileMaker, Found
from emi.training.presets import resolve
from emi.training.trainer import Trainer
from emi.untrusted_file import read_file

ENV = "NoisyTV"
SEEDS = range(5)
STEPS = 100_000  # of each of the two measurements
FEWEST_STEPS = 10_000  # of a scaled cell: two iterations
FILE = "noisy_tv/measures.csv"
MOST_BYTES = 1_000_000  # of a file that is read
# Seed by seed, so that an interrupted experiment compares all methods.
CELLS = tuple((method, seed) for seed in SEEDS for method in METHODS)


class Measure(NamedTuple):
    """One row of measures.csv; the bonuses of a method without a bonus are 0."""

    method: str
    seed: int
    steps: int
    bonus_watching: float  # mean bonus of a step that watched, in the last random batch
    bonus_other: float  # mean bonus of any other step
    bonus_std: float  # of all steps of that batch
    watched: float  # share of steps in which the trained agent watched
    cells: float  # share of the grid that it visited in the whole training
    reached: float  # share of episodes that ended at the goal
    seconds: float

    @property
    def ratio(self) -> float | None:
        """How many times the bonus of another step is paid for noise; None if one is negative."""
        positive = self.bonus_other > 0 and self.bonus_watching >= 0
        return self.bonus_watching / self.bonus_other if positive else None

    @property
    def gap(self) -> float | None:
        """The difference of both in standard deviations of the bonus; None without a bonus."""
        difference = self.bonus_watching - self.bonus_other
        return difference / self.bonus_std if self.bonus_std > 0 else None


def random_batches(seed: int, steps: int, size: int, num_envs: int) -> Iterator[Transitions]:
    """Batches of about `size` steps with uniformly random actions; each starts from a reset."""
    envs, rng = make_vec(ENV, num_envs), np.random.default_rng(seed)
    space: Any = envs.single_action_space
    actions = DiscreteActions(space)
    for batch in range(-(-steps // size)):
        noise = rng.gumbel(size=(-(-size // num_envs), num_envs, len(MOVES)))
        keeper = make_keeper(envs.single_observation_space, (len(noise) + 1) * num_envs)
        obs, _ = envs.reset(seed=int(np.random.SeedSequence([seed, batch]).generate_state(1)[0]))
        # Equal logits: with Gumbel noise, every action is equally likely.
        played = play(
            envs, lambda obs: np.zeros((len(obs), len(MOVES))), actions, noise, obs, keeper
        )
        yield rollout_of(keeper.pool(), played).transitions(actions.to_env)


def scored(method: str, seed: int, steps: int) -> tuple[float, float, float]:
    """Mean bonus of steps of the last batch that watched and of the others; its deviation."""
    config = resolve(ENV, method)
    envs = make_vec(ENV)
    found = find_method(method)._replace(config=config.intrinsic)
    intrinsic = found.build(
        envs.single_observation_space,
        envs.single_action_space,
        seed,
        normalize=config.normalize_observations,
    )
    if intrinsic is None:
        return 0.0, 0.0, 0.0
    bonus, watching = np.zeros(1), np.zeros(1, bool)
    for batch in random_batches(seed, steps, config.steps_per_iteration, config.num_envs):
        reward, finish = checked_score(intrinsic, batch)
        bonus, watching = reward.numpy().astype(np.float64), np.asarray(batch.action) == WATCH
        finish()
    return float(bonus[watching].mean()), float(bonus[~watching].mean()), float(bonus.std())


def trained(method: str, seed: int, steps: int) -> tuple[float, float, float]:
    """Shares of watching steps, visited cells and episodes at the goal of a trained agent."""
    settings = {"seed": seed, "steps": steps, "threads": 1, "coverage": True}
    trainer = Trainer(resolve(ENV, method, settings))
    watched, reached, late = [], [], trainer.total_iterations * 4 // 5
    cells = 0.0
    while trainer.iteration < trainer.total_iterations:
        cells = trainer.iterate().metrics["coverage/cells"]
        if trainer.iteration > late and trainer.last_batch is not None:
            rollout, _ = trainer.last_batch
            watched.append(np.mean(rollout.flat(rollout.action) == WATCH))
            reached.append(np.mean(rollout.episode_returns > 0))
    trainer.close()
    return float(np.mean(watched)), cells / SIDE**2, float(np.mean(reached))


def measure(method: str, seed: int, steps: int) -> Measure:
    """Both measurements of one method, on one thread."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    numbers = (*scored(method, seed, steps), *trained(method, seed, steps))
    seconds = round(time.perf_counter() - began, 1)
    return Measure(method, seed, steps, *(float(f"{number:.6g}") for number in (*numbers, seconds)))


Measures = dict[Cell, Measure]


def load(root: Path) -> Measures:
    """What `save` wrote, empty if there is nothing; UserError if it is damaged."""
    path = root / FILE
    if not path.exists():
        return {}
    try:
        lines = csv.DictReader(read_file(path, MOST_BYTES).decode().splitlines())
        rows = [_measure(line) for line in lines]
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged ({error}): run noisy_tv again") from None
    return {(row.method, row.seed): row for row in rows}


def _measure(line: dict[str, str]) -> Measure:
    seed, steps = int(line["seed"]), int(line["steps"])
    others = [float(line[name]) for name in Measure._fields[3:]]
    if not all(abs(number) < 1e12 for number in (seed, steps, *others)):  # NaN as well
        raise ValueError("a number is too large")
    return Measure(line["method"], seed, steps, *others)


def save(root: Path, rows: Measures) -> None:
    """Write measures.csv, by method and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measure._fields)
    writer.writerows(rows[cell] for cell in sorted(rows, key=lambda c: (order_of(c[0]), c[1])))
    (root / FILE).parent.mkdir(parents=True, exist_ok=True)
    write_durably(root / FILE, text.getvalue().encode())


def make(root: Path, cells: Sequence[Cell], steps: int, budget: Budget) -> None:
    """Measure each (method, seed) of `cells`; save after each."""
    for cell in cells:
        row = measure(*cell, steps)
        save(root, load(root) | {cell: row})
        gap = "no bonus" if row.gap is None else f"bonus for noise {row.gap:+.2f} deviations"
        print(
            f"{row.method} seed {row.seed}: {gap}, watches {row.watched:.0%} of the time, "
            f"{row.seconds:.0f} s",
            flush=True,
        )


def sizes(root: Path) -> dict[Cell, int]:
    return {cell: row.steps for cell, row in load(root).items()}


def copy(source: Path, target: Path, cells: Sequence[Cell]) -> list[Path]:
    new = load(source)
    save(target, load(target) | {cell: new[cell] for cell in cells})
    return [target / FILE]


def by_method(rows: Measures) -> dict[str, list[Measure]]:
    methods = sorted({method for method, _ in rows}, key=order_of)
    return {name: [row for row in rows.values() if row.method == name] for name in methods}


def known(rows: Sequence[Measure], name: str) -> FloatArray:
    """The values of a column [≤ rows], if there are any."""
    values = (getattr(row, name) for row in rows)
    return np.array([value for value in values if value is not None])


def table(rows: Measures) -> str:
    """Markdown: one line per method, means over its seeds."""
    lines = []
    for method, own in by_method(rows).items():
        text = functools.partial(_mean, own)
        lines.append(
            {
                "method": title_of(method),
                "seeds": str(len(own)),
                "noise / other bonus [95 % CI]": text("ratio"),
                "noise − other bonus, in deviations [95 % CI]": text("gap"),
                "watches, % [95 % CI]": text("watched", percent=True),
                "visited cells, % [95 % CI]": text("cells", percent=True),
                "episodes at the goal, % [95 % CI]": text("reached", percent=True),
            }
        )
    return table_of(lines)


def _mean(rows: Sequence[Measure], name: str, *, percent: bool = False) -> str:
    """Mean over the seeds and its interval; a ratio that some seed lacks has none."""
    values = known(rows, name) * (100 if percent else 1)
    found = Estimate.of_mean(values) if len(values) == len(rows) else None
    return estimate(found, len(values), decimals=0 if percent else 2)


def draw(found: Found, stem: Path) -> list[Path]:
    rows = load(found.root)
    if not rows:
        raise UserError(f"{found.root / FILE} holds no measurement: run it again")
    fewest = min(row.steps for row in rows.values())
    scaled = f"SCALED: {fewest:,} of {STEPS:,} steps" if fewest < STEPS else ""
    return [_draw_figure(rows, stem, scaled), write_markdown(found, stem, table(rows), scaled)]


@in_our_style
def _draw_figure(rows: Measures, stem: Path, title: str) -> Path:
    """One line per method: what it pays for noise, and the share of time at the television."""
    methods = by_method(rows)
    figure = new_figure(WIDTH, 0.9 + 0.22 * len(methods), title)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (method, own) in enumerate(methods.items()):
        _dots(left, place, known(own, "gap"), method)
        _dots(right, place, known(own, "watched"), method)
    left.set(xlabel="bonus of noise − other bonus, in standard deviations")
    left.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    set_heading(left, "Pure scoring of random actions")
    right.set(xlim=(0, 1), xlabel="share of steps at the television")
    right.axvline(1 / len(MOVES), color=GREY, linewidth=0.8, linestyle="--")
    set_heading(right, "Trained agents; dashed: a random one")
    left.set_yticks(range(len(methods)), [title_of(method) for method in methods])
    left.invert_yaxis()
    return save_figure(figure, stem)


def _dots(axis: Axes, place: int, values: FloatArray, method: str) -> None:
    """The seeds as small dots and their mean as a large one."""
    colour = look_of(method).colour
    axis.plot(values, np.full(len(values), place), "o", color=colour, markersize=3, alpha=0.5)
    if len(values):
        axis.plot(values.mean(), place, "D", color=colour, markersize=5)


EXPERIMENT = Experiment(
    name="noisy_tv",
    question="How much does each method pay for noise that it can never predict?",
    paper="shows no such experiment; its error model S is meant to absorb what φ cannot predict.",
    draw=draw,
    files=(FILE,),
    maker=FileMaker(CELLS, STEPS, FEWEST_STEPS, sizes, make, copy),
)
