"""Figure 4(c): EMI without its information term, without its error model, and complete."""

from pathlib import Path

from emi.report.curves import draw_learning_curves, metric_panel, return_panel
from emi.report.tables import return_table
from emi.reproduction.drawing import table_of, write_returns
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, variant

ARMS = (
    variant(
        "ablation_no_information", "emi", "no information term", "intrinsic.information_term=false"
    ),
    variant("ablation_no_error_model", "emi", "no error model", "intrinsic.error_model=false"),
    variant(CHEETAH_FOLDER, "emi", "EMI"),
)


def draw(found: Found, stem: Path) -> list[Path]:
    """Returns on the left; on the right the norm of φ, which is 0 if φ has collapsed."""
    groups, paper = found.groups(CHEETAH), PAPER[CHEETAH]
    panels = [
        return_panel(CHEETAH, groups, paper),
        metric_panel("Norm of the embedding", groups, "emi/state_norm", "mean ‖φ(s)‖"),
    ]
    figure = draw_learning_curves(panels, stem, title=found.scaled())
    rows = [group.summarise(paper) for group in groups]
    norms = []
    for group in groups:
        last = ", ".join(f"{run.metrics['emi/state_norm'][-1]:.3g}" for run in group.runs)
        norms.append({"method": group.label, "mean ‖φ(s)‖ in the last iteration, by seed": last})
    body = f"{return_table(rows, paper)}\n{table_of(norms)}"
    return [figure, *write_returns(found, stem, body, rows)]


EXPERIMENT = Experiment(
    name="ablation",
    question="What do the information term and the error model each contribute?",
    paper="without the information term the embedding collapses and the agent gets no reward at "
    "all; adding the error model is a drastic improvement (curves; the number of the complete "
    "method is that of Table 1).",
    draw=draw,
    arms=ARMS,
)
