"""docs/api.md is what the docstrings say today, and every public name has one."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
_spec = importlib.util.spec_from_file_location("write_api", DOCS / "write_api.py")
assert _spec is not None
assert _spec.loader is not None
write_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(write_api)
TEXT = (DOCS / "api.md").read_text(encoding="utf-8")


def test_the_committed_page_is_up_to_date() -> None:
    assert write_api.page() == TEXT, "run: python docs/write_api.py"


def test_every_public_name_is_on_the_page() -> None:
    assert write_api.undocumented() == []
    names = write_api.public_names()
    assert len(names) > 20
    assert {"emi.EMI", "emi.TrainConfig", "emi.preset", "emi.UserError"} <= set(names)
    assert {"emi.NormalizeReward", "emi.adapters.IntrinsicRewardCallback"} <= set(names)
    for name in names:
        assert f"\n### {name}\n" in TEXT


@pytest.mark.parametrize("name", write_api.public_names())
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert len(write_api.own_doc(write_api.named(name))) > 15
    part = TEXT.split(f"\n### {name}\n")[1].split("\n##")[0]
    assert write_api.own_doc(write_api.named(name)).splitlines()[0] in part


def test_every_public_function_of_a_public_class_has_a_docstring() -> None:
    """The contract is documented by IntrinsicReward, an override by the class it comes from."""
    seen = 0
    for path in write_api.public_names():
        kind = write_api.named(path)
        if not inspect.isclass(kind):
            continue
        inherited = {name for base in kind.__mro__[1:] for name in vars(base)}
        for name, member in vars(kind).items():
            if name.startswith("_") or name in inherited or name in write_api.CONTRACT:
                continue
            if inspect.isfunction(member) or isinstance(member, property):
                assert write_api.own_doc(member), f"{path}.{name}"
                seen += 1
    assert seen > 15


def test_the_contract_is_documented_once() -> None:
    part = TEXT.split("\n### emi.IntrinsicReward\n")[1].split("\n###")[0]
    assert "**`learns_first: bool = False`**" in part
    assert "**`reward(batch: Transitions) -> Tensor`**" in part
    assert "**`learn(batch: Transitions) -> dict[str, float]`**" in part
    for heading in ("**`learns_first", "**`reward(", "**`learn(", "**`score("):
        assert TEXT.count(heading) == 1


def test_every_setting_has_its_line() -> None:
    settings = write_api.sections()["Settings of the methods"]
    assert settings == [f"{name}Config" for name in write_api.sections()["Methods"]]
    assert {"emi.EMIConfig", "emi.EX2Config", "emi.VIMEConfig"} < set(settings)
    for name in settings:
        kind = write_api.named(name)
        for field in dataclasses.fields(kind):
            help_line = write_api.field_docs(kind)[field.name]
            assert len(help_line) > 10, f"{name}.{field.name}"
            assert f"| `{field.name}` |" in TEXT
            assert help_line.replace("|", r"\|") in TEXT
    assert "| `minibatch` | `PositiveInt` | `512` | minibatch size; an incomplete last" in TEXT


def test_links_lead_to_headings() -> None:
    anchors = re.findall(r"\]\(#([^)]+)\)", TEXT)
    headings = re.findall(r"^### (.+)$", TEXT, re.M)
    assert anchors == [write_api.anchor(heading) for heading in headings]
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (DOCS / target).exists(), target


def test_no_address_of_an_object_is_on_it() -> None:
    """A default that prints as `<object at 0x…>` would change with every run."""
    assert not re.search(r"0x[0-9a-f]{4,}|<[\w.]+ object", TEXT)


def test_every_page_with_python_has_a_test_that_runs_it() -> None:
    pages = {page.relative_to(DOCS) for page in DOCS.rglob("*.md") if has_python(page)}
    in_test_docs = {
        page for page in pages if page.parts[0] in ("methods", "trainers.md", "environments.md")
    }
    assert len(in_test_docs) > 5
    for page in pages - in_test_docs:
        test = TESTS / page.parent / f"test_{page.stem}.py"
        assert test.exists(), page
        assert page.name in test.read_text(encoding="utf-8"), page


def has_python(page: Path) -> bool:
    return "```python" in page.read_text(encoding="utf-8")
