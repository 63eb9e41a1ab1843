"""Figures 4(a) and 4(b): learning curves on SwimmerGather and SparseHalfCheetah."""

from emi.reproduction.drawing import draw_returns
from emi.reproduction.experiment import Experiment
from emi.reproduction.table_1 import VECTOR_METHODS
from emi.reproduction.tasks import LOCOMOTION, task

EXPERIMENT = Experiment(
    name="locomotion_curves",
    question="How do returns grow over training on the two locomotion tasks?",
    paper="EMI outperforms EX2, ICM, RND and TRPO on both tasks (means of 5 seeds, one standard "
    "deviation shaded; iterations of 50k and 5k steps).",
    draw=draw_returns,
    arms=tuple(arm for env in LOCOMOTION for arm in task(env, VECTOR_METHODS)),
)
