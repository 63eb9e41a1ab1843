"""Tables in the docs equal the output of their benchmarks; CSV files name commit and machine."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\|.*\n\| ---.*\n(?:\|.*\n)+", re.M)


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        (
            "performance.md",
            (
                "speed/image_speed.txt",
                "speed/busy.txt",
                "speed/growth.txt",
                "speed/method_cost_vectors.txt",
                "speed/method_cost_images.txt",
                "speed/env_speed.txt",
                "speed/env_speed_half_cheetah.txt",
                "speed/image_update.txt",
            ),
        ),
        ("cost.md", ("speed/environment_cost.txt", "speed/environment_cost.txt")),
        ("reliability.md", ("reliability/fault_files.txt",)),
    ],
)
def test_a_table_equals_the_output_of_its_benchmark(page: str, printed: tuple[str, ...]) -> None:
    tables = TABLE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    for table, name in zip(tables, printed, strict=False):
        assert table in (ROOT / "results" / name).read_text(encoding="utf-8")
    assert len(tables) >= len(printed)


def test_the_times_of_plans_are_those_of_the_benchmark() -> None:
    (table,) = TABLE.findall((ROOT / "results" / "speed" / "planning_speed.txt").read_text("utf-8"))
    assert table in (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "speed").glob("*.csv")), ids=str)
def test_a_file_of_a_benchmark_comes_from_one_commit_and_one_machine(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    (commit,) = {row["commit"] for row in rows}
    assert re.fullmatch(r"[0-9a-f]{10}", commit)  # a + at its end means modified source
    assert len({row["machine"] for row in rows}) == 1
    if path.stem in ("trpo_speed", "growth", "busy"):  # benchmarks/draw.py draws them
        page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
        assert path.with_suffix(".png").is_file()
        assert f"(../results/speed/{path.stem}.png)" in page
