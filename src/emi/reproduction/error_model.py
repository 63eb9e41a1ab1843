"""Supplementary figure 5: the error model over an episode and over training."""

from pathlib import Path

from emi.report.curves import draw_learning_curves, metric_panel
from emi.report.embedding import draw_error_model
from emi.reproduction.drawing import draw_samples
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, run_of_emi, task

ENVIRONMENTS = ("MontezumaRevenge", CHEETAH)


def draw(found: Found, stem: Path) -> list[Path]:
    """The norm of S over training, and over one episode of each environment."""
    panels = [
        metric_panel(env, found.groups(env), "emi/error_norm", "mean ‖S(s, a)‖")
        for env in found.environments
    ]
    written = [draw_learning_curves(panels, stem, title=found.scaled())] if panels else []
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
