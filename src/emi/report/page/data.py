"""Everything the page shows, as plain values ready for JSON: runs, groups of runs, comparisons.

A group is what one line and one row stand for: the runs of one method in one environment that
differ only in their seed. The same method with other settings is another group.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emi.report.comparison import (
    holm,
    probability_of_improvement,
    probability_of_improvement_interval,
    welch,
)
from emi.report.first_reward import first_reward, median_first_reward
from emi.report.load import NOT_SETTINGS, Run, load_run, same_metrics
from emi.report.page.encoding import evenly, quantised
from emi.report.page.privacy import clean, private_words, public_config, public_starts
from emi.report.statistics import (
    Array,
    bootstrap_band,
    bootstrap_interval,
    interquartile_mean,
    on_common_steps,
    stratified_bootstrap,
    wilson_interval,
)
from emi.report.tables import LAST_ITERATIONS
from emi.reproduction.paper_values import METHOD_ORDER, PAPER, TITLES, PaperValues, in_millions

# What a curve can show, by column of metrics.csv.
MEASURES = {
    "return_mean": "mean return",
    "return_max": "best return",
    "bonus_mean": "mean bonus",
}
MOST_POINTS = 500  # of a curve: more than that many a screen shows as a smear
MOST_NAMED_SETTINGS = 3  # in the name of a group; beyond, its number has to do


@dataclass(frozen=True)
class Found:
    """A run and where it stood."""

    directory: Path
    place: str  # below what the user gave, for readers of the page
    run: Run
    private: frozenset[str]  # names of people and hosts that its files mention

    @property
    def settings(self) -> str:
        return json.dumps(self.run.settings, sort_keys=True)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, under one name."""

    label: str
    members: tuple[Found, ...]

    @property
    def method(self) -> str:
        return self.members[0].run.method


def find_runs(roots: Sequence[Path]) -> list[Found]:
    """All runs in and below these folders, each once, by environment, method, seed and place."""
    found: dict[Path, Found] = {}
    roots = list({root.resolve(): root for root in roots}.values())
    for root, shown in zip(roots, _shown_roots(roots), strict=True):
        if not root.exists():
            raise ValueError(f"there is no {root}: give the folder of a run, a sweep or results")
        directories = sorted({path.parent for path in root.rglob("metrics.csv*")})
        if not directories:
            raise ValueError(f"no runs in {root}: give a folder that holds metrics.csv files")
        for directory in directories:
            found.setdefault(directory.resolve(), _read(root, directory, shown))
    return sorted(
        found.values(), key=lambda f: (f.run.env, _order(f.run.method), f.run.seed, f.place)
    )


def _shown_roots(roots: Sequence[Path]) -> list[str]:
    """What is said of where they lie: where on this machine is nobody's business."""
    names = [
        root.resolve().name if root.is_absolute() or ".." in root.parts else root.as_posix()
        for root in roots
    ]
    return _numbered(names, "folder")


def _read(root: Path, directory: Path, shown_root: str) -> Found:
    run = load_run(directory)
    private = private_words(run.provenance, run.config, str(directory.resolve()))
    # Part by part: none is a path, whatever stands before it.
    parts = (shown_root / directory.relative_to(root)).parts
    return Found(directory, "/".join(clean(part, private) for part in parts), run, private)


def _order(method: str) -> tuple[int, str]:
    known = METHOD_ORDER.index(method) if method in METHOD_ORDER else len(METHOD_ORDER)
    return known, method


