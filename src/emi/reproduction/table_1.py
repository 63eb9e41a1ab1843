"""Table 1: mean final returns of EMI and the baselines on all eight tasks, ours and the paper's."""

from pathlib import Path

from emi.intrinsic.table import title_of
from emi.report.summary import Summary
from emi.report.tables import in_millions, markdown_table, return_table
from emi.reproduction.drawing import write_returns
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import ATARI, LOCOMOTION, task

# The paper's column AE-SimHash holds the numbers of plain SimHash in the first two tasks.
VECTOR_METHODS = ("emi", "ex2", "icm", "rnd", "simhash", "vime", "trpo")
IMAGE_METHODS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "trpo")
COLUMNS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "simhash", "vime", "trpo")

Rows = dict[str, dict[str, Summary]]  # by environment and method


def draw(found: Found, stem: Path) -> list[Path]:
    rows: Rows = {
        env: {group.method: group.summarise(PAPER[env]) for group in found.groups(env)}
        for env in found.environments
    }
    parts = ["Mean final return, ours / the paper's:", _overview(rows)]
    for env, methods in rows.items():
        lengths = sorted({row.steps for row in methods.values()})
        parts.append(f"**{env}, {' and '.join(map(in_millions, lengths))} steps**")
        if found.scaled(env):
            parts.append(found.scaled(env))
        parts.append(return_table(list(methods.values()), PAPER[env]).strip())
    summaries = [row for methods in rows.values() for row in methods.values()]
    return write_returns(found, stem, "\n\n".join(parts), summaries)


def _overview(rows: Rows) -> str:
    """The paper's own layout; every cell has our number and the paper's."""
    lines = []
    for env, paper in PAPER.items():
        methods = rows.get(env, {})
        columns = VECTOR_METHODS if env in LOCOMOTION else IMAGE_METHODS
        cells = [
            f"{_mean(methods.get(method), paper.decimals)} / {paper.returns[method]:g}"
            if method in columns
            else ""
            for method in COLUMNS
        ]
        lines.append([env + _budget(paper.steps, methods), *cells])
    return markdown_table(["task", *map(title_of, COLUMNS)], lines)


def _mean(row: Summary | None, decimals: int | None) -> str:
    return "–" if row is None or row.mean is None else f"{row.mean.value:.{decimals}f}"


def _budget(papers: int | None, methods: dict[str, Summary]) -> str:
    """The steps of our runs, if they had fewer than the paper's."""
    steps = min((row.steps for row in methods.values()), default=papers)
    if papers is None or steps is None or steps >= papers:
        return ""
    return f" ({in_millions(steps)} of {in_millions(papers)} steps)"


EXPERIMENT = Experiment(
    name="table_1",
    question="Does EMI end with a higher return than the other methods, with the same TRPO?",
    paper="EMI is best in six of eight tasks; RND in Venture, AE-SimHash in Solaris. Means of 5 "
    "seeds at 100M (SwimmerGather), 5M (SparseHalfCheetah) and 50M steps; the AE-SimHash and VIME "
    "columns are copied from their own papers.",
    draw=draw,
    arms=(
        *(arm for env in LOCOMOTION for arm in task(env, VECTOR_METHODS)),
        *(arm for env in ATARI for arm in task(env, IMAGE_METHODS)),
    ),
)
