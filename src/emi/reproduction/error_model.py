"""Supplementary figure 5: the error model, over an episode and over training."""

from pathlib import Path
from typing import Protocol

from emi.report.curves import Panel, draw_learning_curves
from emi.report.embedding import draw_error_model
from emi.report.load import stored
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, embedding_file, task

WORLDS = ("MontezumaRevenge", CHEETAH)


class DrawSample(Protocol):
    """A drawing of the embedding sample in a run directory."""

    def __call__(self, run_directory: Path, stem: Path, *, note: str = "") -> list[Path]: ...


def draw(found: Found, stem: Path) -> list[Path]:
    """The length of S over training, and a timeline of one episode for each world."""
    rows = {
        env: [Panel("EMI", runs, metric="emi/error_norm", meaning="mean ‖S(s, a)‖")]
        for env in found.environments
        for runs in found.of(env)
    }
    written = draw_learning_curves(rows, stem, title=found.scaled()) if rows else []
    return written + draw_worlds(found, stem, draw_error_model)


def draw_worlds(found: Found, stem: Path, draw_one: DrawSample) -> list[Path]:
    """`draw_one` for the sample of each world that is there, as `<stem>_<world>`."""
    written: list[Path] = []
    for name in found.experiment.files:
        sample = found.results / name
        if stored(sample) is not None:
            world = sample.parents[2].name
            to = stem.with_name(f"{stem.name}_{world}")
            written += draw_one(sample.parent, to, note=found.scaled(world))
    return written


EXPERIMENT = Experiment(
    name="error_model",
    question="Where in an episode, and how strongly, are dynamics not linear in the embedding?",
    paper="on Montezuma's Revenge ‖S‖ is high where the room changes and where the agent has no "
    "control over itself (one episode, five transitions shown).",
    groups=tuple(group for env in WORLDS for group in task(env, ("emi",))),
    draw=draw,
    files=tuple(map(embedding_file, WORLDS)),
)
