"""The paper's tasks: five seeds, as many steps as in its Table 1."""

from emi.reproduction.experiment import Arm
from emi.reproduction.paper_values import PAPER

SEEDS = tuple(range(5))
LOCOMOTION = ("SwimmerGather", "SparseHalfCheetah")
ATARI = tuple(env for env in PAPER if env not in LOCOMOTION)
CHEETAH = "SparseHalfCheetah"
CHEETAH_FOLDER = "sparse_half_cheetah"
CHEETAH_STEPS = 5_000_000

_FOLDERS = {"SwimmerGather": "swimmer_gather", CHEETAH: CHEETAH_FOLDER}


def task(env: str, methods: tuple[str, ...], seeds: tuple[int, ...] = SEEDS) -> tuple[Arm, ...]:
    """One arm per method, with its preset and the paper's number of steps."""
    steps = PAPER[env].steps
    assert steps is not None, "Table 1 gives the steps of every task"
    folder = _FOLDERS.get(env, "atari")
    return tuple(Arm(folder, env, method, seeds, steps) for method in methods)


def variant(
    folder: str, method: str, label: str, *settings: str, seeds: tuple[int, ...] = SEEDS
) -> Arm:
    """An arm on SparseHalfCheetah with changed settings."""
    return Arm(folder, CHEETAH, method, seeds, CHEETAH_STEPS, settings, label)


def run_of_emi(env: str) -> str:
    """The run whose embedding is drawn: seed 0 of EMI."""
    (arm,) = task(env, ("emi",), (0,))
    return f"{arm.place}/seed0"
