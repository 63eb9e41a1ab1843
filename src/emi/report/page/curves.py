"""Every column of metrics.csv as curves: of each run, and the mean over seeds with its interval.

A page has one block of text per environment and column, which its script decodes when the column
is chosen. A block has two lines: JSON that describes the curves, and the 16-bit codes of all curves
one after the other.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emi.report.groups import Group
from emi.report.load import Run
from emi.report.page.encoding import coded, deflated, evenly
from emi.report.page.limits import Limits
from emi.report.statistics import Array, bootstrap_band, thin
from emi.report.summary import common_curves

Json = dict[str, Any]

# Curves are drawn over these columns.
AXES = ("iteration", "steps", "seconds")
# Names and units of the columns that every run has. Other columns are shown by their own names.
TITLES = {
    "return_mean": "mean return",
    "return_std": "standard deviation of returns",
    "return_max": "best return",
    "bonus_mean": "mean bonus per step",
    "bonus_std": "standard deviation of the bonus",
    "episodes": "finished episodes per iteration",
    "kl": "KL of the policy step [nats]",
    "entropy": "entropy of the policy [nats]",
    "explained_variance": "explained variance of the value function",
    "steps_per_second": "environment steps per second",
}
FEWEST_POINTS = 20  # per curve, however many runs there are
BAND_REPLICATES = 2_000  # of the bootstrap: there are a few hundred bands on a page


def measures_of(runs: Sequence[Run]) -> list[str]:
    """The columns that some run has a number in, returns first."""
    found = dict.fromkeys(
        name
        for run in runs
        for name, values in run.metrics.items()
        if name not in AXES and np.isfinite(values).any()
    )
    return sorted(found, key=lambda name: list(TITLES).index(name) if name in TITLES else 99)


def widths(groups: Mapping[str, Sequence[Group]], limits: Limits) -> dict[str, int]:
    """How many iterations of each environment are averaged to one point of a curve."""
    runs = [run for row in groups.values() for group in row for run in group.runs]
    curves = sum(len(run.metrics) for run in runs) + sum(
        3 * len(group.runs[0].metrics) for row in groups.values() for group in row
    )
    points = max(FEWEST_POINTS, min(limits.points, limits.values // max(1, curves)))
    return {
        env: math.ceil(max(len(r.metrics["steps"]) for g in row for r in g.runs) / points) or 1
        for env, row in groups.items()
    }


def encode_measure(row: Sequence[Group], first: int, name: str, width: int) -> str:
    """The block of one column; the runs of these groups have numbers from `first` on."""
    codes: list[Array] = []

    def stored(values: Array) -> Json:
        start = sum(map(len, codes))
        description, own = coded(values)
        codes.append(own)
        return {**description, "start": start, "count": len(own)}

    runs = [run for group in row for run in group.runs]
    described = {
        "runs": {
            first + k: stored(thin(run.metrics[name], width))
            for k, run in enumerate(runs)
            if np.isfinite(run.metrics.get(name, np.empty(0))).any()
        },
        "groups": [
            {part: evenly(values) if part == "steps" else stored(values) for part, values in curve}
            for curve in (_mean_curve(group.runs, name, width).items() for group in row)
        ],
    }
    text = json.dumps(described, allow_nan=False, separators=(",", ":"))
    # High bytes first, then low bytes: neighbouring high bytes are similar, so they deflate well.
    planes = np.concatenate(codes).astype("<u2").view(np.uint8).reshape(-1, 2).T[::-1]
    return f"{deflated(text.encode())}\n{deflated(planes.tobytes())}"


def _mean_curve(runs: Sequence[Run], name: str, width: int) -> dict[str, Array]:
    """Steps, mean over seeds and its interval, up to the end of the shortest run; may be empty."""
    steps, values = common_curves(runs, name)
    if len(steps) == 0:
        return {}
    steps, values = thin(steps, width), thin(values, width)
    curve = {"steps": steps, "mean": values.mean(0)}
    if len(values) > 1:
        with np.errstate(invalid="ignore"):  # an infinite value has no interval
            low, high = bootstrap_band(values, replicates=BAND_REPLICATES)
        curve |= {"low": low, "high": high}
    return curve
