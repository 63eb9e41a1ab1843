"""Check a stored state against the object that it is for, before anything is changed.

A checkpoint can come from anyone. A tensor of another shape would make a fused kernel write outside
its memory, and a forged random generator would read outside its own. Each function raises a
UserError that names the place, as in `intrinsic.descent.optimizer.state.3.exp_avg`.
"""

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from emi.errors import UserError

EXTRA = "_extra_state"  # PyTorch's key of what `get_extra_state` returns
_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "params")
_COUNTERS = ("step", "mu_product", "eta", "mu")  # of PyTorch's optimizers, one number each
_TWISTER_WORDS = 624  # of the Mersenne Twister, PyTorch's generator on the CPU
# Integers of NumPy's generators, and the number of values each may have.
_GENERATOR_INTS = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}


@runtime_checkable
class ChecksState(Protocol):
    """A module whose stored state can be wrong in more than keys, shapes and dtypes."""

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        """Raise UserError unless the module can load its own entries of a state dict."""


def check_module(module: nn.Module, state: Any, place: str, *, finite: bool = False) -> None:
    """Raise UserError unless `module` can load `state`, which nothing has checked yet.

    Keys, shapes and dtypes must be those that the module has now, and with `finite` all numbers
    must be finite. Modules that are neither PyTorch's nor ours check their state when they load it.
    """
    expect(isinstance(state, dict), state, place, "a dict")
    own = module.state_dict()
    parts = dict(module.named_modules(remove_duplicate=False))
    ours = {name for name, part in parts.items() if _is_ours(part)}

    def owner(key: Any) -> str:
        name = str(key).rpartition(".")[0]
        return name if name in parts else ""

    expected = {key: value for key, value in own.items() if owner(key) in ours}
    for name in ours:
        absent: dict[str, Tensor] = getattr(parts[name], "absent_state", dict)()
        for key, value in absent.items():  # which it may hold or not
            place_of = f"{name}.{key}".lstrip(".")
            expected.pop(place_of, None)
            expected |= {place_of: value} if place_of in state else {}
    expect_keys({k: v for k, v in state.items() if owner(k) in ours}, expected, place)
    for key, value in expected.items():
        where, found = f"{place}.{key}".removesuffix(f".{EXTRA}"), state[key]
        if isinstance(value, Tensor):
            expect_tensor(found, value.shape, value.dtype, where)
        else:
            expect_keys(found, value, where)
        if finite:
            _expect_finite(found, where)
    for name, part in parts.items():
        if name in ours and isinstance(part, ChecksState):
            entries = {k.rpartition(".")[2]: v for k, v in state.items() if owner(k) == name}
            part._check_stored(entries, f"{place}.{name}" if name else place)


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] in ("emi", "torch")


def expect(holds: bool, found: Any, place: str, expected: str) -> None:
    if not holds:
        raise UserError(f"{place} is {_described(found)}, expected {expected}")


def expect_keys(
    found: Any, keys: Collection[Any], place: str, *, optional: Collection[Any] = ()
) -> None:
    """Raise UserError unless `found` is a dict of these keys; those in `optional` may be absent."""
    expect(isinstance(found, dict), found, place, "a dict")
    for key in keys:
        if key not in found:
            raise UserError(f"{place} lacks {key!r}")
    for key in found:
        if key not in keys and key not in optional:
            raise UserError(f"{place} has the unknown key {_described(key)}")


def expect_int(found: Any, low: int, high: int, place: str) -> None:
    holds = type(found) is int and low <= found <= high
    expect(holds, found, place, f"a whole number from {low} to {high}")


def expect_tensor(
    found: Any, shape: Sequence[int], dtype: torch.dtype, place: str, *, low: float | None = None
) -> None:
    """Raise UserError unless `found` is a tensor like this; with `low`, none is below it."""
    expect(isinstance(found, Tensor), found, place, "a tensor")
    if found.shape != tuple(shape):
        raise UserError(f"{place} has shape {tuple(found.shape)}, expected {tuple(shape)}")
    if found.dtype != dtype:
        raise UserError(f"{place} has dtype {_name(found.dtype)}, expected {_name(dtype)}")
    if low is not None and (found < low).any():
        raise UserError(f"{place} holds {found.min().item()}, expected {low} or more")


def expect_adam(found: Any, optimizer: torch.optim.Adam, place: str) -> None:
    """Raise UserError unless `found` is a state of `optimizer` with the same settings."""
    expect_keys(found, ("state", "param_groups"), place)
    groups, own = found["param_groups"], optimizer.state_dict()["param_groups"]
    where = f"{place}.param_groups"
    expect(isinstance(groups, list) and len(groups) == len(own), groups, where, f"{len(own)} dicts")
    for i, (group, expected) in enumerate(zip(groups, own, strict=True)):
        # Flags that only choose an implementation differ between versions of PyTorch.
        expect_keys(group, _ADAM, f"{where}.{i}", optional=expected)
        for key in _ADAM:
            same, of = _same(group[key], expected[key]), f"{where}.{i}.{key}"
            expect(same, group[key], of, _described(expected[key]))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    expect_keys(found["state"], (), f"{place}.state", optional=range(len(parameters)))
    for i, moments in found["state"].items():
        where, like = f"{place}.state.{i}", parameters[i]
        expect_keys(moments, ("step", "exp_avg", "exp_avg_sq"), where)
        expect_tensor(moments["step"], (), torch.float32, f"{where}.step", low=0)
        expect_tensor(moments["exp_avg"], like.shape, like.dtype, f"{where}.exp_avg")
        expect_tensor(moments["exp_avg_sq"], like.shape, like.dtype, f"{where}.exp_avg_sq", low=0)


