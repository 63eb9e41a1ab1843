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


# The columns of Table 1 that hold numbers of the vector and of the image tasks.
_VECTOR_COLUMNS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "vime", "trpo")
_IMAGE_COLUMNS = ("emi", "ex2", "icm", "rnd", "ae-simhash", "trpo")


@dataclass(frozen=True)
class PaperValues:
    """One row of the paper's Table 1."""

    returns: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None  # after which they were taken
    decimals: int = 1  # that returns of this task are worth
    solved_above: float | None = None  # ours: the return from which we call the task solved


def _vectors(*returns: float) -> dict[str, float]:
    row = dict(zip(_VECTOR_COLUMNS, returns, strict=True))
    # The column is called AE-SimHash, but #Exploration has no autoencoder on vectors.
    return row | {"simhash": row["ae-simhash"]}


def _images(*returns: float) -> PaperValues:
    return PaperValues(dict(zip(_IMAGE_COLUMNS, returns, strict=True)), steps=50_000_000)


# The caption says "5M and 100M respectively" where SwimmerGather comes first; the authors' scripts
# have them the other way round.
PAPER: Mapping[str, PaperValues] = {
    "SwimmerGather": PaperValues(
        _vectors(0.438, 0.200, 0.0, 0.0, 0.258, 0.196, 0.0), steps=100_000_000, decimals=3
    ),
    "SparseHalfCheetah": PaperValues(
        _vectors(218.1, 153.7, 1.4, 3.4, 0.5, 98.0, 0.0), steps=5_000_000, solved_above=50.0
    ),
    "Freeway": _images(33.8, 27.1, 33.6, 33.3, 33.5, 26.7),
    "Frostbite": _images(7002, 3387, 4465, 2227, 5214, 2034),
    "Venture": _images(646, 589, 418, 707, 445, 263),
    "Gravitar": _images(558, 550, 424, 546, 482, 508),
    "Solaris": _images(2688, 2276, 2453, 2051, 4467, 3101),
    "MontezumaRevenge": _images(387, 0, 161, 377, 75, 0),
}


def in_millions(steps: float) -> str:
    return f"{steps / 1e6:g}M"
