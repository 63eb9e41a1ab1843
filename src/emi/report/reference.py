"""Published values that our own returns are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reference:
    """Published returns of one environment, and how returns of this environment are shown."""

    source: str = "reference"  # column title and legend entry, e.g. "paper"
    returns: Mapping[str, float] = field(default_factory=dict)  # by method
    steps: int | None = None  # environment steps after which they were measured
    decimals: int | None = None  # digits after the decimal point of returns
    solved_above: float | None = None  # the task counts as solved above this return


References = Mapping[str, Reference]  # by environment


def reference_for(references: References, env: str) -> Reference:
    """The reference of an environment; an empty one if there is none."""
    return references.get(env, Reference())
