"""Types of settings with a range, which `emi.training.config` checks.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class MyConfig:
...     cells: PositiveInt = 20
"""

from typing import Annotated

PositiveInt = Annotated[int, "positive"]
PositiveFloat = Annotated[float, "positive"]
NotNegativeInt = Annotated[int, "zero or more"]
NotNegativeFloat = Annotated[float, "zero or more"]
Fraction = Annotated[float, "in (0, 1]"]
FractionOrZero = Annotated[float, "in [0, 1]"]
Seed = Annotated[int, "zero or more", "below 2^128"]
Threads = Annotated[int, "positive", "at most 1024"]
