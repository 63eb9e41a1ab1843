"""Plans of runs, as `emi plan` writes them into the run directory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from emi.errors import UserError
from emi.report.load import Run
from emi.report.page.encoding import packed, quantised
from emi.report.page.limits import Limits
from emi.report.plan_file import PLAN, Plan, read_plan_file
from emi.report.statistics import Array

Json = dict[str, Any]


def encode_plans(runs: Sequence[Run], limits: Limits) -> tuple[list[Json], list[str]]:
    """The plans that the page holds, and remarks on those left out; low seeds come first."""
    chosen: list[Json] = []
    remarks: list[str] = []
    left_out = 0
    for k in sorted(range(len(runs)), key=lambda k: (runs[k].seed, k)):
        file = runs[k].path / PLAN
        if not file.is_file():
            continue
        try:
            plan = read_plan_file(file)
        except UserError as error:
            remarks.append(f"The plan of {runs[k].place} is not shown: {error}.")
            continue
        if len(chosen) < limits.plans:
            chosen.append({"run": k, **_encoded(plan)})
        else:
            left_out += 1
    if left_out:
        remarks.append(f"A page holds at most {limits.plans} plans: {left_out} are left out.")
    return sorted(chosen, key=lambda plan: plan["run"]), remarks


def _encoded(plan: Plan) -> Json:
    names = ("visited", "plan", "path")
    return {
        "title": plan.title,
        **{name: _points(points) for name, points in zip(names, plan.plane(), strict=True)},
        "distance": packed(plan.distance.astype(np.float32)),
    }


def _points(points: Array) -> Json:
    return {"x": quantised(points[:, 0]), "y": quantised(points[:, 1])}
