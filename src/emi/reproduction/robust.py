"""Ours: the preset robust on SparseHalfCheetah, with every method, and without each part."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from emi.report import comparison
from emi.report.curves import draw_learning_curves, return_panel
from emi.report.reference import Reference
from emi.report.summary import Summary
from emi.report.tables import return_table
from emi.reproduction.drawing import draw_returns, draw_variants, table_of, write_returns
from emi.reproduction.experiment import Arm, Experiment, Found
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import CHEETAH, CHEETAH_STEPS
from emi.reproduction.tasks import SEEDS as FIVE

# None of them was run before the settings of the preset were fixed.
SEEDS = tuple(range(30, 45))
DEVELOPMENT = (5, 6, 7, 8, 9, *range(20, 30))
FOLDER = "sparse_half_cheetah_robust"
METHODS = ("emi", "ex2", "icm", "rnd", "trpo", "noise")

# Each part of the preset by its name in folders: what it is, and the setting that leaves it out.
PARTS = {
    "initial_std": ("initial σ 0.5", "policy.init_std=1.0"),
    "min_std": ("floor of σ", "keeping.min_std=0.0"),
    "restarts": ("new policies", "keeping.patience=0"),
    "stakes": ("steps by stake", "keeping.stake_power=0.0"),
    "memory": ("value memory", "value.memory=0.0"),
    "lambda": ("λ 0.97", "gae_lambda=1.0"),
    "streams": ("two streams", "streams.separate=false"),
}


def _arm(folder: str, method: str = "emi", label: str = "", *settings: str) -> Arm:
    return Arm(folder, CHEETAH, method, SEEDS, CHEETAH_STEPS, settings, label, preset="robust")


@dataclass(frozen=True)
class Test:
    """EMI with the preset compared with another method: final returns, Welch's test."""

    method: str
    difference: float
    low: float
    high: float
    t: float
    p: float
    p_holm: float


def compare(rows: list[Summary]) -> list[Test]:
    """EMI against every other method that has two seeds or more; Holm's correction for all."""
    finals = {row.label: row.finals for row in rows if len(row.finals) > 1}
    if "EMI" not in finals:
        return []
    others = [label for label in finals if label != "EMI"]
    tests = [comparison.welch(finals["EMI"], finals[label]) for label in others]
    adjusted = comparison.holm([test.p for test in tests])
    return [
        Test(label, test.difference, *test.interval, test.t, test.p, p)
        for label, test, p in zip(others, tests, adjusted, strict=True)
    ]


def draw(found: Found, stem: Path) -> list[Path]:
    groups, paper = found.groups(CHEETAH), PAPER[CHEETAH]
    figure = draw_learning_curves(
        [return_panel(f"{CHEETAH}, preset robust", groups, paper)], stem, title=found.scaled()
    )
    rows = [group.summarise(paper) for group in groups]
    parts = [return_table(rows, paper).strip()]
    tests = [
        {
            "EMI against": test.method,
            "difference of means [95 % CI]": f"{test.difference:.1f} "
            f"[{test.low:.1f}, {test.high:.1f}]",
            "Welch's t": f"{test.t:.2f}",
            "p, two-sided": f"{test.p:.2g}",
            "p after Holm": f"{test.p_holm:.2g}",
        }
        for test in compare(rows)
    ]
    if tests:
        parts.append(table_of(tests))
    return [figure, *write_returns(found, stem, "\n\n".join(parts), rows)]


EXPERIMENT = Experiment(
    name="robust",
    question="With the preset robust, does EMI keep the reward of SparseHalfCheetah in every seed, "
    "and how much of that is due to its bonus?",
    paper="has no such preset; EMI has 218.1 with the paper's settings.",
    draw=draw,
    arms=tuple(_arm(FOLDER, method) for method in METHODS),
)
DEVELOPMENT_EXPERIMENT = Experiment(
    name="development",
    question="How did the candidates for the preset robust do on development seeds?",
    paper="has no such preset.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI, development seeds"),
    arms=(
        Arm(
            "development_lambda",
            CHEETAH,
            "emi",
            DEVELOPMENT,
            CHEETAH_STEPS,
            ("gae_lambda=0.95",),
            "paper's preset, λ 0.95",
        ),
        Arm(
            "development_robust",
            CHEETAH,
            "emi",
            DEVELOPMENT,
            CHEETAH_STEPS,
            label="robust",
            preset="robust",
        ),
    ),
)
DENSE = "gym:HalfCheetah-v5"
DENSE_STEPS = 1_000_000


def draw_dense(found: Found, stem: Path) -> list[Path]:
    rows = [group.summarise(Reference()) for group in found.groups(DENSE)]
    return [
        *draw_returns(found, stem),
        *write_returns(found, stem, return_table(rows, Reference()), rows),
    ]


DENSE_EXPERIMENT = Experiment(
    name="dense_task",
    question="Does the preset robust cost anything on a dense task, where nothing is to be kept?",
    paper="has no such preset and no such task.",
    draw=draw_dense,
    arms=(
        Arm("half_cheetah", DENSE, "trpo", FIVE, DENSE_STEPS, label="TRPO"),
        *(
            Arm("half_cheetah_robust", DENSE, m, FIVE, DENSE_STEPS, label=label, preset="robust")
            for m, label in (("trpo", "TRPO, robust"), ("emi", "EMI, robust"))
        ),
    ),
)
PARTS_EXPERIMENT = Experiment(
    name="robust_parts",
    question="What does each part of the preset robust contribute?",
    paper="has no such preset.",
    draw=partial(draw_variants, heading=f"{CHEETAH}, EMI, preset robust"),
    arms=(
        _arm(FOLDER, "emi", "robust"),
        *(
            _arm(f"robust_without_{name}", "emi", f"without {part}", off)
            for name, (part, off) in PARTS.items()
        ),
        Arm(
            "sparse_half_cheetah_fresh",
            CHEETAH,
            "emi",
            SEEDS,
            CHEETAH_STEPS,
            label="paper's preset",
        ),
    ),
)
