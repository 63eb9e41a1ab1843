"""The shape of the code, as tests: who may import whom, what names say, where pointers lead."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "emi"
MODULES = sorted(SOURCE.rglob("*.py"))
POINTERS = [ROOT / "docs" / "paper_to_code.md", *(ROOT / "docs" / "methods").glob("*.md")]

# Which rooms a room may import, beside itself. Modules beside the rooms count as rooms.
MAY_IMPORT = {
    "data": set(),
    "nets": {"data"},
    "envs": set(),
    "intrinsic": {"data", "nets"},
    "agent": {"data", "nets"},
    "report": {"durable_file"},
    "state_codec": set(),
    "durable_file": set(),
    "adapters": {"data", "intrinsic", "state_codec", "durable_file"},
}


def room_of(module: Path) -> str:
    """`agent` for agent/trpo.py, `cli` for cli.py."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(module: Path) -> Iterator[str]:
    """Dotted names that a file imports, anywhere in it; `from emi import cli` gives `emi.cli`."""
    package = ("emi", *module.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*start, *([node.module] if node.module else [])])
            if origin == "emi":
                yield from (f"emi.{alias.name}" for alias in node.names)
            else:
                yield origin


def imported_symbols(module: Path, origins: tuple[str, ...]) -> set[str]:
    """Names that a file takes from modules whose dotted name starts with one of `origins`."""
    nodes = ast.walk(ast.parse(module.read_text()))
    taken = (n for n in nodes if isinstance(n, ast.ImportFrom))
    return {a.name for n in taken if (n.module or "").startswith(origins) for a in n.names}


def imported_rooms(module: Path) -> set[str]:
    names = (name.split(".") for name in imported_modules(module))
    return {parts[1] for parts in names if parts[0] == "emi" and len(parts) > 1}


def relative(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_they_may(room: str) -> None:
    members = [module for module in MODULES if room_of(module) == room]
    assert members, f"there is no room {room}: correct MAY_IMPORT"
    for module in members:
        strangers = imported_rooms(module) - {room} - MAY_IMPORT[room]
        assert not strangers, f"{relative(module)} must not import {sorted(strangers)}"
        assert "emi" not in imported_modules(module), (
            f"{relative(module)} imports the whole package"
        )


def test_only_train_brings_agent_and_intrinsic_together() -> None:
    # An experiment of the paper may bring together what it likes.
    modules = [m for m in MODULES if room_of(m) != "paper"]
    both = {relative(m): m for m in modules if {"agent", "intrinsic"} <= imported_rooms(m)}
    assert both.pop("training/trainer.py", None)
    for name, module in both.items():  # those that only say what a run is made of
        symbols = imported_symbols(module, ("emi.agent", "emi.intrinsic"))
        assert {s for s in symbols if not s.endswith("Config")} == set(), name


def test_runs_are_read_without_a_drawing_library() -> None:
    for name in ("load", "statistics"):
        packages = {m.split(".")[0] for m in imported_modules(SOURCE / "report" / f"{name}.py")}
        assert packages - sys.stdlib_module_names - {"emi"} == {"numpy"}


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_names_say_what_is_inside(module: Path) -> None:
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
