"""What a module changes and does not return from `state_dict`: found, and stored or reported.

A `state_dict` has parameters, buffers, and what `get_extra_state` returns. A method of a user may
also change plain attributes: an optimizer, a dict of counts, a random generator. Optimizers are
stored by name. For the rest a warning names the attributes.
"""

from __future__ import annotations

import hashlib
import random
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from emi.stored_state import expect_keys, expect_optimizer

_OF_TORCH = frozenset(vars(nn.Module()))
_OURS = ("emi", "torch")  # their modules return all state that they have


def optimizers(module: nn.Module) -> dict[str, Optimizer]:
    """The optimizers that are plain attributes, by `submodule.attribute`."""
    return {name: value for name, value in _attributes(module) if isinstance(value, Optimizer)}


def optimizer_states(module: nn.Module) -> dict[str, Any]:
    """The states of these optimizers, in the form of `Optimizer.state_dict`."""
    return {name: optimizer.state_dict() for name, optimizer in optimizers(module).items()}


def check_optimizers(module: nn.Module, states: Any, place: str) -> None:
    """Raise UserError unless `states`, which nothing has checked, fits the optimizers."""
    own = optimizers(module)
    expect_keys(states, own, place)
    for name, optimizer in own.items():
        expect_optimizer(states[name], optimizer, f"{place}.{name}")


def load_optimizers(module: nn.Module, states: Mapping[str, Any]) -> None:
    """Restore states that `check_optimizers` accepted."""
    for name, optimizer in optimizers(module).items():
        optimizer.load_state_dict(states[name])


class OutsideState:
    """Compares the plain attributes of a module with those at construction of this object."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._before = _digests(module)

    def changed(self) -> list[str]:
        """The attributes that changed and are stored nowhere."""
        now = _digests(self.module)
        return sorted(name for name, digest in now.items() if self._before.get(name) != digest)

    def sentence(self) -> str | None:
        """What a stored state would lack; None if nothing."""
        names = self.changed()
        if not names:
            return None
        return (
            f"{type(self.module).__name__} changed {', '.join(names)}, which is not saved: "
            "register tensors as buffers, and return other values from get_extra_state"
        )

    def warn(self) -> None:
        """Warn if a stored state would lack something that changed."""
        if sentence := self.sentence():
            warnings.warn(sentence, stacklevel=3)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The plain attributes of every part that does not define its extra state itself."""
    for prefix, part in module.named_modules():
        kind = type(part)
        if kind.__module__.partition(".")[0] in _OURS:
            continue
        if kind.get_extra_state is not nn.Module.get_extra_state:
            continue
        for name, value in vars(part).items():
            if name not in _OF_TORCH:
                yield f"{prefix}.{name}".lstrip("."), value


def _digests(module: nn.Module) -> dict[str, str]:
    """A digest of each plain attribute that is no optimizer."""
    tensors = (*module.parameters(), *module.buffers())
    known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    parts = set(map(id, module.modules()))
    found = {}
    for name, value in _attributes(module):
        if not isinstance(value, Optimizer):
            digest = hashlib.blake2b()
            for word in _words(value, known, parts):
                digest.update(word + b"\0")
            found[name] = digest.hexdigest()
    return found


def _words(value: Any, known: set[int], seen: set[int]) -> Iterator[bytes]:
    """The content of a value as bytes. `known`: storages of tensors in the state dict.

    `seen`: objects that are not read again: they are parts of the module, or refer to themselves.
    """
    yield type(value).__qualname__.encode()
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | np.generic():
            yield repr(value).encode()
            return
        case Tensor():
            if value.untyped_storage().data_ptr() not in known:
                yield repr((value.dtype, tuple(value.shape))).encode()
                flat = value.detach().cpu().contiguous().reshape(-1)
                yield flat.view(torch.uint8).numpy().tobytes()
            return
        case np.ndarray() if value.dtype.kind != "O":
            yield repr((value.dtype, value.shape)).encode()
            yield value.tobytes()
            return
        case torch.Generator():
            yield value.get_state().numpy().tobytes()
            return
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _words(part, known, seen)
    seen.discard(id(value))


def _parts(value: Any) -> Iterator[Any]:
    """What an object consists of."""
    match value:
        case Mapping():
            for pair in value.items():
                yield from pair
        case list() | tuple() | deque() | np.ndarray():
            yield from value
        case set() | frozenset():
            yield from sorted(value, key=repr)
        case Optimizer() | nn.Module():
            yield value.state_dict()
        case np.random.Generator():
            yield value.bit_generator.state
        case np.random.RandomState():
            yield value.get_state()
        case random.Random():
            yield value.getstate()
        case _:  # functions have an empty dict
            yield getattr(value, "__dict__", {})
