"""The section of coverage: what the page holds, and the slider over training in a browser."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from run_files import write_run
from visit_files import FREE, WALK, write_visits

from emi.report.page import html
from emi.report.page.limits import Limits
from emi.reproduction.paper_values import PAPER

Open = Callable[..., Page]
PIXELS = """k => {
  const shown = document.querySelectorAll('#coverage-maps canvas')[k];
  const canvas = new OffscreenCanvas(shown.width, shown.height);
  canvas.getContext('2d').drawImage(shown, 0, 0);
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return [...data];
}"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of RND and one of TRPO, and another environment without a record."""
    for seed in (0, 1):
        write_visits(write_run(tmp_path / "runs" / f"rnd{seed}", [0.0], method="rnd", seed=seed))
    trpo = write_run(tmp_path / "runs" / "trpo", [0.0], method="trpo")
    write_visits(trpo, bonus=np.zeros(WALK.shape))
    write_run(tmp_path / "runs" / "other", [1.0], env="SwimmerGather")
    return tmp_path / "runs"


def block_of(page: str, env: int) -> tuple[dict[str, Any], bytes]:
    found = re.search(rf'id="coverage-{env}">(.*?)</script>', page, re.S)
    assert found is not None
    described, raw = (zlib.decompress(base64.b64decode(line)) for line in found[1].split("\n"))
    return json.loads(described), raw


def test_maps_come_back(runs: Path) -> None:
    described, raw = block_of(html.build_page([runs], PAPER), 0)
    assert described["steps"] == [6, 7]
    rnd, trpo = described["groups"]
    assert rnd["cells"] == [[3, 4], [3, 4]]
    assert rnd["plane"] == {
        "x": [0, 3],
        "y": [0, 2],
        "shape": [3, 2],
        "names": ["x", "y"],
        "free": FREE.ravel().astype(int).tolist(),
    }
    words = np.frombuffer(raw, "<u4").reshape(4, -1)  # visits and bonus of both groups
    np.testing.assert_array_equal(words[0], 2 * WALK.ravel())
    np.testing.assert_array_equal(words[1].view("<f4"), WALK.ravel())
    np.testing.assert_array_equal(words[2], WALK.ravel())
    assert trpo["label"] == "TRPO"


def test_many_cells_have_fewer_times(runs: Path) -> None:
    many = np.arange(1, 9)
    cells = {"visits": np.ones((8, 3, 2), np.int64), "bonus": np.ones((8, 3, 2)), "steps": many}
    write_visits(runs / "trpo", **cells)
    whole = block_of(html.build_page([runs], PAPER), 0)[0]
    assert len(whole["steps"]) == 8
    small = block_of(html.build_page([runs], PAPER, Limits(cells=48)), 0)[0]
    assert small["steps"] == [2, 4, 6, 8]


def test_maps_that_cannot_be_compared_are_named(runs: Path) -> None:
    write_visits(runs / "trpo", names=np.frombuffer(b"x\nz", np.uint8))
    page = html.build_page([runs], PAPER)
    assert 'id="coverage-0"' not in page


def test_the_slider_goes_through_training(opened: Open, runs: Path, tmp_path: Path) -> None:
    shown = opened(html.write_page([runs], tmp_path / "report.html", PAPER))
    expect(shown.locator("#coverage-maps figure")).to_have_count(2)
    expect(shown.locator("#coverage-at")).to_have_text("7 of 7 steps")
    expect(shown.locator("#coverage-maps small").first).to_have_text("4 of 5 cells by any seed")
    end = shown.evaluate(PIXELS, 0)
    shown.locator("#coverage-time").fill("0")
    expect(shown.locator("#coverage-at")).to_have_text("6 of 7 steps")
    expect(shown.locator("#coverage-maps small").first).to_have_text("3 of 5 cells by any seed")
    begin = shown.evaluate(PIXELS, 0)
    # A row of pixels is three cells; the upper left one was visited in the last step only.
    assert begin[3] == 0
    assert end[3] == 255
    # The wall has another colour than what was visited and what was not.
    assert begin[4:8] == end[4:8] != begin[16:20]
    assert begin[7] == 255
    shown.locator("#coverage-time").fill("1")
    shown.get_by_text("Only then").click()
    expect(shown.locator("#coverage-maps small").first).to_have_text("1 of 5 cells by any seed")
    shown.get_by_text("Bonus", exact=True).click()
    expect(shown.locator("#coverage-maps small")).to_have_text(["bonus 0.5 to 0.5", "no bonus"])
    rows = shown.locator("#coverage-table tbody tr")
    expect(rows.first).to_contain_text("4 of 5")


def test_it_plays_and_stops_at_the_end(opened: Open, runs: Path, tmp_path: Path) -> None:
    shown = opened(html.write_page([runs], tmp_path / "report.html", PAPER))
    shown.locator("#coverage-play").click()
    expect(shown.locator("#coverage-at")).to_have_text("6 of 7 steps")
    expect(shown.locator("#coverage-play")).to_have_text("Play", timeout=60_000)
    expect(shown.locator("#coverage-at")).to_have_text("7 of 7 steps")


def test_an_environment_without_a_record(opened: Open, runs: Path, tmp_path: Path) -> None:
    shown = opened(html.write_page([runs], tmp_path / "report.html", PAPER))
    shown.select_option("#env", label="SwimmerGather")
    expect(shown.locator("#coverage")).to_be_hidden()
    expect(shown.locator('nav a[href="#coverage"]')).to_be_hidden()
    shown.select_option("#env", label="SparseHalfCheetah")
    expect(shown.locator("#coverage-maps figure")).to_have_count(2)
