"""Code of others that emi imports and calls: environments, wrappers, methods; what they raise.

An exception of theirs is not a bug in emi. It is reported in one sentence that names the
environment or the class, and with its traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import gymnasium

from emi.errors import ForeignError, UserError, did_you_mean

_EMI = f"{Path(__file__).parents[1]}{os.sep}"
_GYMNASIUM = f"{Path(gymnasium.__file__).parent}{os.sep}"
_IMPORTS = (f"{Path(importlib.__file__).parent}{os.sep}", "<frozen importlib")
_UNKNOWN_ARGUMENT = re.compile(r"unexpected keyword argument '(\w+)'")


@contextlib.contextmanager
def environment_errors(name: str) -> Iterator[None]:
    """Raise ForeignError instead of what the environment `name` or one of its wrappers raises.

    Environments are called through Gymnasium's own classes. So an exception is theirs if the first
    call outside of emi was one of Gymnasium.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        trace = outside_emi(error)
        if trace is None or not _is_in(trace, _GYMNASIUM):
            raise
        raise failure(f"the environment {name!r} raised", error) from error


def failure(what: str, error: Exception) -> ForeignError:
    """One sentence about an exception of others: `what` and the exception."""
    text = " ".join(str(error).split())
    return ForeignError(f"{what} {type(error).__name__}{': ' if text else ''}{text}")


def outside_emi(error: BaseException) -> TracebackType | None:
    """The traceback of an exception after the last frame of emi; None if emi itself raised it."""
    trace = found = error.__traceback__
    while trace is not None:
        if _is_in(trace, _EMI):
            found = trace.tb_next
        trace = trace.tb_next
    return found


def own_frames(error: BaseException) -> TracebackType | None:
    """The part of a traceback to show: after the calls in emi, Gymnasium and the import system."""
    start = trace = outside_emi(error)
    while trace is not None and _is_in(trace, _GYMNASIUM, *_IMPORTS):
        trace = trace.tb_next
    return trace or start


def in_own_method(error: BaseException) -> tuple[str, TracebackType] | None:
    """The user's own method whose code raised an exception, and the traceback from there."""
    contract = sys.modules.get("emi.intrinsic.contract")
    trace = error.__traceback__ if contract is not None else None
    while contract is not None and trace is not None:
        owner = type(trace.tb_frame.f_locals.get("self"))
        theirs = not owner.__module__.startswith("emi.") and not _is_in(trace, _EMI)
        if theirs and issubclass(owner, contract.IntrinsicReward):
            return f"{owner.__module__}:{owner.__qualname__}", trace
        trace = trace.tb_next
    return None


def _is_in(trace: TracebackType, *places: str) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(places)


def import_named(module: str, purpose: str) -> ModuleType:
    """Import a module that the user named; `purpose` begins the sentence if it cannot be."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        hint = ": is it in this directory, or installed?" if missing else ""
        raise UserError(f"{purpose}: {error}{hint}") from error
    except (ImportError, SyntaxError) as error:
        raise UserError(f"{purpose}: {error}") from error
    except Exception as error:
        raise failure(f"{purpose}: importing {module} raised", error) from error


def require_arguments(owner: str, kind: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise UserError if `kind` has no parameter for an argument, as far as its signature says."""
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError):  # of a class written in C
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            raise unknown_argument(owner, name, kind)


def unknown_argument(owner: str, name: str, kind: Callable[..., Any] | None = None) -> UserError:
    """The sentence about an argument that an environment or a wrapper does not take."""
    known: list[str] = []
    if kind is not None:
        with contextlib.suppress(TypeError, ValueError):
            known = [
                key
                for key, each in inspect.signature(kind).parameters.items()
                if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
                and key not in ("self", "env", "render_mode")
            ]
    others = f": it takes {', '.join(known)}" if known else ""
    return UserError(f"{owner} takes no argument {name!r}{did_you_mean(name, known, others)}")


def unknown_argument_of(error: Exception, given: Mapping[str, Any]) -> str | None:
    """The given argument that a TypeError complains about, if it does."""
    match = _UNKNOWN_ARGUMENT.search(str(error)) if isinstance(error, TypeError) else None
    return match[1] if match and match[1] in given else None
