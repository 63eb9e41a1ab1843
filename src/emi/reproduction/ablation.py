"""Figure 4(c): EMI without its information term, without its error model, and whole."""

from pathlib import Path

from emi.report.curves import Panel, draw_learning_curves
from emi.report.tables import csv_row, markdown_row, return_table, summarise, write_csv
from emi.reproduction.experiment import Experiment, Found, Group, write_page
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, CHEETAH_STEPS, SEEDS


def _group(folder: str, label: str, *settings: str) -> Group:
    return Group(folder, CHEETAH, "emi", SEEDS, CHEETAH_STEPS, settings, label)


GROUPS = (
    _group("ablation_no_information", "no information term", "intrinsic.information_term=false"),
    _group("ablation_no_error_model", "no error model", "intrinsic.error_model=false"),
    _group(CHEETAH_FOLDER, "EMI"),
)


def draw(found: Found, stem: Path) -> list[Path]:
    """Returns above, and below them the length of φ: an embedding that collapses has none."""
    returns = [Panel(group.title, runs, _papers(group)) for group, runs in found.runs.items()]
    lengths = [
        Panel(group.title, runs, metric="emi/state_norm", meaning="mean ‖φ(s)‖")
        for group, runs in found.runs.items()
    ]
    pictures = draw_learning_curves(
        {CHEETAH: returns, "embedding": lengths}, stem, title=found.scaled()
    )
    rows = [
        summarise(runs, label=group.title, paper=_papers(group))
        for group, runs in found.runs.items()
    ]
    page = write_page(found, stem, f"{return_table(rows)}\n{_lengths(found)}")
    return [*pictures, page, write_csv(stem.with_name(f"{stem.name}.csv"), [*map(csv_row, rows)])]


def _papers(group: Group) -> float | None:
    """Of the whole method, from Table 1; of the others the paper has curves only."""
    return None if group.settings else PAPER[CHEETAH].returns["emi"]


def _lengths(found: Found) -> str:
    lines = [
        markdown_row(["method", "mean ‖φ(s)‖ in the last iteration, by seed"]),
        markdown_row(["---", "---:"]),
    ]
    for group, runs in found.runs.items():
        lengths = ", ".join(f"{run.metrics['emi/state_norm'][-1]:.3g}" for run in runs)
        lines.append(markdown_row([group.title, lengths]))
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="ablation",
    question="What do the information term and the error model each contribute?",
    paper="without the information term the embedding collapses and the agent gets no reward at "
    "all; adding the error model is a drastic improvement (curves; the whole method's number is "
    "that of Table 1).",
    groups=GROUPS,
    draw=draw,
)
