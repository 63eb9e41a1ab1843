"""The shape of the code, as tests: who may import whom, what names say, where pointers lead."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "emi"
MODULES = sorted(SOURCE.rglob("*.py"))
POINTERS = [ROOT / "docs" / "paper_to_code.md", *(ROOT / "docs" / "methods").glob("*.md")]

# What a package or a top-level module may import besides itself. Imports point downwards only.
FILES = {"durable_file", "untrusted_file", "state_codec"}
ARITHMETIC = {"nets", "products", "bfloat16"}
FOUNDATION = FILES | {"program", "errors", "settings", "images", "spaces", "stored_state", "batch"}
FOUNDATION |= ARITHMETIC
BELOW_TRAINING = FOUNDATION | {"intrinsic", "agent", "envs"}
MAY_IMPORT: dict[str, set[str]] = {
    "start": set(),
    "program": {"start"},
    "errors": set(),
    "settings": set(),
    "durable_file": {"errors"},
    "untrusted_file": {"errors"},
    "state_codec": {"errors"},
    "images": {"errors"},
    "spaces": {"errors", "images"},
    "batch": {"errors"},
    "stored_state": {"errors"},
    "nets": {"batch", "images", "spaces", "stored_state", "errors"},
    "products": set(),
    "cells": set(),
    "bfloat16": {"nets"},
    "intrinsic": FOUNDATION - FILES,
    "agent": FOUNDATION - FILES,
    "envs": {"program", "errors", "images", "spaces"},
    "training": (BELOW_TRAINING - {"durable_file", "state_codec"}) | {"cells"},
    "adapters": FOUNDATION | {"intrinsic"},
    "planning": FOUNDATION - FILES | {"intrinsic"},
    "runs": BELOW_TRAINING | {"training", "planning"},
    "sweeps": BELOW_TRAINING | {"training", "planning", "runs"},
    "report": {"durable_file", "untrusted_file", "errors", "cells", "intrinsic"},
    "reproduction": BELOW_TRAINING
    | {"training", "adapters", "planning", "runs", "sweeps", "report"},
}
# The report reads files: of the methods it may know the table, which names them.
ONLY_THESE_MODULES = {("report", "intrinsic"): {"emi.intrinsic.table"}}
# Everything may be imported by the command line and by the package that exports the public names.
TOP = {"__init__", "__main__", "cli"}
# Imports inside functions keep these out of `import emi`: they are extras, or slow to import.
OPTIONAL = {
    "ale_py",
    "gymnasium",
    "imageio",
    "matplotlib",
    "gymnasium_robotics",
    "minigrid",
    "mujoco",
    "ray",
    "rich",
    "safetensors",
    "scipy",
    "stable_baselines3",
    "tensorboard",
    "torch",
}
# Own modules that import an extra at their top.
OPTIONAL_OWN = {
    "emi.adapters",
    "emi.adapters.skrl",
    "emi.adapters.stable_baselines3",
    "emi.adapters.torchrl",
    "emi.envs.rendering",
}


def package_of(module: Path) -> str:
    """`agent` for agent/trpo.py, `cli` for cli.py."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def dotted_name(module: Path) -> str:
    """`emi.agent.trpo` for agent/trpo.py, `emi.agent` for agent/__init__.py."""
    return ".".join(["emi", *module.relative_to(SOURCE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )


def names_in(node: ast.AST, module: Path) -> list[str]:
    """Dotted names that an import statement names; `from emi import cli` gives `emi.cli`."""
    package = ("emi", *module.relative_to(SOURCE).parent.parts)
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    start = package[: len(package) - node.level + 1] if node.level else ()
    origin = ".".join([*start, *([node.module] if node.module else [])])
    inside = [f"{origin}.{alias.name}" for alias in node.names]
    modules = [name for name in inside if name in OWN_MODULES]
    return modules if len(modules) == len(inside) else [origin, *modules]


OWN_MODULES = {dotted_name(module) for module in MODULES}


def imported_modules(module: Path) -> list[str]:
    """Dotted names that a file imports, anywhere in it."""
    return [
        name for node in ast.walk(ast.parse(module.read_text())) for name in names_in(node, module)
    ]


def imported_symbols(module: Path, origins: tuple[str, ...]) -> set[str]:
    """Names that a file takes from modules whose dotted name starts with one of `origins`."""
    nodes = ast.walk(ast.parse(module.read_text()))
    taken = (n for n in nodes if isinstance(n, ast.ImportFrom))
    return {a.name for n in taken if (n.module or "").startswith(origins) for a in n.names}


def imported_packages(module: Path) -> set[str]:
    names = (name.split(".") for name in imported_modules(module))
    return {parts[1] for parts in names if parts[0] == "emi" and len(parts) > 1}


def relative(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def test_every_package_has_a_rule() -> None:
    assert {package_of(module) for module in MODULES} == MAY_IMPORT.keys() | TOP


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_downwards(package: str) -> None:
    for module in (m for m in MODULES if package_of(m) == package):
        others = imported_packages(module) - {package} - MAY_IMPORT[package]
        assert not others, f"{relative(module)} must not import {sorted(others)}"
        for (importer, imported), allowed in ONLY_THESE_MODULES.items():
            if importer == package:
                named = {n for n in imported_modules(module) if n.startswith(f"emi.{imported}")}
                assert named <= allowed, relative(module)


def test_there_is_no_import_cycle() -> None:
    graph = {dotted_name(module): set(imported_modules(module)) & OWN_MODULES for module in MODULES}
    graph["emi"] = set()  # it imports public names when they are first used
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join([*path, name])}"
        if name not in done:
            for imported in graph[name] - {name}:
                visit(imported, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "cli.py"], ids=relative)
def test_imports_inside_functions_are_of_optional_packages(module: Path) -> None:
    tree = ast.parse(module.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for node in (inner for function in functions for inner in ast.walk(function)):
        for name in names_in(node, module):
            assert name.split(".")[0] in OPTIONAL or name in OPTIONAL_OWN, name


def test_only_the_trainer_connects_agent_and_intrinsic() -> None:
    # A table or figure of the paper may connect what it likes.
    modules = [m for m in MODULES if package_of(m) != "reproduction"]
    both = {relative(m): m for m in modules if {"agent", "intrinsic"} <= imported_packages(m)}
    assert both.pop("training/trainer.py", None)
    both.pop("training/overlap.py", None)  # a part of the trainer
    for name, module in both.items():  # those that only describe a run
        symbols = imported_symbols(module, ("emi.agent",))
        assert {s for s in symbols if not s.endswith("Config")} == set(), name


def test_runs_are_read_without_a_drawing_library() -> None:
    code = "import emi.report.load, emi.report.statistics, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "torch", "scipy"} & set(done.stdout.split())


def test_public_classes_and_functions_have_one_name_each() -> None:
    """A name says which thing is meant, wherever it is read."""
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(module))
    shared = {"Losses"}  # of a method: the terms of its objective
    twice = {name: files for name, files in homes.items() if len(files) > 1 and name not in shared}
    assert twice == {}


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_file_names_say_what_is_inside(module: Path) -> None:
    nothing = {"utils", "util", "common", "base", "helpers", "helper", "misc"}
    assert not nothing & {part.removesuffix(".py") for part in module.relative_to(SOURCE).parts}


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_nothing_unpickles(module: Path) -> None:
    unsafe = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    assert not unsafe & {name.split(".")[0] for name in imported_modules(module)}
    attributes = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert not {"torch.load", "torch.save"} & attributes


def pointers() -> list[str]:
    """Every `path.py::symbol` in backticks in docs/paper_to_code.md and docs/methods/."""
    text = "".join(page.read_text() for page in POINTERS if page.exists())
    return sorted(set(re.findall(r"`([\w./-]+\.py::[\w.]+)`", text)))


def defined_symbols(module: Path) -> set[str]:
    """`function`, `Class`, `Class.method`, `Class.field` and `CONSTANT` of a file."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(prefix + name)
                case ast.ClassDef(name=name, body=inner):
                    found.add(prefix + name)
                    visit(inner, f"{prefix}{name}.")
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(prefix + name)
                case ast.Assign(targets=targets):
                    found.update(prefix + t.id for t in targets if isinstance(t, ast.Name))

    visit(ast.parse(module.read_text()).body, "")
    return found


def test_the_paper_points_to_code() -> None:
    assert pointers(), "docs/paper_to_code.md is missing or points nowhere"


@pytest.mark.parametrize("pointer", pointers())
def test_pointer_resolves(pointer: str) -> None:
    path, symbol = pointer.split("::")
    assert (ROOT / path).is_file()
    assert symbol in defined_symbols(ROOT / path)


def tracked_texts() -> Iterator[Path]:
    folders = (".ci", "benchmarks", "docs", "examples", "results", "src", "tests")
    candidates = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in folders:
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        # A tool that was run in a folder leaves its cache there.
        candidates += [path for path in files if ".mypy_cache" not in path.parts]
    binary = {".gz", ".png", ".mp4", ".gif", ".pyc", ".safetensors"}
    for path in sorted(candidates):
        if path.suffix not in binary and not any(p.endswith(".egg-info") for p in path.parts):
            yield path


def test_no_file_names_a_place_on_one_machine() -> None:
    # /home/me stands for anybody's home.
    place = re.compile(r"(?<![\w.:/-])/(?:(?:home|Users)/(?!me\b)|root/|work/)[\w.]")
    texts = list(tracked_texts())
    assert ROOT / "pyproject.toml" in texts
    assert [
        p.relative_to(ROOT).as_posix() for p in texts if place.search(p.read_text(errors="replace"))
    ] == []
