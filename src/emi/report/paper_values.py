"""What the paper reports, to stand beside our own numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The columns of the paper's Table 1 from left to right, by our method names; EMI-D, which appears
# only as a curve of the supplement, and plain SimHash stand beside their relatives.
METHOD_ORDER = ("emi", "emi-d", "ex2", "icm", "rnd", "ae-simhash", "simhash", "vime", "trpo")

TITLES: Mapping[str, str] = {
    "emi": "EMI",
    "emi-d": "EMI-D",
    "ex2": "EX2",
    "icm": "ICM",
    "rnd": "RND",
    "ae-simhash": "AE-SimHash",
    "simhash": "SimHash",
    "vime": "VIME",
    "trpo": "TRPO",
}


@dataclass(frozen=True)
class PaperValues:
    """One row of the paper's Table 1."""

    returns: Mapping[str, float] = field(default_factory=dict)
    solved_above: float | None = None  # ours: the return from which we call the task solved


PAPER: Mapping[str, PaperValues] = {
    "SparseHalfCheetah": PaperValues(
        returns={
            "emi": 218.1,
            "ex2": 153.7,
            "icm": 1.4,
            "rnd": 3.4,
            "ae-simhash": 0.5,  # as the column is called
            "simhash": 0.5,  # what it is: #Exploration has no autoencoder on vectors
            "vime": 98.0,
            "trpo": 0.0,
        },
        solved_above=50.0,
    ),
    "SwimmerGather": PaperValues(
        returns={
            "emi": 0.438,
            "ex2": 0.200,
            "icm": 0.0,
            "rnd": 0.0,
            "ae-simhash": 0.258,
            "simhash": 0.258,
            "vime": 0.196,
            "trpo": 0.0,
        },
    ),
}
