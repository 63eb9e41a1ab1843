"""Figure 5: learning curves on six Atari games."""

from emi.reproduction.drawing import draw_returns
from emi.reproduction.experiment import Experiment
from emi.reproduction.tasks import ATARI, task

METHODS = ("emi", "ex2", "icm", "rnd", "trpo")

EXPERIMENT = Experiment(
    name="atari_curves",
    question="How do returns grow over training on the six Atari games?",
    paper="EMI significantly outperforms TRPO, EX2 and ICM on Frostbite and Montezuma's Revenge "
    "and is competitive with RND (means of 5 seeds; iterations of 100k steps).",
    draw=draw_returns,
    arms=tuple(arm for env in ATARI for arm in task(env, METHODS)),
)