def expect_optimizer(found: Any, optimizer: torch.optim.Optimizer, place: str) -> None:
    """Raise UserError unless `found` is a state of this optimizer, of any kind.

    Settings may differ in value, because schedules change them, but not in type. Tensors have the
    shape of their parameter, except for the counters of PyTorch's optimizers.
    """
    expect_keys(found, ("state", "param_groups"), place)
    groups, own = found["param_groups"], optimizer.state_dict()["param_groups"]
    where = f"{place}.param_groups"
    expect(isinstance(groups, list) and len(groups) == len(own), groups, where, f"{len(own)} dicts")
    for i, (group, expected) in enumerate(zip(groups, own, strict=True)):
        expect_keys(group, expected, f"{where}.{i}")
        for key, value in expected.items():
            right = type(group[key]) is type(value)
            expect(right, group[key], f"{where}.{i}.{key}", f"a {type(value).__name__}")
        same = _same(group["params"], expected["params"])
        expect(same, group["params"], f"{where}.{i}.params", _described(expected["params"]))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    expect_keys(found["state"], (), f"{place}.state", optional=range(len(parameters)))
    for i, entry in found["state"].items():
        where, like = f"{place}.state.{i}", parameters[i]
        expect(isinstance(entry, dict), entry, where, "a dict")
        for key, value in entry.items():
            if isinstance(value, Tensor):
                shape = () if key in _COUNTERS else like.shape
                dtype = torch.float32 if key in _COUNTERS else like.dtype
                expect_tensor(value, shape, dtype, f"{where}.{key}")
            else:
                plain = isinstance(value, bool | int | float | None)
                expect(plain, value, f"{where}.{key}", "a tensor or a number")


def expect_torch_generator(found: Any, place: str) -> None:
    """Raise UserError unless `found` is a state of PyTorch's generator on the CPU."""
    scratch = torch.Generator()
    own = scratch.get_state()
    expect_tensor(found, own.shape, own.dtype, place)
    # PyTorch checks both numbers but not their sum: with a larger one, the generator would read
    # behind its words before it makes new ones.
    left, position = struct.unpack_from("=8xi4xQ", found.numpy().tobytes())
    try:
        scratch.set_state(found)
    except RuntimeError:
        left = math.inf
    if left + position > _TWISTER_WORDS + 1:
        raise UserError(f"{place} is not the state of a random generator")


def expect_numpy_generator(found: Any, own: Mapping[str, Any], place: str) -> None:
    """Raise UserError unless `found` is a state of the same NumPy generator as `own`."""
    expect_keys(found, own, place)
    for key, expected in own.items():
        where = f"{place}.{key}"
        if isinstance(expected, Mapping):
            expect_numpy_generator(found[key], expected, where)
        elif key in _GENERATOR_INTS:
            expect_int(found[key], 0, _GENERATOR_INTS[key] - 1, where)
        else:
            expect(_same(found[key], expected), found[key], where, _described(expected))


def _expect_finite(found: Any, place: str) -> None:
    """Raise UserError if a float or a tensor at any depth is NaN or infinite."""
    match found:
        case Tensor() if found.is_floating_point():
            holds = bool(found.isfinite().all())
        case float():
            holds = math.isfinite(found)
        case dict():
            for key, value in found.items():
                _expect_finite(value, f"{place}.{key}")
            return
        case list() | tuple():
            for i, value in enumerate(found):
                _expect_finite(value, f"{place}.{i}")
            return
        case _:
            return
    if not holds:
        raise UserError(f"{place} is not finite")


def _same(a: Any, b: Any) -> bool:
    """Equal plain values of the same types; never compares tensors."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, bool | int | float | str | None) and a == b


def _described(value: Any) -> str:
    """A value in at most one line: its text if it is short, else its kind."""
    match value:
        case Tensor() | np.ndarray():
            return f"a tensor or array of shape {tuple(value.shape)}"
        case int() if abs(value) >= 2**64:  # Python refuses to write very long numbers
            return f"a number of {value.bit_length()} bits"
        case None | bool() | int() | float() | str():
            text = repr(value)
            return text if len(text) <= 60 else f"a {type(value).__name__} of {len(text)} letters"
        case (first, second) if isinstance(first, float) and isinstance(second, float):
            return f"({first}, {second})"
        case _:
            return f"a {type(value).__name__}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