def group_runs(found: Iterable[Found]) -> tuple[dict[str, list[Group]], list[str]]:
    """Groups by environment in the paper's order, and remarks about runs that were left out."""
    remarks: list[str] = []
    cells: dict[tuple[str, str], dict[str, list[Found]]] = {}
    for one in found:
        variants = cells.setdefault((one.run.env, one.run.method), {})
        variants.setdefault(one.settings, []).append(one)
    groups: dict[str, list[Group]] = {}
    for (env, method), found_variants in cells.items():
        # The method as it is comes before its variants, and is what others are compared with.
        ordered = sorted(found_variants.values(), key=lambda members: not _as_preset(members))
        title = TITLES.get(method, method)
        for name, members in zip(_variant_names(ordered), ordered, strict=True):
            label = f"{title} ({name})" if name else title
            groups.setdefault(env, []).extend(_split_repeats(label, members, remarks))
    return groups, remarks


def _as_preset(members: Sequence[Found]) -> bool:
    """Is this the method as it is? One who typed nothing shows that what others typed is it too."""
    return any(not one.run.changed for one in members)


def _variant_names(variants: Sequence[Sequence[Found]]) -> list[str]:
    """What tells one method's settings apart: `eta=0.1`; empty for the method as it is."""
    firsts = [members[0] for members in variants]
    configs = [public_config(one.run.config, one.private) for one in firsts]
    every = list(dict.fromkeys(key for config in configs for key in config))
    keys = _differing([key for key in every if key not in NOT_SETTINGS], configs)
    presets = [c for c, members in zip(configs, variants, strict=True) if _as_preset(members)]
    between_presets = _differing(keys, presets)
    ends = Counter(key.rpartition(".")[2] for key in every)
    names = []
    for one, config in zip(firsts, configs, strict=True):
        if presets:
            own = [k for k in keys if k in between_presets or config.get(k) != presets[0].get(k)]
        else:
            own = [key for key in every if key in keys or key in one.run.changed]
        parts = [
            _setting(key, config.get(key), whole=ends[key.rpartition(".")[2]] > 1) for key in own
        ]
        names.append(", ".join(parts) if len(parts) <= MOST_NAMED_SETTINGS else None)
    return _numbered(names, "settings")


def _differing(keys: Iterable[str], configs: Sequence[dict[str, Any]]) -> list[str]:
    return [key for key in keys if len({json.dumps(c.get(key)) for c in configs}) > 1]


def _numbered(names: Sequence[str | None], instead: str) -> list[str]:
    """The names; where there is none, or another has it too, a number tells them apart."""
    return [
        name if name is not None and names.count(name) == 1 else f"{name or instead} {number}"
        for number, name in enumerate(names, 1)
    ]


def _setting(key: str, value: Any, *, whole: bool) -> str:
    """`eta=0.1`; the `whole` key where its end alone could be another's."""
    if key == "steps":
        return f"{in_millions(value)} steps"
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')
    return f"{key if whole else key.rpartition('.')[2]}={text}"


def _split_repeats(label: str, members: list[Found], remarks: list[str]) -> list[Group]:
    """One group; one per folder when a seed was run twice: repeats are not independent seeds."""
    kept: list[Found] = []
    for one in members:
        if any(one.run.seed == o.run.seed and same_metrics(one.run, o.run) for o in kept):
            remarks.append(f"{one.place} is a copy of a run that is shown.")
        else:
            kept.append(one)
    if len({one.run.seed for one in kept}) == len(kept):
        return [Group(label, tuple(kept))]
    remarks.append(f"{label} has seeds that were run more than once; they are kept apart.")
    folders: dict[Path, list[Found]] = {}
    for one in kept:
        folders.setdefault(one.directory.resolve().parent, []).append(one)
    named: list[tuple[str, list[Found]]] = []
    for row in folders.values():
        others = {part for other in folders.values() if other is not row for part in _above(other)}
        own = " ".join(part for part in _above(row) if part not in others)
        name = f"{label}, {own}" if own else label
        if len({one.run.seed for one in row}) == len(row):
            named.append((name, row))
        else:  # twice in one folder: then only the places can tell them apart
            named += [(f"{name}, {Path(one.place).name}", [one]) for one in row]
    labels = _numbered([name for name, _ in named], label)
    return [Group(own, tuple(row)) for own, (_, row) in zip(labels, named, strict=True)]


