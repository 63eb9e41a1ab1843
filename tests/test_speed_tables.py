"""Tables in the docs that come from a benchmark are equal to its output in results/."""

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
