"""Table 1: mean final returns of EMI and the others on all eight tasks, beside the paper's."""

from pathlib import Path

from emi.report.tables import (
    Summary,
    csv_row,
    markdown_row,
    return_table,
    summarise_method,
    write_csv,
)
from emi.reproduction.experiment import Experiment, Found, write_page
from emi.reproduction.paper_values import PAPER, TITLES, in_millions
from emi.reproduction.tasks import ATARI, LOCOMOTION, task

# The paper's column AE-SimHash holds plain SimHash's numbers in the first two tasks.
VECTOR_METHODS = ("emi", "ex2", "icm", "rnd", "simhash", "vime", "trpo")
IMAGE_METHODS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "trpo")
COLUMNS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "simhash", "vime", "trpo")


def draw(found: Found, stem: Path) -> list[Path]:
    rows = {
        env: {runs[0].method: summarise_method(runs) for runs in found.of(env)}
        for env in found.environments
    }
    parts = [_overview(rows)]
    for env, methods in rows.items():
        lengths = sorted({row.steps for row in methods.values()})
        heading = f"**{env}, {' and '.join(map(in_millions, lengths))} steps**"
        mark = found.scaled(env)
        parts.append("\n\n".join([heading, *([mark] if mark else []), _table(methods)]))
    page = write_page(found, stem, "\n\n".join(parts))
    summaries = [row for methods in rows.values() for row in methods.values()]
    return [page, write_csv(stem.with_name(f"{stem.name}.csv"), [csv_row(s) for s in summaries])]


def _table(methods: dict[str, Summary]) -> str:
    return return_table(list(methods.values())).strip()


def _overview(rows: dict[str, dict[str, Summary]]) -> str:
    """The paper's own layout, ours / the paper's in every cell."""
    lines = [
        "Mean final return, ours / the paper's:\n",
        markdown_row(["task", *(TITLES[method] for method in COLUMNS)]),
        markdown_row(["---"] + ["---:"] * len(COLUMNS)),
    ]
    for env, paper in PAPER.items():
        methods = rows.get(env, {})
        columns = VECTOR_METHODS if env in LOCOMOTION else IMAGE_METHODS
        cells = []
        for method in COLUMNS:
            ours = f"{methods[method].mean:.{paper.decimals}f}" if method in methods else "–"
            cells.append(f"{ours} / {paper.returns[method]:g}" if method in columns else "")
        lines.append(markdown_row([env + _budget(env, methods), *cells]))
    return "\n".join(lines)


def _budget(env: str, methods: dict[str, Summary]) -> str:
    """The steps of runs that had fewer than the paper's."""
    papers = PAPER[env].steps
    steps = min((row.steps for row in methods.values()), default=papers)
    if papers is None or steps is None or steps >= papers:
        return ""
    return f" ({in_millions(steps)} of {in_millions(papers)} steps)"


EXPERIMENT = Experiment(
    name="table_1",
    question="Does EMI end with a higher return than the other methods, under the same TRPO?",
    paper="EMI is best in six of eight tasks; RND in Venture, AE-SimHash in Solaris. Means of 5 "
    "seeds at 100M (SwimmerGather), 5M (SparseHalfCheetah) and 50M steps; the AE-SimHash and VIME "
    "columns are copied from their own papers.",
    groups=(
        *(group for env in LOCOMOTION for group in task(env, VECTOR_METHODS)),
        *(group for env in ATARI for group in task(env, IMAGE_METHODS)),
    ),
    draw=draw,
)
