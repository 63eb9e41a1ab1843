"""Figure 3: states in φ-space with one sample path, on SparseHalfCheetah and two Atari games."""

from functools import partial

from emi.report.embedding import draw_embedding
from emi.reproduction.drawing import draw_samples
from emi.reproduction.experiment import Experiment
from emi.reproduction.tasks import CHEETAH, run_of_emi, task

ENVIRONMENTS = (CHEETAH, "MontezumaRevenge", "Frostbite")

EXPERIMENT = Experiment(
    name="embedding_paths",
    question="Are similar states close in the embedding, and is a path smooth there?",
    paper="similar states are close together; the two rooms of Montezuma's Revenge are two "
    "clusters, and Frostbite's path is smooth.",
    draw=partial(draw_samples, draw=draw_embedding),
    arms=tuple(arm for env in ENVIRONMENTS for arm in task(env, ("emi",), (0,))),
    embeddings=tuple(map(run_of_emi, ENVIRONMENTS)),
)
