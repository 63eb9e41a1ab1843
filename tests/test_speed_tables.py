"""Tables in the docs that come from a benchmark are equal to its output in results/speed."""

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
                "method_cost_vectors.txt",
                "method_cost_images.txt",
                "env_speed.txt",
                "env_speed_half_cheetah.txt",
                "image_update.txt",
            ),
        ),
        ("cost.md", ("environment_cost.txt", "environment_cost.txt")),
    ],
)
def test_a_table_equals_the_output_of_its_benchmark(page: str, printed: tuple[str, ...]) -> None:
    tables = TABLE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    for table, name in zip(tables, printed, strict=False):
        assert table in (ROOT / "results/speed" / name).read_text(encoding="utf-8")
    assert len(tables) >= len(printed)
