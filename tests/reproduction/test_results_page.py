"""docs/results.md and results/figures: links resolve, and tables match the committed runs."""

import re
from pathlib import Path

import pytest

from emi.reproduction.catalogue import named
from emi.reproduction.experiment import find

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_links_resolve() -> None:
    targets = re.findall(r"\]\(([^)#:]+)", PAGE)
    assert len(targets) > 12
    for target in targets:
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize(
    ("name", "endings"),
    [("table_1", [".md", ".csv"]), ("coefficient_search", [".png", ".md", ".csv"])],
)
def test_a_committed_table_matches_the_committed_runs(
    name: str, endings: list[str], tmp_path: Path
) -> None:
    (experiment,) = named([name])
    written = experiment.draw(find(experiment, ROOT / "results"), tmp_path / name)
    assert [path.suffix for path in written] == endings
    for path in written[-2:]:
        assert path.read_bytes() == (ROOT / "results" / "figures" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["recipe", "recipe_coefficients"])
def test_the_trainers_page_has_the_table_of_the_committed_runs(name: str, tmp_path: Path) -> None:
    (experiment,) = named([name])
    written = experiment.draw(find(experiment, ROOT / "results"), tmp_path / name)[-1]
    committed = (ROOT / "results" / "figures" / f"{name}.md").read_text(encoding="utf-8")
    assert written.read_text(encoding="utf-8") == committed
    rows = [line for line in committed.splitlines() if line.startswith("|")]
    assert len(rows) > 4
    assert "\n".join(rows) in (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("label", "seeds", "number"),
    [
        ("EMI", 3, "0.070 [0.000, 0.210]"),
        ("TRPO", 3, "0.043 [0.000, 0.130]"),
        ("EMI", 5, "100.2 [9.9, 195.1]"),
        ("EX2", 5, "181.3 [82.7, 261.9]"),
    ],
)
def test_the_page_has_the_numbers_of_the_table(label: str, seeds: int, number: str) -> None:
    table = (ROOT / "results/figures/table_1.md").read_text(encoding="utf-8")
    row = f"| {label} | {seeds} | {number} |"
    assert row in table
    assert f"{label} {number}" in " ".join(PAGE.split()) or row in PAGE
