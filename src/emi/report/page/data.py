"""What the page shows, as plain values ready for JSON: runs, groups of runs and comparisons."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emi.intrinsic.table import METHODS, order_of
from emi.report.comparison import (
    holm,
    probability_of_improvement,
    probability_of_improvement_interval,
    welch,
)
from emi.report.groups import Group
from emi.report.load import Run, final_returns
from emi.report.page.curves import TITLES, measures_of, widths
from emi.report.page.encoding import evenly, quantised
from emi.report.page.limits import USUAL, Limits
from emi.report.privacy import public_config, public_starts
from emi.report.reference import References, reference_for
from emi.report.statistics import Array, thin
from emi.report.summary import LAST_ITERATIONS, Summary

Json = dict[str, Any]


def describe(
    groups: Mapping[str, Sequence[Group]],
    remarks: list[str],
    references: References,
    limits: Limits = USUAL,
) -> Json:
    """The data of the page except curves, samples and videos.

    `runs` are numbered in the order of the groups.
    """
    runs = [run for row in groups.values() for group in row for run in group.runs]
    number = {run.path: k for k, run in enumerate(runs)}
    together = widths(groups, limits)
    envs, described = [], []
    for env, row in groups.items():
        reference = reference_for(references, env)
        width = together[env]
        summaries = [group.summarise(reference) for group in row]
        envs.append(
            {
                "name": env,
                "together": width,
                "decimals": reference.decimals,
                "solvedAbove": reference.solved_above,
                "reference": {"source": reference.source, "steps": reference.steps},
                "groups": [
                    {
                        "label": group.label,
                        "row": _row(summary),
                        "runs": [number[run.path] for run in group.runs],
                    }
                    for group, summary in zip(row, summaries, strict=True)
                ],
                "measures": measures_of([run for group in row for run in group.runs]),
                "baseline": _baseline(row),
                "pairs": _pairs([summary.finals for summary in summaries]),
            }
        )
        described += [_run(run, group.label, width) for group in row for run in group.runs]
    return {
        "titles": TITLES,
        "lastIterations": LAST_ITERATIONS,
        "colours": _colours(groups),
        "envs": envs,
        "runs": described,
        "remarks": remarks,
    }


def _colours(groups: Mapping[str, Sequence[Group]]) -> dict[str, int]:
    """A colour number for each label: that of the method if it is free, otherwise the next one."""
    labels = {group.label: group.method for row in groups.values() for group in row}
    free = list(range(len(METHODS)))
    chosen: dict[str, int] = {}
    for label, method in labels.items():
        colour = order_of(method)[0]
        if colour in free:
            free.remove(colour)
            chosen[label] = colour
    for label in labels:
        if label not in chosen:
            chosen[label] = free.pop(0) if free else len(chosen)
    return chosen


def _run(run: Run, label: str, width: int) -> Json:
    seconds = run.metrics.get("seconds", np.empty(0))
    return {
        "env": run.env,
        "label": label,
        "method": run.method,
        "seed": run.seed,
        "finished": run.finished,
        "asked": run.steps,
        "reached": run.reached,
        "minutes": _number(seconds[-1] / 60) if len(seconds) else None,
        "final": _number(run.final_return()),
        "place": run.place,
        "iterations": len(run.metrics["steps"]),
        "axes": {
            "steps": evenly(thin(run.metrics["steps"], width)),
            "iterations": evenly(thin(run.metrics["iteration"], width)),
            "hours": quantised(thin(seconds / 3600, width)),
        },
        "config": public_config(run.flat_config, run.private),
        "starts": public_starts(run.provenance, run.private),
    }


def _baseline(row: Sequence[Group]) -> int:
    """The group that others are compared with at first.

    Plain TRPO, since every method adds its bonus to it: the difference is what the bonus is worth.
    Otherwise the group with the most returns, which gives the narrowest intervals, or the first of
    several. TRPO with fewer than two returns allows no test, and is not chosen.
    """
    returns = [len(final_returns(group.runs)) for group in row]
    plain = [
        group.method == "trpo" and count > 1 for group, count in zip(row, returns, strict=True)
    ]
    return max(range(len(row)), key=lambda k: (plain[k], returns[k]))


def _row(summary: Summary) -> Json:
    first = summary.first_reward
    return {
        "seeds": summary.seeds,
        "unfinished": len(summary.unfinished),
        "silent": len(summary.without_return),
        "mean": summary.mean,
        "iqm": summary.iqm,
        "late": summary.late,
        "solved": summary.solved,
        "first": {
            "seen": summary.rewarded,
            "runs": summary.started,
            "median": None if first is None else _number(first),
        },
        "reference": summary.reference_value,
    }


def _pairs(finals: Sequence[Array]) -> list[list[Json | None]]:
    """[group][other]: the final returns of a group compared with another's; None with too few.

    Holm's correction covers all groups that are compared with the same other group.
    """
    count = len(finals)
    table: list[list[Json | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        for b in range(a + 1, count):
            if min(len(finals[a]), len(finals[b])) < 2:
                continue
            test = welch(finals[a], finals[b])
            better = probability_of_improvement(finals[a], finals[b])
            low, high = probability_of_improvement_interval(finals[a], finals[b])
            table[a][b] = _pair(test.difference, *test.interval, test.p, better, low, high)
            # The reverse comparison is its mirror image.
            mirrored = (-test.interval.high, -test.interval.low, test.p)
            table[b][a] = _pair(-test.difference, *mirrored, 1 - better, 1 - high, 1 - low)
    for other in range(count):
        cells = [cell for row in table if (cell := row[other]) is not None]
        for cell, adjusted in zip(cells, holm([c["p"] or 0.0 for c in cells]), strict=True):
            cell["holm"] = adjusted
    return table


def _pair(*values: float) -> Json:
    names = ("difference", "low", "high", "p", "better", "betterLow", "betterHigh")
    return dict(zip(names, map(_number, values), strict=True))


def _number(value: float) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
