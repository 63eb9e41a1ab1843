"""The versions that pyproject.toml allows are the versions that .ci/versions tests."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LISTS = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
RANGES = {
    canonicalize_name(requirement.name): requirement.specifier
    for requirement in (Requirement(line) for lines in LISTS for line in lines)
    if requirement.name != PROJECT["name"]
}


def pins(name: str) -> dict[str, str]:
    """The versions in a constraints file, by normalised name of the package."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(package): version for package, version in pinned}


def test_the_lower_bounds_are_the_lowest_tested_versions() -> None:
    bounds = {name: str(specifier) for name, specifier in RANGES.items()}
    assert bounds == {name: f">={pin}" for name, pin in pins("constraints-lowest.txt").items()}


@pytest.mark.parametrize("package", RANGES)
def test_the_pinned_versions_are_allowed(package: str) -> None:
    assert pins("constraints.txt")[package] in RANGES[package]


def test_the_supported_interpreters_are_listed_once() -> None:
    found = [re.fullmatch(r".* :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    declared = [match[1] for match in found if match]
    assert declared == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={declared[0]}"
    setup = (ROOT / ".ci/setup.sh").read_text(encoding="utf-8")
    pythons = " ".join(f"python{version}" for version in declared)
    assert re.findall(r"^PYTHONS='(.*)'$", setup, re.M) == [pythons]
    assert "for python in $PYTHONS python3; do" in setup
    versions = (ROOT / ".ci/versions").read_text(encoding="utf-8")
    assert "for python in $PYTHONS; do check" in versions
    assert not re.search(r"python3\.\d", setup.replace(pythons, "") + versions)
