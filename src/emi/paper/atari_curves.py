"""Figure 5: learning curves on six Atari games."""

from emi.paper.experiment import Experiment
from emi.paper.locomotion_curves import draw
from emi.paper.tasks import ATARI, task

METHODS = ("emi", "ex2", "icm", "rnd", "trpo")

EXPERIMENT = Experiment(
    name="atari_curves",
    question="How do returns grow over training on the six Atari games?",
    paper="EMI significantly outperforms TRPO, EX2 and ICM on Frostbite and Montezuma's Revenge "
    "and is competitive with RND (means of 5 seeds; iterations of 100k steps).",
    groups=tuple(group for env in ATARI for group in task(env, METHODS)),
    draw=draw,
)
