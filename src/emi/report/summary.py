"""The numbers of one group of runs, as tables and the page show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emi.intrinsic.table import title_of
from emi.report.first_reward import median_first_reward
from emi.report.load import Run, final_returns
from emi.report.reference import Reference
from emi.report.statistics import (
    Array,
    bootstrap_interval,
    interquartile_mean,
    on_common_steps,
    stratified_bootstrap,
    wilson_interval,
)

LAST_ITERATIONS = 10


class Estimate(NamedTuple):
    """A statistic of several runs and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_mean(cls, values: Array) -> "Estimate":
        return cls(float(values.mean()), *bootstrap_interval(values))


class Rate(NamedTuple):
    """A share of runs and its 95 % interval."""

    successes: int
    trials: int
    low: float
    high: float

    @classmethod
    def of(cls, successes: int, trials: int) -> "Rate":
        return cls(successes, trials, *wilson_interval(successes, trials))


@dataclass(frozen=True)
class Summary:
    """One row of a table: runs that differ only in their seed.

    The final return of a run is `return_mean` of its last iteration in which an episode ended.
    Runs without a finished episode have none: they count as seeds, and as runs that have not met a
    reward, but in no statistic of returns.
    """

    env: str
    label: str
    runs: tuple[Run, ...]
    finals: Array  # final returns of the runs that have one
    mean: Estimate | None  # None without any return
    iqm: Estimate | None
    late: float | None  # mean return over the last iterations
    solved: Rate | None  # None if nothing counts as solved
    rewarded: int  # runs that met a reward
    started: int  # runs with at least one iteration
    first_reward: float | None  # steps by which half of them met one; inf if fewer did
    reference_value: float | None

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def steps(self) -> int:
        """Steps of the shortest run."""
        return min(run.steps for run in self.runs)

    @property
    def unfinished(self) -> list[Run]:
        return [run for run in self.runs if not run.finished]

    @property
    def without_return(self) -> list[Run]:
        return [run for run in self.runs if not run.has_return]


def summarise(
    runs: Sequence[Run],
    reference: Reference,
    *,
    label: str = "",
    reference_value: float | None = None,
) -> Summary:
    """The summary of a group; its label is the title of the method if none is given."""
    finals, late = final_returns(runs), final_returns(runs, LAST_ITERATIONS)
    first = [run.first_reward for run in runs if run.first_reward is not None]
    solved, some = None, len(finals) > 0
    if some and reference.solved_above is not None:
        solved = Rate.of(int((finals > reference.solved_above).sum()), len(finals))
    iqm = interquartile_mean
    return Summary(
        env=runs[0].env,
        label=label or title_of(runs[0].method),
        runs=tuple(runs),
        finals=finals,
        mean=Estimate.of_mean(finals) if some else None,
        iqm=Estimate(iqm(finals), *stratified_bootstrap([finals], iqm)) if some else None,
        late=float(np.mean(late)) if some else None,
        solved=solved,
        rewarded=sum(each.seen for each in first),
        started=len(first),
        first_reward=median_first_reward(first) if first else None,
        reference_value=reference_value,
    )


def common_curves(runs: Sequence[Run], metric: str) -> tuple[Array, Array]:
    """Curves of the runs that have a value of `metric`: steps [time], values [≤ runs, time].

    Both are empty if no run has a value, or if there is no step that all of them reached.
    """
    known = [run for run in runs if not np.isnan(run.metrics.get(metric, np.nan)).all()]
    if not known:
        return np.empty(0), np.empty((0, 0))
    return on_common_steps(
        [run.metrics["steps"] for run in known], [run.metrics[metric] for run in known]
    )
