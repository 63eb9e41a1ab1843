"""Figure 3: states in φ-space with one sample path, on SparseHalfCheetah and two Atari games."""

from pathlib import Path

from emi.report.embedding import draw_embedding
from emi.reproduction.error_model import draw_worlds
from emi.reproduction.experiment import Experiment, Found
from emi.reproduction.tasks import CHEETAH, embedding_file, task

WORLDS = (CHEETAH, "MontezumaRevenge", "Frostbite")


def draw(found: Found, stem: Path) -> list[Path]:
    return draw_worlds(found, stem, draw_embedding)


EXPERIMENT = Experiment(
    name="embedding_paths",
    question="Are states that are alike close in the embedding, and is a path smooth there?",
    paper="similar states are close together; the two rooms of Montezuma's Revenge are two "
    "clusters, and Frostbite's path is smooth.",
    groups=tuple(group for env in WORLDS for group in task(env, ("emi",), (0,))),
    draw=draw,
    files=tuple(map(embedding_file, WORLDS)),
)
