"""Ours: settings in which the paper's text, the authors' code and our presets differ."""

from functools import partial

from emi.reproduction.drawing import draw_variants
from emi.reproduction.experiment import Arm, Experiment
from emi.reproduction.statistical_tests import SEEDS
from emi.reproduction.tasks import CHEETAH, CHEETAH_FOLDER, variant
from emi.reproduction.tasks import SEEDS as FIVE

# The authors' code has one activation for φ, ψ, S and T, and a linear layer on the action in S.
RELEASED = ("intrinsic.state_activation=relu", "intrinsic.error_action_layer=true")
# Upstream rllab with 16 workers keeps the paths that are in flight: about 25 of 500 steps.
PATHS = ("num_envs=25", "steps_per_iteration=12500")

EMI_ARMS = (
    variant(CHEETAH_FOLDER, "emi", "EMI, the paper's text", seeds=SEEDS),
    variant("released", "emi", "as released: ReLU, layer on a", *RELEASED, seeds=SEEDS),
    variant(
        "released_diversity",
        "emi",
        "as released, 0.1 r_d added",
        *RELEASED,
        "intrinsic.diversity_weight=100",
        seeds=SEEDS,
    ),
    variant("paths_25", "emi", "25 paths per batch", *PATHS, seeds=SEEDS),
    # What the search finds that the baselines' η come from, results/figures/coefficient_search.md.
    variant("searched_eta", "emi", "η = 0.01, as searched", "eta=0.01", seeds=SEEDS),
    variant(CHEETAH_FOLDER, "noise", "noise as the bonus", seeds=SEEDS),
)
LONG = Arm("paths_25_long", CHEETAH, "emi", SEEDS, 12_500_000, PATHS, "25 paths per batch")
BASELINE_ARMS = (
    variant(CHEETAH_FOLDER, "ex2", "EX2", seeds=SEEDS),
    variant(
        "ex2_sampled_actions",
        "ex2",
        "EX2, actions as sampled",
        "intrinsic.sampled_actions=true",
        seeds=SEEDS,
    ),
    variant("ex2_authors_eta", "ex2", "EX2, η = 0.001", "eta=0.001", seeds=SEEDS),
    variant(CHEETAH_FOLDER, "icm", "ICM", seeds=SEEDS),
    variant(
        "icm_papers_rate",
        "icm",
        "ICM, learning rate 0.001",
        "intrinsic.learning_rate=0.001",
        seeds=SEEDS,
    ),
    variant(
        "emi_d_released",
        "emi-d",
        "EMI-D as released",
        *RELEASED,
        "steps_per_iteration=50000",
        "num_envs=100",
        "value.kind=network",
        seeds=FIVE,
    ),
)

EXPERIMENT = Experiment(
    name="paper_settings",
    question="Does EMI on SparseHalfCheetah depend on the points in which the authors' code "
    "differs from the paper's text, and does its bonus do better than noise?",
    paper="EMI has 218.1 at 5M steps; the paper does not say which of these settings its runs had.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, settings of EMI"),
    arms=EMI_ARMS,
)
BASELINES = Experiment(
    name="baseline_settings",
    question="Do EX2, ICM and EMI-D depend on the points in which our settings differ from their "
    "authors'?",
    paper="EX2 has 153.7 and ICM 1.4 at 5M steps; EMI-D is comparable to EMI.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, settings of the others"),
    arms=BASELINE_ARMS,
)
PATHS_EXPERIMENT = Experiment(
    name="paths_per_batch",
    question="With 25 paths per batch and as many policy updates as in the paper, does EMI solve "
    "SparseHalfCheetah?",
    paper="EMI has 218.1 at 5M steps, with 5,000 steps per batch.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI, 12.5M steps"),
    arms=(LONG,),
)
