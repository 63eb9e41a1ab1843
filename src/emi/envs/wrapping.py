"""Wrappers that a user names: `package.module:Class`, with arguments `package.module:Class{…}`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import VectorEnv

from emi.envs.foreign import failure, import_named, require_arguments, unknown_argument
from emi.envs.foreign import unknown_argument_of as _unknown_argument_of
from emi.errors import UserError, did_you_mean


class Wrapper(NamedTuple):
    """A wrapper as it is named: `module:kind` and keyword arguments."""

    module: str
    kind: str
    arguments: dict[str, Any]


def parse_wrapper(text: str) -> Wrapper:
    """Parse `package.module:Class` or `package.module:Class{"k": 1}`, with arguments in JSON.

    >>> parse_wrapper('a.b:C{"k": 1}')
    Wrapper(module='a.b', kind='C', arguments={'k': 1})
    """
    name, brace, rest = text.partition("{")
    module, colon, kind = name.strip().partition(":")
    parts = [*module.split("."), *kind.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise UserError(
            f'a wrapper is package.module:Class or package.module:Class{{"key": 1}}, got {text!r}'
        )
    try:
        arguments = json.loads(brace + rest) if brace else {}
    except ValueError as error:
        raise UserError(f"the arguments of the wrapper {text!r} are not JSON: {error}") from None
    return Wrapper(module, kind, arguments)


def load_wrapper(text: str) -> Callable[[gymnasium.Env], gymnasium.Env]:
    """The function that wraps an environment in the wrapper `text`; UserError if there is none."""
    module, name, arguments = parse_wrapper(text)
    home: Any = import_named(module, f"cannot load the wrapper {text!r}")
    kind: Any = home
    for part in name.split("."):
        if not hasattr(kind, part):
            raise UserError(
                f"there is no wrapper {name!r} in {module}{did_you_mean(name, dir(home))}"
            )
        kind = getattr(kind, part)
    if not callable(kind):
        raise UserError(f"the wrapper {text!r} is not a class: name a class or a function")
    if isinstance(kind, type) and issubclass(kind, VectorEnv):
        raise UserError(
            f"the wrapper {text!r} is for vector environments: name one for single environments"
        )
    require_arguments(f"the wrapper {name!r}", kind, arguments)

    def wrap(env: gymnasium.Env) -> gymnasium.Env:
        try:
            wrapped = kind(env, **arguments)
        except UserError:
            raise
        except Exception as error:
            unknown = _unknown_argument_of(error, arguments)
            if unknown is not None:
                raise unknown_argument(f"the wrapper {name!r}", unknown) from error
            raise failure(f"the wrapper {text!r} raised", error) from error
        if not isinstance(wrapped, gymnasium.Env):
            raise UserError(
                f"{text!r} is not a wrapper: called with an environment, it returned "
                f"{type(wrapped).__name__} instead of a gymnasium.Env"
            )
        return wrapped

    return wrap
