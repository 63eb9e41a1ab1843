"""Ours: the same seed and settings at two commits whose linear algebra differs in rounding."""

from pathlib import Path

from emi.report.curves import Panel, draw_learning_curves
from emi.report.tables import markdown_row, write_csv
from emi.reproduction.experiment import Experiment, Found, Group, write_page
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, CHEETAH_STEPS

GROUPS = (
    Group(CHEETAH_FOLDER, CHEETAH, "emi", (0,), CHEETAH_STEPS, label="as it is"),
    Group("rounding", CHEETAH, "emi", (0,), CHEETAH_STEPS, label="at an earlier commit", past=True),
)


def draw(found: Found, stem: Path) -> list[Path]:
    panels = [Panel(group.title, runs) for group, runs in found.runs.items()]
    lines = [markdown_row(["seed 0 of EMI", "final return"]), markdown_row(["---", "---:"])]
    rows: list[dict[str, object]] = []
    for group, (run,) in found.runs.items():
        lines.append(markdown_row([group.title, f"{run.final_return():.1f}"]))
        rows.append({"variant": group.title, "seed": run.seed, "final_return": run.final_return()})
    page = write_page(found, stem, "\n".join(lines))
    pictures = draw_learning_curves({f"{CHEETAH}, EMI": panels}, stem, title=found.scaled())
    return [*pictures, page, write_csv(stem.with_name(f"{stem.name}.csv"), rows)]


EXPERIMENT = Experiment(
    name="rounding",
    question="How far apart do two runs end that differ in the ninth digit of their first row?",
    paper="does not look at this.",
    groups=GROUPS,
    draw=draw,
)
