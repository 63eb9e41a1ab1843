"""The paper's tasks and their budgets: five seeds, as many steps as its Table 1 was taken after."""

from emi.reproduction.experiment import Group
from emi.reproduction.paper_values import PAPER

SEEDS = tuple(range(5))
LOCOMOTION = ("SwimmerGather", "SparseHalfCheetah")
ATARI = tuple(env for env in PAPER if env not in LOCOMOTION)
CHEETAH = "SparseHalfCheetah"
CHEETAH_FOLDER = "sparse_half_cheetah"
CHEETAH_STEPS = 5_000_000

_FOLDERS = {"SwimmerGather": "swimmer_gather", CHEETAH: CHEETAH_FOLDER}


def task(env: str, methods: tuple[str, ...], seeds: tuple[int, ...] = SEEDS) -> tuple[Group, ...]:
    """A group for each method, with its preset, for as many steps as the paper had."""
    steps = PAPER[env].steps
    assert steps is not None, "every task of Table 1 says at how many steps"
    folder = _FOLDERS.get(env, "atari")
    return tuple(Group(folder, env, method, seeds, steps) for method in methods)


def embedding_file(env: str) -> str:
    """The sample that seed 0 of EMI leaves behind when it is complete."""
    (group,) = task(env, ("emi",), (0,))
    return f"{group.place}/seed0/embedding.safetensors"
