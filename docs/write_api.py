"""Writes docs/api.md from the docstrings of the public names.

python docs/write_api.py
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("api.md")
HEAD = """# API reference

Written by `python docs/write_api.py` from the docstrings; do not edit it here. Axes stand in
brackets, time or batch first. To use a method in a trainer, begin with [trainers.md](trainers.md);
each method has a [page of its own](methods).
"""
# The public names in the order a reader meets them; `undocumented` says which are missing.
SECTIONS = {
    "Methods": ["emi.EMI", "emi.ICM", "emi.RND", "emi.EX2", "emi.SimHash", "emi.VIME"],
    "The contract": ["emi.IntrinsicReward", "emi.Transitions", "emi.score_and_learn"],
    "Bonuses combined, standardised, diagnosed": [
        "emi.WeightedSum",
        "emi.NormalizeObservation",
        "emi.diagnose",
        "emi.intrinsic.diagnosis.Diagnosis",
    ],
    "Adapters": [
        "emi.adapters.IntrinsicRewardCallback",
        "emi.adapters.IntrinsicRewardVectorWrapper",
        "emi.adapters.linear",
    ],
    "Training": ["emi.make_vec", "emi.train", "emi.training.trainer.Report"],
    "Settings of the methods": [
        "emi.EMIConfig",
        "emi.ICMConfig",
        "emi.RNDConfig",
        "emi.EX2Config",
        "emi.SimHashConfig",
        "emi.VIMEConfig",
    ],
    "Settings of a run": [
        "emi.training.config.TrainConfig",
        "emi.agent.policy.PolicyConfig",
        "emi.agent.value.ValueConfig",
        "emi.agent.trpo.TRPOConfig",
    ],
}
CONTRACT = ("learns_first", "reward", "learn")  # said once, by the protocol


def public_names() -> list[str]:
    """Every name that `emi` and `emi.adapters` promise."""
    rooms = ("emi", "emi.adapters")
    return [f"{room}.{name}" for room in rooms for name in import_module(room).__all__]


def undocumented() -> list[str]:
    """Public names that no section has."""
    shown = {name for names in SECTIONS.values() for name in names}
    return [name for name in public_names() if name not in shown]


def named(path: str) -> Any:
    """The object behind a dotted name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def name_of(thing: Any) -> str:
    return str(thing.__name__)


def own_doc(thing: Any) -> str:
    """The docstring written for this very object; empty if it is inherited or made by a machine."""
    text = inspect.cleandoc(thing.__doc__ or "")
    made = dataclasses.is_dataclass(thing) and text.startswith(f"{name_of(thing)}(")
    return "" if made else text


def prose(text: str) -> str:
    """A docstring as Markdown: examples become blocks of a Python session."""
    blocks = []
    for block in text.split("\n\n"):
        blocks.append(f"```pycon\n{block}\n```" if block.startswith(">>>") else block)
    return "\n\n".join(blocks)


def words(annotation: Any) -> str:
    """A type as it is written in the source."""
    if isinstance(annotation, str):
        return annotation
    return inspect.formatannotation(annotation)


def default(value: Any) -> str:
    """A default as it is written in the source; a config with nothing changed as its name."""
    if dataclasses.is_dataclass(value) and value == type(value)():  # type: ignore[misc]
        return f"{type(value).__name__}()"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return repr(value)


def call(name: str, function: Any) -> str:
    """`name(parameter: type = default, …)`, one line for each parameter where it is long."""
    signature, parts, star = inspect.signature(function), [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        text = f"{parameter.name}: {words(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {default(parameter.default)}"
        parts.append(text)
    gives = ""
    if signature.return_annotation not in (signature.empty, "None", None):
        gives = f" -> {words(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){gives}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"


def helps(kind: type) -> dict[str, str]:
    """The line under each field of a dataclass, or the comment beside it."""
    source = textwrap.dedent(inspect.getsource(kind))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    found, name, lines = {}, "", source.splitlines()
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                comment = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
                found[name] = comment.partition("  # ")[0]
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(inspect.cleandoc(text).split())
            case _:
                name = ""
    return found


def fields(kind: type) -> list[str]:
    """A table of the fields of a dataclass: type, default, help."""
    help_of = helps(kind)
    rows = ["| field | type | default | |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(kind):
        value = "" if field.default is dataclasses.MISSING else f"`{default(field.default)}`"
        if field.default_factory is not dataclasses.MISSING:
            value = f"`{default(field.default_factory())}`"
        cells = [f"`{field.name}`", f"`{words(field.type)}`", value, help_of.get(field.name, "")]
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return rows


def members(kind: type) -> Iterator[str]:
    """The documented methods and properties that a class itself defines, in their order."""
    contract = inspect.getattr_static(kind, "_is_protocol", False)
    for name, member in vars(kind).items():
        if name.startswith("_") or (name in CONTRACT and not contract):
            continue
        if isinstance(member, property) and own_doc(member):
            gives = words(inspect.signature(member.fget).return_annotation)  # type: ignore[arg-type]
            yield f"**`{name}: {gives}`**\n\n{prose(own_doc(member))}"
        elif inspect.isfunction(member) and own_doc(member):
            signature = " ".join(call(name, member).replace("(\n", "(").split())
            signature = signature.replace(",)", ")").replace(", )", ")")
            yield f"**`{signature}`**\n\n{prose(own_doc(member))}"


def is_settings(thing: Any) -> bool:
    return dataclasses.is_dataclass(thing) and name_of(thing).endswith("Config")


def entry(path: str) -> str:
    """The part of the page on one name."""
    thing = named(path)
    parts = [f"### {path}"]
    if not is_settings(thing) and not inspect.getattr_static(thing, "_is_protocol", False):
        parts.append(f"```text\n{call(thing.__name__, thing)}\n```")
    if is_method(thing):  # what the file says first: the idea
        parts.append(inspect.cleandoc(import_module(thing.__module__).__doc__ or ""))
    if text := own_doc(thing):
        parts.append(prose(text))
    if dataclasses.is_dataclass(thing) and isinstance(thing, type) and any(helps(thing).values()):
        parts.append("\n".join(fields(thing)))
    if inspect.isclass(thing):
        parts += members(thing)
    return "\n\n".join(parts)


def is_method(thing: Any) -> bool:
    return thing.__module__.startswith("emi.intrinsic.") and hasattr(thing, "learns_first")


def page() -> str:
    """The whole of docs/api.md."""
    links = []
    for names in SECTIONS.values():
        links += [f"[`{name}`](#{re.sub(r'[^a-z0-9_]', '', name.lower())})" for name in names]
    parts = [HEAD.strip(), " · ".join(links)]
    for title, names in SECTIONS.items():
        parts += [f"## {title}", *(entry(name) for name in names)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
