"""Figures and a table of any runs, as `emi report --figures` writes them."""

from collections.abc import Sequence
from pathlib import Path

from emi.durable_file import write_durably
from emi.report.curves import Panel, draw_learning_curves, return_panel
from emi.report.embedding import draw_embedding, draw_error_model
from emi.report.groups import group_runs
from emi.report.load import find_runs
from emi.report.reference import References, reference_for
from emi.report.tables import in_millions, return_table


def write_figures(roots: Sequence[Path], out: Path, references: References) -> list[Path]:
    """Learning curves and a table of all runs below `roots`, and the embeddings of each run."""
    groups, remarks = group_runs(find_runs(roots))
    panels: list[Panel] = []
    parts = []
    for env, row in groups.items():
        reference = reference_for(references, env)
        panels.append(return_panel(env, row, reference))
        summaries = [group.summarise(reference) for group in row]
        lengths = sorted({run.steps for group in row for run in group.runs})
        steps = " and ".join(map(in_millions, lengths))
        parts.append(f"**{env}, {steps} steps**\n\n{return_table(summaries, reference)}")
    written = [draw_learning_curves(panels, out / "learning_curves"), out / "table.md"]
    write_durably(written[-1], "\n".join([*parts, *remarks]).encode())
    for run in (run for row in groups.values() for group in row for run in group.runs):
        if run.embedding is not None:
            written.append(draw_embedding(run, out / run.place / "embedding"))
            written.append(draw_error_model(run, out / run.place / "error_model"))
    return written