def _above(row: Sequence[Found]) -> tuple[str, ...]:
    return Path(row[0].place).parent.parts


def describe(groups: dict[str, list[Group]], remarks: list[str]) -> dict[str, Any]:
    """The page's data but for the samples; `runs` are numbered in the order of the groups."""
    members = [one for row in groups.values() for group in row for one in group.members]
    number = {one.directory: k for k, one in enumerate(members)}
    envs, runs = [], []
    for env, row in groups.items():
        together = max(math.ceil(_iterations(g) / MOST_POINTS) for g in row) or 1
        envs.append(
            {
                "name": env,
                "together": together,
                "decimals": PAPER[env].decimals if env in PAPER else None,
                "solvedAbove": PAPER.get(env, PaperValues()).solved_above,
                "paperSteps": PAPER.get(env, PaperValues()).steps,
                "groups": [
                    _describe_group(env, group, together)
                    | {"runs": [number[one.directory] for one in group.members]}
                    for group in row
                ],
                "pairs": _pairs([_finals(group) for group in row]),
            }
        )
        runs += [
            _describe_run(one, group.label, together) for group in row for one in group.members
        ]
    return {
        "measures": MEASURES,
        "lastIterations": LAST_ITERATIONS,
        "colours": _colours(groups),
        "envs": envs,
        "runs": runs,
        "remarks": remarks,
    }


def _colours(groups: dict[str, list[Group]]) -> dict[str, int]:
    """A colour's number for each label, the method's own if it is free; beyond nine they repeat."""
    labels = {group.label: group.method for row in groups.values() for group in row}
    free = list(range(len(METHOD_ORDER)))
    chosen: dict[str, int] = {}
    own = {label: _order(method)[0] for label, method in labels.items()}
    for label, colour in own.items():
        if colour in free:
            free.remove(colour)
            chosen[label] = colour
    for label in labels:
        if label not in chosen:
            chosen[label] = free.pop(0) if free else len(chosen)
    return chosen


def _iterations(group: Group) -> int:
    return max(len(one.run.metrics["iteration"]) for one in group.members)


def thinned(values: Array, together: int) -> Array:
    """[n] to [⌈n / together⌉]: means of `together` neighbours; NaN counts only among NaN.

    >>> thinned(np.array([1.0, 3.0, np.nan, 4.0, 5.0]), 2).tolist()
    [2.0, 4.0, 5.0]
    """
    if together == 1:
        return values
    padding = -len(values) % together
    table = np.append(values, np.full(padding, np.nan)).reshape(-1, together)
    known = ~np.isnan(table)
    total, count = np.where(known, table, 0).sum(1), known.sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _describe_run(one: Found, label: str, together: int) -> dict[str, Any]:
    run = one.run
    steps, seconds = run.metrics["steps"], run.metrics.get("seconds")
    curves = {
        name: quantised(thinned(run.metrics[name], together))
        for name in MEASURES
        if name in run.metrics
    }
    return {
        "env": run.env,
        "label": label,
        "method": run.method,
        "seed": run.seed,
        "finished": run.finished,
        "asked": run.steps,
        "reached": float(steps[-1]) if len(steps) else 0.0,
        "iterations": len(steps),
        "minutes": _number(seconds[-1] / 60) if seconds is not None and len(seconds) else None,
        "final": _number(run.final_return()),
        "place": one.place,
        "steps": evenly(thinned(steps, together)),
        "curves": curves,
        "config": public_config(run.config, one.private),
        "starts": public_starts(run.provenance, one.private),
    }


def _describe_group(env: str, group: Group, together: int) -> dict[str, Any]:
    paper, runs = PAPER.get(env, PaperValues()), [one.run for one in group.members]
    curves = {
        name: curve for name in MEASURES if (curve := _mean_curve(runs, name, together)) is not None
    }
    return {
        "label": group.label,
        "method": group.method,
        "curves": curves,
        # The paper's number is that of the whole method as the paper has it, not of a variant.
        "row": _row(runs, paper)
        | {"paper": paper.returns.get(group.method) if _as_preset(group.members) else None},
    }


