"""Supplementary figure 5: the error model over an episode and over training."""

from pathlib import Path

from emi.report.curves import Panel, draw_learning_curves
from emi.report.embedding import draw_error_model
from emi.reproduction.drawing import draw_samples
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, run_of_emi, task

ENVIRONMENTS = ("MontezumaRevenge", CHEETAH)


def draw(found: Found, stem: Path) -> list[Path]:
    """The norm of S over training, and over one episode of each environment."""
    rows = {
        arm.env: [Panel("EMI", runs, metric="emi/error_norm", meaning="mean ‖S(s, a)‖")]
        for arm, runs in found.runs.items()
    }
    written = [draw_learning_curves(rows, stem, title=found.scaled())] if rows else []
    return written + draw_samples(found, stem, draw_error_model)


EXPERIMENT = Experiment(
    name="error_model",
    question="Where in an episode, and by how much, are the dynamics not linear in the embedding?",
    paper="on Montezuma's Revenge ‖S‖ is high where the room changes and where the agent has no "
    "control over itself (one episode, five transitions shown).",
    draw=draw,
    arms=tuple(arm for env in ENVIRONMENTS for arm in task(env, ("emi",))),
    embeddings=tuple(map(run_of_emi, ENVIRONMENTS)),
)
