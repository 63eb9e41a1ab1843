"""Figure 5: learning curves on six Atari games."""

from emi.reproduction.experiment import Experiment
from emi.reproduction.locomotion_curves import draw
from emi.reproduction.tasks import ATARI, task

METHODS = ("emi", "ex2", "icm", "rnd", "trpo")

EXPERIMENT = Experiment(
    name="atari_curves",
    question="How do returns grow over training on the six Atari games?",
    paper="EMI significantly outperforms TRPO, EX2 and ICM on Frostbite and Montezuma's Revenge "
    "and is competitive with RND (means of 5 seeds; iterations of 100k steps).",
    groups=tuple(group for env in ATARI for group in task(env, METHODS)),
    draw=draw,
)