def _mean_curve(runs: Sequence[Run], name: str, together: int) -> dict[str, Any] | None:
    """The mean over seeds and its interval, as far as all of them got; None without a value."""
    known = [
        (thinned(run.metrics["steps"], together), thinned(run.metrics[name], together))
        for run in runs
        if name in run.metrics and np.isfinite(run.metrics[name]).any()
    ]
    if not known:
        return None
    steps, values = on_common_steps([s for s, _ in known], [v for _, v in known])
    if len(steps) == 0:  # no step that all runs share
        return None
    curve = {"steps": evenly(steps), "mean": quantised(values.mean(0)), "seeds": len(known)}
    if len(known) > 1:
        low, high = bootstrap_band(values)
        curve |= {"low": quantised(low), "high": quantised(high)}
    return curve


def _finals(group: Group) -> Array:
    return _known([one.run.final_return() for one in group.members])


def _known(values: Sequence[float]) -> Array:
    """Without NaN: a run in which no episode ended has no return."""
    array = np.array(values)
    return array[~np.isnan(array)]


def _row(runs: Sequence[Run], paper: PaperValues) -> dict[str, Any]:
    final = _known([run.final_return() for run in runs])
    late = _known([run.final_return(LAST_ITERATIONS) for run in runs])
    first = [
        first_reward(
            run.metrics["steps"], run.metrics.get("return_max", run.metrics["return_mean"])
        )
        for run in runs
        if len(run.metrics["steps"])
    ]
    row: dict[str, Any] = {
        "seeds": len(runs),
        "unfinished": sum(not run.finished for run in runs),
        "silent": len(runs) - len(final),  # runs without a finished episode
        "mean": None,
        "iqm": None,
        "late": _number(float(late.mean())) if len(late) else None,
        "solved": None,
        "first": {
            "seen": sum(one.seen for one in first),
            "runs": len(first),
            "median": _number(median_first_reward(first)) if first else None,
        },
    }
    if len(final):
        row["mean"] = [float(final.mean()), *bootstrap_interval(final)]
        row["iqm"] = [interquartile_mean(final), *stratified_bootstrap([final], interquartile_mean)]
    if len(final) and paper.solved_above is not None:
        solved = int((final > paper.solved_above).sum())
        row["solved"] = [solved, len(final), *wilson_interval(solved, len(final))]
    return row


def _pairs(finals: Sequence[Array]) -> list[list[dict[str, float | None] | None]]:
    """[group][reference]: the group's final returns against the reference's; None if too few.

    Holm's correction is over all groups that are compared with one reference.
    """
    count = len(finals)
    table: list[list[dict[str, float | None] | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        for b in range(a + 1, count):
            if min(len(finals[a]), len(finals[b])) < 2:
                continue
            test = welch(finals[a], finals[b])
            better = probability_of_improvement(finals[a], finals[b])
            low, high = probability_of_improvement_interval(finals[a], finals[b])
            table[a][b] = _pair(test.difference, *test.interval, test.p, better, low, high)
            # The other way round is the same comparison, mirrored.
            table[b][a] = _pair(
                -test.difference,
                -test.interval.high,
                -test.interval.low,
                test.p,
                1 - better,
                1 - high,
                1 - low,
            )
    for reference in range(count):
        cells = [cell for row in table if (cell := row[reference]) is not None]
        for cell, adjusted in zip(cells, holm([c["p"] or 0.0 for c in cells]), strict=True):
            cell["holm"] = adjusted
    return table


def _pair(*values: float) -> dict[str, float | None]:
    names = ("difference", "low", "high", "p", "better", "betterLow", "betterHigh")
    return dict(zip(names, map(_number, values), strict=True))


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None
