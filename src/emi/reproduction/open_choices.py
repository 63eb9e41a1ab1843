"""Ours: two choices that the paper leaves open, tried on seeds that are not reported."""

from functools import partial

from emi.reproduction.drawing import draw_variants
from emi.reproduction.experiment import Experiment
from emi.reproduction.tasks import CHEETAH, variant

SEEDS = (5, 6, 7, 8, 9)

ARMS = (
    variant("choice_tanh", "emi", "tanh, no KL", "intrinsic.state_activation=tanh", seeds=SEEDS),
    variant("choice_relu", "emi", "ReLU, no KL", "intrinsic.state_activation=relu", seeds=SEEDS),
    variant(
        "choice_action_kl",
        "emi",
        "tanh, KL on actions",
        "intrinsic.kl_target=action",
        "intrinsic.kl_weight=0.1",
        seeds=SEEDS,
    ),
)

EXPERIMENT = Experiment(
    name="open_choices",
    question="Does EMI on SparseHalfCheetah depend on the activation of φ and S, or on a KL term?",
    paper="describes tanh and no KL term here (our default); the authors' code has ReLU, and "
    "their MuJoCo script, which runs EMI-D, a KL term on actions of weight 0.1.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI"),
    arms=ARMS,
)
