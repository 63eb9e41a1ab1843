"""Errors that a user can fix, and the check that numbers are finite."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

FAILED, BAD_INPUT = 1, 2  # exit codes of the command line


class UserError(ValueError):
    """One sentence that says what the user can change; the command line prints it.

    `exit_code` is 2 if the input was wrong, 1 if something failed after the start. Any other
    exception that reaches the command line is a bug of emi and is shown with its traceback.
    """

    def __init__(self, sentence: str, exit_code: int = BAD_INPUT) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class ForeignError(UserError):
    """An environment, a wrapper or a module of others raised `__cause__`.

    The command line shows its traceback as well, after the last frame of emi.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, FAILED)


class NotFiniteError(UserError):
    """A value became NaN or infinite; the message names it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, FAILED)


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Raise NotFiniteError if any entry is NaN or infinite."""
    # A sum of squares is finite if all entries are and it does not overflow; np.isfinite takes
    # three times as long.
    if array.dtype.kind != "f" or math.isfinite(np.vdot(array, array)):
        return
    if not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinite"
        raise NotFiniteError(f"{name} became {what}")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`: did you mean 'eta'?` with the nearest known name in any case, or `otherwise`."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f": did you mean {names[close[0]]!r}?" if close else otherwise
