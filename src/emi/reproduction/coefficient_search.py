"""Ours: the search for the baselines' coefficient η, with one budget for all."""

from pathlib import Path

from emi.report.tables import write_csv
from emi.reproduction.experiment import Experiment, Found, Group, write_page
from emi.reproduction.search import search_table, trials
from emi.reproduction.tasks import CHEETAH

METHODS = ("ex2", "icm", "rnd", "simhash", "vime")
COEFFICIENTS = (0.0001, 0.001, 0.01, 0.1)
SEEDS = (5, 6)  # none of those that are reported
STEPS = 1_000_000

RULE = (
    "Returns over the last ten iterations, seed by seed, and the share of iterations with a "
    "reward. Chosen (bold) is the best mean return, and where that is equal, the most iterations "
    "with a reward."
)


def draw(found: Found, stem: Path) -> list[Path]:
    runs = [run for group in found.runs.values() for run in group]
    page = write_page(found, stem, f"{search_table(runs)}\n{RULE}")
    rows: list[dict[str, object]] = [
        {
            "method": trial.method,
            "eta": trial.eta,
            "late_return": trial.late_return,
            "rewarded": trial.rewarded,
        }
        for row in trials(runs).values()
        for trial in row
    ]
    return [page, write_csv(stem.with_name(f"{stem.name}.csv"), rows)]


EXPERIMENT = Experiment(
    name="coefficient_search",
    question="Which coefficient η does each baseline need on SparseHalfCheetah?",
    paper="names no coefficient of its baselines.",
    groups=tuple(
        Group(f"search_eta_{eta:g}", CHEETAH, method, SEEDS, STEPS, (f"eta={eta:g}",))
        for eta in COEFFICIENTS
        for method in METHODS
    ),
    draw=draw,
)
