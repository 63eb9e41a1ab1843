"""Safetensors files that can come from anyone: read with limits, checked, refused in a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from emi.errors import UserError
from emi.untrusted_file import read_file

HEADER_BYTES = 100_000
LARGEST = 1e15  # of a number, so that squares do not overflow in float32

Array = npt.NDArray[Any]
T = TypeVar("T")


def read_tensors(
    file: Path, most_bytes: int, checked: Callable[[dict[str, Array]], T], remedy: str
) -> T:
    """What `checked` makes of the tensors in a file; UserError if they cannot be shown.

    `checked` raises KeyError, TypeError or ValueError for tensors that it refuses; `remedy` says
    what to do then.
    """
    try:
        content = read_file(file, most_bytes)
        if int.from_bytes(content[:8], "little") > HEADER_BYTES:
            raise ValueError(f"its header has more than {HEADER_BYTES:,} bytes")
        return checked(load(content))
    except UserError:
        raise
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}): {remedy}") from None
