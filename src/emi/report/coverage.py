"""What runs visited: the cells, maps and numbers of each group, on one plane per environment.

All groups of an environment share a plane, whose cells are merged until they are as wide as the
widest of any run. Images without positions have no common plane: a group is then shown in the
φ-space of its first run, and counted by distinct frames.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emi.cells import around, counted, entropy, joined, moved
from emi.errors import UserError
from emi.report.embedding import plane as embedding_plane
from emi.report.groups import Group
from emi.report.load import Run
from emi.report.neighbours import kozachenko_leonenko
from emi.report.statistics import Array
from emi.report.visits_file import VisitsPlane, VisitsRecord, read_visits_file

MOST_NEIGHBOURS = 4_000  # states of a run in the estimate of its entropy


@dataclass(frozen=True)
class RunCoverage:
    """The numbers of one run."""

    run: Run
    steps: Array  # [time]
    cells: Array  # [time], visited up to then; empty without a plane
    entropy: float | None  # of the visits over cells, in nats
    density: float | None  # k-nearest-neighbour entropy of the states, in nats
    frames: Array  # [time], distinct images up to then; empty if there are none


@dataclass(frozen=True)
class GroupCoverage:
    """Visits of the runs of a group together, [time, x, y], in each interval of training."""

    label: str
    method: str
    runs: tuple[RunCoverage, ...]
    visits: Array  # empty without a plane
    bonus: Array  # sums
    plane: "Plane | None"


@dataclass(frozen=True)
class Plane:
    """The cells that groups share: edges in the units of the environment, and what is known."""

    x: Array  # [cells + 1]
    y: Array  # [cells + 1]
    names: tuple[str, str]
    free: Array | None  # [x, y]

    @property
    def known(self) -> int | None:
        """Cells that can be visited, if the environment has a map."""
        return None if self.free is None else int(np.count_nonzero(self.free))


@dataclass(frozen=True)
class Coverage:
    """All groups of one environment that recorded their visits, over the same times."""

    env: str
    groups: tuple[GroupCoverage, ...]
    steps: Array  # [time], ends of the intervals
    shared: bool  # whether all groups have the same plane
    sampled: bool  # whether cells were counted in samples, for other axes than recorded


def coverage_of(
    env: str, groups: Sequence[Group], axes: tuple[int, int] | None = None, most_times: int = 64
) -> Coverage | None:
    """The coverage of those runs of an environment that recorded it; None if none did.

    `axes` are columns of the observation to show instead of those recorded. UserError if the runs
    have no plane in common.
    """
    records = {
        run.path: read_visits_file(run.visits)
        for group in groups
        for run in group.runs
        if run.visits is not None
    }
    if not records:
        return None
    steps = _times(list(records.values()), most_times)
    if axes is not None:
        records = {path: _projected(record, axes) for path, record in records.items()}
    planes = [record.plane for record in records.values()]
    shared = all(plane is not None for plane in planes)
    common = _common(env, [plane for plane in planes if plane is not None]) if shared else None
    varying = _varying(list(records.values()))
    found = []
    for group in groups:
        own = [run for run in group.runs if run.path in records]
        if own:
            mine = [records[run.path] for run in own]
            found.append(_group(group.label, own, mine, common, steps, varying))
    return Coverage(env, tuple(found), steps, shared, axes is not None)


def _times(records: Sequence[VisitsRecord], most: int) -> Array:
    """Ends of the intervals: those of the longest record, merged until there are at most `most`."""
    longest = max(records, key=lambda record: int(record.steps[-1])).steps
    width = -(-len(longest) // most)
    return np.append(longest[width - 1 : -1 : width], longest[-1])


def _group(
    label: str,
    runs: Sequence[Run],
    records: Sequence[VisitsRecord],
    common: VisitsPlane | None,
    steps: Array,
    varying: Array,
) -> GroupCoverage:
    fitted = [_on(record, common) for record in records]
    numbers = tuple(_numbers(run, r, varying) for run, r in zip(runs, fitted, strict=True))
    shown = fitted if common is not None else _in_phi(records)
    visits = bonus = np.zeros((len(steps), 0, 0))
    plane = None
    if shown:
        assert shown[0].plane is not None
        plane = _edges(shown[0].plane)
        shape = (len(steps), *shown[0].plane.grid.shape)
        visits, bonus = np.zeros(shape, np.int64), np.zeros(shape)
        for record in shown:
            assert record.plane is not None
            place = np.minimum(np.searchsorted(steps, record.steps), len(steps) - 1)
            np.add.at(visits, place, record.plane.visits)
            np.add.at(bonus, place, record.plane.bonus)
    return GroupCoverage(label, runs[0].method, numbers, visits, bonus, plane)


def _numbers(run: Run, record: VisitsRecord, varying: Array) -> RunCoverage:
    plane, vectors = record.plane, record.states
    cells, spread = np.empty(0), None
    if plane is not None:
        cells = np.count_nonzero(plane.visits.cumsum(0), axis=(1, 2))
        spread = entropy(plane.visits.sum(0))
    density = None
    if vectors.ndim == 2 and len(vectors) > 3 and varying.any():
        some = np.linspace(0, len(vectors) - 1, min(len(vectors), MOST_NEIGHBOURS)).astype(int)
        found = kozachenko_leonenko(vectors[some][:, varying])
        density = found if np.isfinite(found) else None
    frames = np.empty(0) if record.frames is None else record.frames
    return RunCoverage(run, record.steps, cells, spread, density, frames)


def _varying(records: Sequence[VisitsRecord]) -> Array:
    """[D]: the columns that are not the same in all states of all runs; none of them of images."""
    first = records[0].states
    if first.ndim != 2 or any(r.states.shape[1:] != first.shape[1:] for r in records):
        return np.zeros(0, bool)
    return np.logical_or.reduce([(record.states != first[0]).any(0) for record in records])


def _common(env: str, planes: Sequence[VisitsPlane]) -> VisitsPlane:
    """A plane without visits that contains all of these; UserError if they are not comparable."""
    first = planes[0]
    for plane in planes[1:]:
        if plane.names != first.names or not np.array_equal(plane.unit, first.unit):
            raise UserError(
                f"the runs of {env} recorded different axes ({', '.join(first.names)} and "
                f"{', '.join(plane.names)}): show them separately, or choose columns with --axes"
            )
    grid = functools.reduce(joined, [plane.grid for plane in planes])
    maps = [plane.free for plane in planes if plane.free is not None]
    free = None
    if len(maps) == len(planes) and all(found.shape == grid.shape for found in maps):
        free = np.logical_or.reduce(maps)
    return replace(first, grid=grid, free=free)


def _on(record: VisitsRecord, common: VisitsPlane | None) -> VisitsRecord:
    """The record with its visits in the cells of the common plane, or without a plane."""
    own = record.plane
    if own is None or common is None:
        return replace(record, plane=None)
    visits, bonus = (moved(sums, own.grid, common.grid) for sums in (own.visits, own.bonus))
    return replace(record, plane=replace(common, visits=visits, bonus=bonus))


def _projected(record: VisitsRecord, axes: tuple[int, int]) -> VisitsRecord:
    """The record on the plane of two columns of the sampled states."""
    if record.states.ndim != 2 or max(axes) >= record.states.shape[1]:
        columns = "none" if record.states.ndim != 2 else f"0 to {record.states.shape[1] - 1}"
        raise UserError(f"--axes must be columns of the observation, which has {columns}")
    names = (f"observation {axes[0]}", f"observation {axes[1]}")
    return _binned(record, record.states[:, list(axes)], names)


def _in_phi(records: Sequence[VisitsRecord]) -> list[VisitsRecord]:
    """The first record that has embeddings, on the plane of φ; an empty list if none has."""
    for record in records:
        if record.phi is not None:
            points, names = embedding_plane(record.phi, record.state_slot)
            return [_binned(record, points, names)]
    return []


def _binned(record: VisitsRecord, points: Array, names: tuple[str, str]) -> VisitsRecord:
    """The record with sampled points [n, 2] counted in cells, wider ones than for all visits."""
    x, y = around(points).exponent
    grid = around(points, (x + 1, y + 1))
    parts = [record.state_slot == slot for slot in range(len(record.steps))]
    visits = np.stack([counted(points[part], grid) for part in parts])
    bonus = np.stack([counted(points[part], grid, record.state_bonus[part]) for part in parts])
    unit = np.array([[0.0, 0.0], [1.0, 1.0]])
    return replace(record, plane=VisitsPlane(grid, unit, names, visits, bonus, None))


def _edges(plane: VisitsPlane) -> Plane:
    low, size = plane.unit
    x, y = (low[axis] + size[axis] * plane.grid.edges(axis) for axis in (0, 1))
    return Plane(x, y, plane.names, plane.free)


def cells_text(group: GroupCoverage) -> str:
    """`197.5 of 441`: the mean over runs of the cells visited, and how many there are."""
    if group.plane is None or not all(len(run.cells) for run in group.runs):
        return "–"
    mean = float(np.mean([run.cells[-1] for run in group.runs]))
    text, known = f"{mean:,.1f}".removesuffix(".0"), group.plane.known
    return text if known is None else f"{text} of {known:,}"


def coverage_rows(found: Coverage) -> list[dict[str, str]]:
    """One row per group: means over its seeds."""

    def mean(values: Sequence[float | None], digits: int) -> str:
        known = [value for value in values if value is not None]
        return f"{np.mean(known):,.{digits}f}" if known else "–"

    rows = []
    for group in found.groups:
        frames = [float(run.frames[-1]) if len(run.frames) else None for run in group.runs]
        rows.append(
            {
                "method": group.label,
                "seeds": str(len(group.runs)),
                "steps": f"{min(int(run.steps[-1]) for run in group.runs):,}",
                "cells visited": cells_text(group),
                "entropy over cells (nats)": mean([run.entropy for run in group.runs], 2),
                "k-NN entropy (nats)": mean([run.density for run in group.runs], 2),
                "distinct frames": mean(frames, 0),
            }
        )
    return rows
