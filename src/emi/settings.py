"""Types of settings with a range, which `emi.training.config` checks, and numbers as people write
them.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class MyConfig:
...     cells: PositiveInt = 20
"""

from decimal import Decimal, InvalidOperation
from typing import Annotated

PositiveInt = Annotated[int, "positive"]
PositiveFloat = Annotated[float, "positive"]
NotNegativeInt = Annotated[int, "zero or more"]
NotNegativeFloat = Annotated[float, "zero or more"]
Fraction = Annotated[float, "in (0, 1]"]
FractionOrZero = Annotated[float, "in [0, 1]"]
Seed = Annotated[int, "zero or more", "below 2^128"]
Threads = Annotated[int, "positive", "at most 1024"]

_THOUSANDS = {"k": 3, "m": 6}  # exponents of 10
_MOST_DIGITS = 18  # of a number with an exponent: 1e999999999 would fill the memory


def whole_number(text: str) -> int:
    """Parse 5000000, 5_000_000, 5e6, 500k or 2.5M; ValueError if it is no whole number.

    >>> whole_number("2.5M")
    2500000
    """
    try:
        return int(text)
    except ValueError:
        exponent = _THOUSANDS.get(text[-1:].lower(), 0)
    try:
        value = Decimal(text[:-1] if exponent else text).scaleb(exponent)
        if value.is_finite() and value.adjusted() < _MOST_DIGITS and value == int(value):
            return int(value)
    except InvalidOperation:
        pass
    raise ValueError(f"{text!r} is not a whole number")
