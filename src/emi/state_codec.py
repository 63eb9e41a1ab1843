"""A nested state split into tensors for safetensors, and a JSON skeleton that refers to them.

Lists, strings, booleans, null, finite floats and 64-bit integers are stored as themselves.
Everything else is an object with one key that names its kind: `items` (a dict, as pairs, so that
integer keys stay integers), `tuple`, `tensor`, `array`, `int` (hexadecimal, any size), `float`
(nan, inf, -inf).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from emi.errors import UserError

_NAMES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64"
_DTYPES = frozenset(getattr(torch, name) for name in _NAMES.split())
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})
_SMALL_INT = 2**63


class Encoded(NamedTuple):
    """`skeleton` is for JSON; `tensors` own their memory and are contiguous, on the CPU."""

    skeleton: Any
    tensors: dict[str, Tensor]


def encode(state: Any) -> Encoded:
    """Split `state`; UserError names the place of a value that cannot be stored exactly."""
    tensors: dict[str, Tensor] = {}
    return Encoded(_encode(state, "state", tensors), tensors)


def decode(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """The state that `encode` split; ValueError if skeleton and tensors do not fit."""
    unused = set(tensors)
    state = _decode(skeleton, tensors, unused)
    if unused:
        raise ValueError(f"tensor {min(unused)!r} belongs to nothing")
    return state


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_SMALL_INT <= value < _SMALL_INT else {"int": hex(value)}
        case float():
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        case Tensor():
            return {"tensor": _keep(value, place, tensors)}
        case np.ndarray():
            return {"array": _keep(_as_tensor(value, place), place, tensors)}
        case list():
            return [_encode(v, f"{place}/{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            return {"tuple": [_encode(v, f"{place}/{i}", tensors) for i, v in enumerate(value)]}
        case dict():
            for key in value:
                if type(key) not in (str, int):
                    raise UserError(f"{place} has the key {key!r}; a checkpoint keeps str and int")
            return {"items": [[k, _encode(v, f"{place}/{k}", tensors)] for k, v in value.items()]}
        case _:
            raise UserError(f"{place} is a {type(value).__name__}; a checkpoint cannot keep it")


def _keep(tensor: Tensor, place: str, tensors: dict[str, Tensor]) -> str:
    if tensor.dtype not in _DTYPES or tensor.layout != torch.strided:
        raise UserError(f"{place} is a {tensor.dtype} tensor; a checkpoint cannot keep it")
    name = place
    while name in tensors:  # keys 1 and "1" give the same place
        name += "'"
    # safetensors rejects views and shared memory, so such tensors are copied.
    tensor = tensor.detach().cpu().contiguous()
    storage = tensor.untyped_storage()
    taken = {t.untyped_storage().data_ptr() for t in tensors.values()}
    if storage.nbytes() != tensor.numel() * tensor.element_size() or storage.data_ptr() in taken:
        tensor = tensor.clone()
    tensors[name] = tensor
    return name


def _as_tensor(array: np.ndarray, place: str) -> Tensor:
    if not (array.flags.c_contiguous and array.flags.writeable):
        array = array.copy(order="C")
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise UserError(f"{place} is a {array.dtype} array; a checkpoint cannot keep it") from None


def _as_array(tensor: Tensor) -> np.ndarray:
    try:
        return tensor.numpy()
    except TypeError:
        raise ValueError(f"NumPy has no {tensor.dtype}") from None


def _decode(skeleton: Any, tensors: dict[str, Tensor], unused: set[str]) -> Any:
    def take(name: Any) -> Tensor:
        if not isinstance(name, str) or name not in unused:
            raise ValueError(f"tensor {name!r} is missing or used twice")
        unused.remove(name)
        return tensors[name]

    match skeleton:
        case None | bool() | str() | int() | float():
            return skeleton
        case list():
            return [_decode(v, tensors, unused) for v in skeleton]
        case {"items": list(pairs), **rest} if not rest:
            items: dict[str | int, Any] = {}
            for pair in pairs:
                match pair:
                    case [str() | int() as key, value] if (
                        type(key) is not bool and key not in items
                    ):
                        items[key] = _decode(value, tensors, unused)
                    case _:
                        raise ValueError("an item is not a new key and a value")
            return items
        case {"tuple": list(values), **rest} if not rest:
            return tuple(_decode(v, tensors, unused) for v in values)
        case {"tensor": name, **rest} if not rest:
            return take(name)
        case {"array": name, **rest} if not rest:
            return _as_array(take(name))
        case {"int": str(digits), **rest} if not rest:
            return int(digits, 16)
        case {"float": str(word), **rest} if not rest and word in _NOT_FINITE:
            return float(word)
        case _:
            raise ValueError("an unknown kind of value")
