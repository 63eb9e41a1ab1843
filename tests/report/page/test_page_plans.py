"""The section of plans: what the page holds, and the charts in a browser."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plan_files import write_plan_file
from playwright.sync_api import Page
from run_files import write_run

from emi.report.load import load_run
from emi.report.page import html
from emi.report.page.limits import USUAL, Limits
from emi.report.page.plans import encode_plans
from emi.reproduction.paper_values import PAPER

Open = Callable[..., Page]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two seeds with a plan, one with a damaged file, and another environment without a plan."""
    runs = tmp_path / "runs"
    for seed in (0, 1):
        write_plan_file(write_run(runs / f"box{seed}", [0.0], env="BoxImageWall", seed=seed))
    damaged = write_run(runs / "damaged", [0.0], env="BoxImageWall", seed=2)
    write_plan_file(damaged, distance=np.zeros(1, np.float32))
    write_run(runs / "other", [1.0], env="SwimmerGather")
    return runs


def test_plans_are_encoded(root: Path) -> None:
    runs = [load_run(root / name) for name in ("other", "box1", "damaged", "box0")]
    plans, remarks = encode_plans(runs, USUAL)
    assert [plan["run"] for plan in plans] == [1, 3]
    assert plans[0]["title"] == "graph, goal random, seed 0"
    assert (plans[0]["visited"]["x"]["low"], plans[0]["visited"]["x"]["high"]) == (-5, 5)
    assert (plans[0]["path"]["y"]["low"], plans[0]["path"]["y"]["high"]) == (0, 4)
    assert len(remarks) == 1
    assert "phi and distance have different lengths" in remarks[0]


def test_a_page_has_a_limit_of_plans(root: Path) -> None:
    runs = [load_run(root / name) for name in ("box1", "box0")]
    plans, remarks = encode_plans(runs, Limits(plans=1))
    assert [plan["run"] for plan in plans] == [1]  # seed 0
    assert remarks == ["A page holds at most 1 plans: 1 are left out."]


def test_charts(opened: Open, root: Path, tmp_path: Path) -> None:
    page = opened(html.write_page([root], tmp_path / "report.html", PAPER))
    page.select_option("#env", label="BoxImageWall")
    figures = page.locator("#plan-list figure")
    assert figures.count() == 2
    assert "seed 0" in str(figures.first.locator("figcaption").text_content())
    assert "graph, goal random" in str(figures.first.locator("figcaption").text_content())
    plane, distance = figures.first.locator("svg.chart").all()
    dots = str(plane.locator(".visited").get_attribute("d"))
    assert dots.count("h0") == 4
    # One unit is as long on both axes: the square of the visited states is a square.
    places = [tuple(map(float, dot[:-2].split())) for dot in dots[1:].split("M")]
    (x0, y0), (x1, y1) = places[2], places[3]  # (−5, 5) and (5, −5)
    assert abs(x1 - x0) == pytest.approx(abs(y1 - y0), rel=0.06)
    assert "5 steps of the linear model at first, 0 after 2 steps" in str(
        distance.get_attribute("aria-label")
    )
    page.select_option("#env", label="SwimmerGather")
    assert page.locator("#plans").is_hidden()
    assert page.locator('nav a[href="#plans"]').is_hidden()


@pytest.mark.parametrize("width", [360, 1280])
def test_charts_fit(opened: Open, root: Path, tmp_path: Path, width: int) -> None:
    page = opened(html.write_page([root / "box0"], tmp_path / "report.html", PAPER))
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(
        "wide => document.documentElement.scrollWidth <= innerWidth && (wide =="
        " (document.querySelectorAll('#plan-list svg.chart')[0].getBoundingClientRect().top =="
        " document.querySelectorAll('#plan-list svg.chart')[1].getBoundingClientRect().top))",
        arg=width > 700,
    )
