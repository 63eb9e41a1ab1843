"""Maps of visits and of the bonus for the page: one block per environment, decoded on demand.

A block has two lines: JSON that describes the maps, and the arrays of all groups one after the
other, visits [time, x, y] as 32-bit integers and then the sums of the bonus as 32-bit floats.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from emi.errors import UserError
from emi.report.coverage import Coverage, GroupCoverage, Plane, coverage_of, coverage_rows
from emi.report.groups import Group
from emi.report.page.encoding import deflated
from emi.report.page.limits import Limits
from emi.report.statistics import Array

Json = dict[str, Any]
FEWEST_TIMES = 4


class EncodedCoverage(NamedTuple):
    """The maps of environment `env`, a number, as the text of their block."""

    env: int
    block: str


def encode_coverage(
    groups: Mapping[str, Sequence[Group]], limits: Limits
) -> tuple[list[EncodedCoverage], list[str]]:
    """The maps of every environment whose runs recorded their visits, and remarks."""
    encoded, remarks = [], []
    for number, (env, row) in enumerate(groups.items()):
        try:
            found = coverage_of(env, row, most_times=limits.times)
            if found is not None:
                cells = sum(group.visits[0].size for group in found.groups)
                most = limits.cells // max(1, cells)
                if most < len(found.steps):
                    found = coverage_of(env, row, most_times=max(FEWEST_TIMES, most))
        except UserError as error:
            remarks.append(f"The visited states of {env} are not shown: {error}.")
            continue
        if found is not None:
            encoded.append(EncodedCoverage(number, _block(found)))
    return encoded, remarks


def _block(found: Coverage) -> str:
    described = {
        "steps": found.steps.tolist(),
        "shared": found.shared,
        "rows": coverage_rows(found),
        "groups": [_group(group) for group in found.groups],
    }
    text = json.dumps(described, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = [part for group in found.groups for part in _arrays(group)]
    return f"{deflated(text.encode())}\n{deflated(b''.join(parts))}"


def _group(group: GroupCoverage) -> Json:
    plane = group.plane
    return {
        "label": group.label,
        "seeds": len(group.runs),
        "plane": None if plane is None else _plane(plane),
        "frames": [_ints(run.frames) for run in group.runs],
        "runSteps": [_ints(run.steps) for run in group.runs],
        "cells": [_ints(run.cells) for run in group.runs],
    }


def _plane(plane: Plane) -> Json:
    return {
        "x": [float(plane.x[0]), float(plane.x[-1])],
        "y": [float(plane.y[0]), float(plane.y[-1])],
        "shape": [len(plane.x) - 1, len(plane.y) - 1],
        "names": plane.names,
        "free": None if plane.free is None else plane.free.ravel().astype(int).tolist(),
    }


def _ints(values: Array) -> list[int]:
    return np.rint(values).astype(np.int64).tolist()


def _arrays(group: GroupCoverage) -> tuple[bytes, bytes]:
    largest = np.iinfo(np.uint32).max
    visits = np.minimum(group.visits, largest).astype("<u4")
    return visits.tobytes(), group.bonus.astype("<f4").tobytes()
