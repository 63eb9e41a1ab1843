"""Groups of runs: one line in a figure, one row in a table.

A group holds the runs of one method in one environment that differ only in their seed. The same
method with other settings, or with another number of steps, is another group.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emi.intrinsic.table import title_of
from emi.report.load import NOT_SETTINGS, FoundRuns, Run, numbered
from emi.report.privacy import public_config
from emi.report.reference import Reference
from emi.report.summary import Summary, summarise
from emi.report.tables import in_millions

PAPER = "paper"  # the preset that published returns belong to
MOST_NAMED_SETTINGS = 3  # in the label of a group; with more it gets a number instead
# A setting that a label can show; a dollar would begin a formula in a figure.
SHORT_SETTING = re.compile(r"[^$|\\]{1,80}")


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, under one label."""

    label: str
    runs: Sequence[Run]
    preset: bool  # whether they have the settings of the method's preset

    @property
    def method(self) -> str:
        return self.runs[0].method

    def reference_value(self, reference: Reference) -> float | None:
        """The published return of the method, which belongs to its preset."""
        return reference.returns.get(self.method) if self.preset else None

    def summarise(self, reference: Reference) -> Summary:
        value = self.reference_value(reference)
        return summarise(self.runs, reference, label=self.label, reference_value=value)


def is_preset(runs: Iterable[Run]) -> bool:
    """Whether any run used the paper's preset unchanged; then all runs with its settings did."""
    return any(run.changed == [] and run.flat_config.get("preset") in (None, PAPER) for run in runs)


def group_runs(found: FoundRuns) -> tuple[dict[str, list[Group]], list[str]]:
    """Groups by environment, in the order of the runs, and remarks for the reader.

    They are about what cannot be read, and about copied and repeated runs.
    """
    remarks = [problem.remark for problem in found.problems]
    variants: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in found.runs:
        settings = json.dumps(run.settings, sort_keys=True)
        of_method = variants.setdefault((run.env, run.method), {})
        of_method.setdefault(settings, []).append(run)
    groups: dict[str, list[Group]] = {}
    for (env, method), by_settings in variants.items():
        # The preset comes first: other groups are compared with the first one by default.
        ordered = sorted(by_settings.values(), key=lambda runs: not is_preset(runs))
        for name, members in zip(_variant_names(ordered), ordered, strict=True):
            label = f"{title_of(method)} ({name})" if name else title_of(method)
            groups.setdefault(env, []).extend(_split_repeats(label, members, remarks))
    return groups, remarks


def _variant_names(variants: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each variant of one method: `eta=0.1`, or nothing for the preset.

    Variants are named by the settings in which they differ from the preset. Without a run of the
    preset, they are named by the settings in which they differ from each other or were changed.
    """
    firsts = [runs[0] for runs in variants]
    configs = [public_config(run.flat_config, run.private) for run in firsts]
    every = list(dict.fromkeys(key for config in configs for key in config))
    keys = _differing([key for key in every if key not in NOT_SETTINGS], configs)
    presets = [c for c, runs in zip(configs, variants, strict=True) if is_preset(runs)]
    between_presets = _differing(keys, presets)  # the number of steps
    endings = Counter(key.rpartition(".")[2] for key in every)
    names = []
    for run, config in zip(firsts, configs, strict=True):
        named = config.get("preset") or PAPER
        if named != PAPER and run.changed is not None:
            own = [key for key in every if key in run.changed and key not in NOT_SETTINGS]
        elif presets:
            own = [k for k in keys if k in between_presets or config.get(k) != presets[0].get(k)]
        else:
            own = [key for key in every if key in keys or key in (run.changed or ())]
        parts = [
            _setting(key, config.get(key), whole=endings[key.rpartition(".")[2]] > 1) for key in own
        ]
        parts = parts if named == PAPER else [str(named), *parts]
        few = len(parts) <= MOST_NAMED_SETTINGS and all(map(SHORT_SETTING.fullmatch, parts))
        names.append(", ".join(parts) if few else None)
    return numbered(names, "settings")


def _differing(keys: Iterable[str], configs: Sequence[dict[str, Any]]) -> list[str]:
    return [key for key in keys if len({json.dumps(c.get(key)) for c in configs}) > 1]


def _setting(key: str, value: Any, *, whole: bool) -> str:
    """`eta=0.1`; with the `whole` dotted key where its last part is ambiguous."""
    if key == "steps":
        return f"{in_millions(value)} steps"
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')
    return f"{key if whole else key.rpartition('.')[2]}={text}"


def _split_repeats(label: str, runs: Sequence[Run], remarks: list[str]) -> list[Group]:
    """One group, or one per folder if a seed was run twice: a repeat is no independent seed."""
    kept: list[Run] = []
    for run in runs:
        if any(run.seed == other.seed and run.same_metrics(other) for other in kept):
            remarks.append(f"{run.place} is a copy of a run that is shown.")
        else:
            kept.append(run)
    if _distinct_seeds(kept):
        return [Group(label, kept, is_preset(runs))]
    remarks.append(f"{label} has seeds that were run more than once; they are shown separately.")
    folders: dict[Path, list[Run]] = {}
    for run in kept:
        folders.setdefault(run.path.resolve().parent, []).append(run)
    named: list[tuple[str, list[Run]]] = []
    for row in folders.values():
        others = {part for other in folders.values() if other is not row for part in _above(other)}
        own = " ".join(part for part in _above(row) if part not in others)
        name = f"{label}, {own}" if own else label
        if _distinct_seeds(row):
            named.append((name, row))
        else:  # twice in one folder: only the names of the run directories differ
            named += [(f"{name}, {Path(run.place).name}", [run]) for run in row]
    labels = numbered([name for name, _ in named], label)
    preset = is_preset(runs)
    return [Group(own, row, preset) for own, (_, row) in zip(labels, named, strict=True)]


def _distinct_seeds(runs: Sequence[Run]) -> bool:
    return len({run.seed for run in runs}) == len(runs)


def _above(row: Sequence[Run]) -> tuple[str, ...]:
    return Path(row[0].place).parent.parts
