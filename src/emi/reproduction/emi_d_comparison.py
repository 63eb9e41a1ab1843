"""Supplementary figures 1 and 3: EMI-D, which rewards diversity, compared with other methods."""

from dataclasses import replace
from pathlib import Path

from emi.report.tables import return_table
from emi.reproduction.drawing import draw_returns, write_returns
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import ATARI, LOCOMOTION, task

METHODS = ("emi", "emi-d", "ex2", "icm", "rnd", "trpo")


def draw(found: Found, stem: Path) -> list[Path]:
    """Only the tasks with runs of EMI-D: without it there is nothing to compare."""
    compared = {arm.env for arm in found.runs if arm.method == "emi-d"}
    if not compared:
        return []
    found = replace(found, runs={a: runs for a, runs in found.runs.items() if a.env in compared})
    parts, rows = [], []
    for env in found.environments:
        own = [group.summarise(PAPER[env]) for group in found.groups(env)]
        rows += own
        parts.append(f"**{env}**\n\n{return_table(own, PAPER[env])}")
    return [*draw_returns(found, stem), *write_returns(found, stem, "\n".join(parts), rows)]


EXPERIMENT = Experiment(
    name="emi_d_comparison",
    question="Is a bonus for diversity of the embedded states as good as one for prediction error?",
    paper="EMI-D is comparable to EMI in most environments (curves only, no numbers).",
    draw=draw,
    arms=tuple(arm for env in (*LOCOMOTION, *ATARI) for arm in task(env, METHODS)),
)
