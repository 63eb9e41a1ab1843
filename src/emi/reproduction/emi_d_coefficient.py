"""Supplementary figure 2: the coefficient α of EMI-D's bonus on SparseHalfCheetah."""

from functools import partial

from emi.reproduction.experiment import Experiment, Group
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, CHEETAH_STEPS
from emi.reproduction.variants import draw_variants

# The paper names 0.1 only; the others are decades around it.
COEFFICIENTS = (0.001, 0.01, 0.1, 1.0)
PAPERS = 0.1  # the preset's, whose runs are those of the comparison
SEEDS = (0, 1, 2)


def _group(alpha: float) -> Group:
    folder = CHEETAH_FOLDER if alpha == PAPERS else f"emi_d_coefficient_{alpha:g}"
    return Group(
        folder, CHEETAH, "emi-d", SEEDS, CHEETAH_STEPS, (f"eta={alpha:g}",), f"α = {alpha:g}"
    )


EXPERIMENT = Experiment(
    name="emi_d_coefficient",
    question="How much does EMI-D depend on the coefficient α of its bonus?",
    paper="α = 0.1 is best, other choices are comparable (curves only; the other values are not "
    "named in the text).",
    groups=tuple(map(_group, COEFFICIENTS)),
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI-D"),
)
