"""Supplementary figure 2: the coefficient α of EMI-D's bonus on SparseHalfCheetah."""

from functools import partial

from emi.reproduction.drawing import draw_variants
from emi.reproduction.experiment import Arm, Experiment
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, variant

# The paper names only 0.1; the others are decades around it.
COEFFICIENTS = (0.001, 0.01, 0.1, 1.0)
PRESET = 0.1  # its runs are those of the comparison
SEEDS = (0, 1, 2)


def _arm(alpha: float) -> Arm:
    folder = CHEETAH_FOLDER if alpha == PRESET else f"emi_d_coefficient_{alpha:g}"
    return variant(folder, "emi-d", f"α = {alpha:g}", f"eta={alpha:g}", seeds=SEEDS)


EXPERIMENT = Experiment(
    name="emi_d_coefficient",
    question="How much does EMI-D depend on the coefficient α of its bonus?",
    paper="α = 0.1 is best, other choices are comparable (curves only; the other values are not "
    "named in the text).",
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI-D"),
    arms=tuple(map(_arm, COEFFICIENTS)),
)
