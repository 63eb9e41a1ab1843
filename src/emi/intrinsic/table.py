"""The table of methods: lists, factories, titles and the order of reports are derived from it.

Classes are named, not imported: listing methods must not wait for PyTorch. The order is that of
Table 1 of the paper, with EMI-D and SimHash next to EMI and AE-SimHash. Methods that are not in the
paper follow. Noise is our control.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MethodEntry:
    """One exploration method.

    The settings of a method are the default `config` of its constructor, changed by `settings`.
    `home` is None for the agent without a bonus.
    """

    title: str
    about: str
    home: str | None  # "module:Class"
    settings: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, MethodEntry] = {
    "emi": MethodEntry(
        "EMI", "prediction error in a linear embedding (Kim et al., 2019)", "emi.intrinsic.emi:EMI"
    ),
    "emi-d": MethodEntry(
        "EMI-D",
        "diversity in EMI's embedding (Kim et al., 2019, supplement)",
        "emi.intrinsic.emi:EMI",
        {"reward": "diversity"},
    ),
    "ex2": MethodEntry(
        "EX2",
        "how easily a classifier distinguishes a state from past states (Fu et al., 2017)",
        "emi.intrinsic.ex2:EX2",
    ),
    "icm": MethodEntry(
        "ICM",
        "prediction error in inverse-dynamics features (Pathak et al., 2017)",
        "emi.intrinsic.icm:ICM",
    ),
    "rnd": MethodEntry(
        "RND", "error in predicting a random network (Burda et al., 2019)", "emi.intrinsic.rnd:RND"
    ),
    "ae-simhash": MethodEntry(
        "AE-SimHash",
        "counts of hashed autoencoder codes (Tang et al., 2017)",
        "emi.intrinsic.simhash:SimHash",
        {"autoencoder": True},
    ),
    "simhash": MethodEntry(
        "SimHash", "counts of hashed states (Tang et al., 2017)", "emi.intrinsic.simhash:SimHash"
    ),
    "vime": MethodEntry(
        "VIME",
        "information gain of a Bayesian dynamics network (Houthooft et al., 2016)",
        "emi.intrinsic.vime:VIME",
    ),
    "trpo": MethodEntry("TRPO", "plain TRPO, without a bonus (Schulman et al., 2015)", None),
    "e3b": MethodEntry(
        "E3B",
        "elliptical novelty within the episode (Henaff et al., 2022)",
        "emi.intrinsic.e3b:E3B",
    ),
    "ngu": MethodEntry(
        "NGU",
        "pseudo-counts within the episode times RND (Badia et al., 2020)",
        "emi.intrinsic.ngu:NGU",
    ),
    "pseudo-counts": MethodEntry(
        "PseudoCounts",
        "pseudo-counts within the episode, as in NGU (Badia et al., 2020)",
        "emi.intrinsic.pseudo_counts:PseudoCounts",
    ),
    "disagreement": MethodEntry(
        "Disagreement",
        "variance of an ensemble of forward models (Pathak et al., 2019)",
        "emi.intrinsic.disagreement:Disagreement",
    ),
    "re3": MethodEntry(
        "RE3",
        "distance to the nearest recent states in random features (Seo et al., 2021)",
        "emi.intrinsic.re3:RE3",
    ),
    "noveld": MethodEntry(
        "NovelD",
        "steps from known to novel states, once per episode (Zhang et al., 2021)",
        "emi.intrinsic.noveld:NovelD",
    ),
    "ride": MethodEntry(
        "RIDE",
        "change of the state, discounted by episodic visits (Raileanu and Rocktäschel, 2020)",
        "emi.intrinsic.ride:RIDE",
    ),
    "noise": MethodEntry(
        "Noise", "a random bonus: the control for every other method", "emi.intrinsic.noise:Noise"
    ),
}


def title_of(method: str) -> str:
    """The title of a method in tables and figures; for a user's `module:Class`, the class name."""
    return METHODS[method].title if method in METHODS else method.rpartition(":")[2]


def order_of(method: str) -> tuple[int, str]:
    """Sort key: the table's order, then users' own methods by name."""
    names = list(METHODS)
    return (names.index(method) if method in names else len(names), method)
