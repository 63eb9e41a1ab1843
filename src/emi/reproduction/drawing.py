"""Drawings that several experiments share: learning curves, tables, embedding samples."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from emi.durable_file import write_durably
from emi.report.curves import draw_learning_curves, return_panel
from emi.report.reference import reference_for
from emi.report.summary import Summary
from emi.report.tables import csv_row, markdown_table, return_table, with_ending, write_csv
from emi.reproduction.experiment import Found
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import CHEETAH


def draw_returns(found: Found, stem: Path) -> list[Path]:
    """Learning curves: one panel for each environment."""
    panels = [
        return_panel(env, found.groups(env), reference_for(PAPER, env))
        for env in found.environments
    ]
    return [draw_learning_curves(panels, stem, title=found.scaled())]


def draw_variants(found: Found, stem: Path, heading: str) -> list[Path]:
    """Learning curves of variants on SparseHalfCheetah under `heading`, and their table."""
    groups, paper = found.groups(CHEETAH), PAPER[CHEETAH]
    panel = return_panel(heading, groups, paper)
    figure = draw_learning_curves([panel], stem, title=found.scaled())
    rows = [group.summarise(paper) for group in groups]
    return [figure, *write_returns(found, stem, return_table(rows, paper), rows)]


def write_returns(found: Found, stem: Path, body: str, rows: Sequence[Summary]) -> list[Path]:
    """Write `body` as Markdown and the numbers of `rows` as CSV."""
    return [write_markdown(found, stem, body), write_csv(stem, [*map(csv_row, rows)])]


def write_markdown(found: Found, stem: Path, body: str, scaled: str = "") -> Path:
    """Write `stem`.md: the question, a note on scaled runs, the body, what the paper says."""
    scaled = scaled or found.scaled()
    parts = [
        found.experiment.question,
        *([f"**{scaled}**"] if scaled else []),
        body.strip(),
        f"The paper: {found.experiment.paper}",
    ]
    path = with_ending(stem, "md")
    write_durably(path, ("\n\n".join(parts) + "\n").encode())
    return path


def table_of(rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table of rows with the same keys, which are its header."""
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows])


def draw_samples(found: Found, stem: Path, draw: Callable[..., Path]) -> list[Path]:
    """`draw` for each available embedding sample, as `<stem>_<environment>`."""
    return [
        draw(run, stem.with_name(f"{stem.name}_{run.env}"), note=found.scaled(run.env))
        for run in found.samples
    ]
