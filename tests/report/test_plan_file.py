"""Stored plans: what is read, what is refused, and the plane they are drawn in."""

from pathlib import Path

import numpy as np
import pytest
from plan_files import write_plan_file

from emi.errors import UserError
from emi.report.plan_file import Plan, read_plan_file


def test_a_plan_comes_back(tmp_path: Path) -> None:
    plan = read_plan_file(write_plan_file(tmp_path))
    assert plan.title == "graph, goal random, seed 0"
    assert plan.distance.tolist() == [5, 2.5, 0]
    visited, planned, path = plan.plane()
    assert planned.tolist() == [[0, 0], [3, 4]]
    assert path.tolist() == [[0, 0], [1, 2], [3, 4]]
    assert visited.shape == (4, 2)


def test_the_plane_of_one_dimension_has_a_second_coordinate_of_zero() -> None:
    phi = np.array([[1.0], [4.0]])
    plan = Plan("", phi, phi, phi, np.zeros(2))
    assert plan.plane()[2].tolist() == [[1, 0], [4, 0]]


def test_the_plane_of_many_dimensions_keeps_what_varies_most() -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    spread = rng.normal(size=(200, 5)) * [9, 4, 1e-3, 1e-3, 1e-3]
    visited = 7 + spread @ axes
    path = visited[:3]
    points = Plan("", visited, path, path, np.zeros(3)).plane()[2]
    distance = np.linalg.norm(points[0] - points[2])
    assert distance == pytest.approx(np.linalg.norm(path[0] - path[2]), abs=1e-2)
    centred = spread - spread.mean(0)
    assert np.abs(points[:, 0]) == pytest.approx(np.abs(centred[:3, 0]), abs=0.2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"phi": None}, "phi is missing"),
        ({"title": None}, "'title'"),
        ({"plan": np.zeros((2, 2), np.int64)}, "plan is int64 (2, 2)"),
        ({"plan": np.zeros((0, 2), np.float32)}, "plan is float32 (0, 2)"),
        ({"plan": np.zeros(4, np.float32)}, "plan is float32 (4,)"),
        (
            {"plan": np.zeros((2, 3), np.float32)},
            "visited, plan and phi have different dimensions",
        ),
        ({"visited": np.zeros((2, 257), np.float32)}, "visited has 257 columns"),
        ({"distance": np.zeros(2, np.float32)}, "phi and distance have different lengths"),
        ({"distance": np.array([0, np.nan, 0], np.float32)}, "distance is not finite"),
        ({"distance": np.array([0, 1e16, 0], np.float32)}, "distance is not finite"),
        ({"title": np.zeros(3, np.float32)}, "title is no text"),
        ({"title": np.frombuffer(b"\x1b[2J", np.uint8)}, "title is not a line of text"),
        ({"title": np.frombuffer(b"$x$", np.uint8)}, "title is not a line of text"),
    ],
)
def test_a_file_that_cannot_be_shown(
    tmp_path: Path, changes: dict[str, np.ndarray | None], reason: str
) -> None:
    file = write_plan_file(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        read_plan_file(file)
    assert str(error.value) == f"{file} is damaged ({reason}): run emi plan again"


def test_a_file_that_is_no_safetensors(tmp_path: Path) -> None:
    (tmp_path / "plan.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(UserError, match="its header has more than 100,000 bytes"):
        read_plan_file(tmp_path / "plan.safetensors")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.safetensors"
    with file.open("wb") as out:
        out.truncate(64_000_001)
    with pytest.raises(UserError, match="is too large: it may have 64,000,000 bytes at most"):
        read_plan_file(file)
