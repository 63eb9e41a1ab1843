"""Ours: two choices that the paper leaves open, tried on seeds that are not reported."""

from functools import partial

from emi.reproduction.experiment import Experiment, Group
from emi.reproduction.tasks import CHEETAH, CHEETAH_STEPS
from emi.reproduction.variants import draw_variants

SEEDS = (5, 6, 7, 8, 9)


def _group(folder: str, label: str, *settings: str) -> Group:
    return Group(folder, CHEETAH, "emi", SEEDS, CHEETAH_STEPS, settings, label)


GROUPS = (
    _group("choice_tanh", "tanh, no KL", "intrinsic.state_activation=tanh"),
    _group("choice_relu", "ReLU, no KL", "intrinsic.state_activation=relu"),
    _group(
        "choice_action_kl",
        "tanh, KL on actions",
        "intrinsic.kl_target=action",
        "intrinsic.kl_weight=0.1",
    ),
)


EXPERIMENT = Experiment(
    name="open_choices",
    question="Does EMI on SparseHalfCheetah depend on the activation of φ and S, or on a KL term?",
    paper="its words mean tanh and no KL term here (the default); the authors' code has ReLU, and "
    "their MuJoCo script, which runs EMI-D, a KL term on actions of weight 0.1.",
    groups=GROUPS,
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI"),
)
