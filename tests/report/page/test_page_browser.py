"""The report page in a real browser: what users see, point at and type.

Times are printed; their limits are generous, for busy machines.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from run_files import write_run, write_sample

from emi.report.page import html
from emi.reproduction.paper_values import PAPER

Open = Callable[..., Page]

PATIENCE = 60  # seconds that opening a page may take
# The bytes of a canvas as text, to see whether a picture has changed.
PICTURE = "name => document.getElementById(name).toDataURL()"
# The brightness of a frame's first pixel; read from a copy, since reading slows a canvas down.
LEVEL = """name => {
  const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  copy.drawImage(document.getElementById(name), 0, 0);
  return copy.getImageData(0, 0, 1, 1).data[0];
}"""


def write_page(roots: list[Path], out: Path) -> Path:
    return html.write_page(roots, out, PAPER)


def picture(page: Page, name: str) -> str:
    return str(page.evaluate(PICTURE, name))


def state(page: Page) -> dict[str, str]:
    """The names and values next to the explorer."""
    names = page.locator("#state-values dt").all_text_contents()
    return dict(zip(names, page.locator("#state-values dd").all_text_contents(), strict=True))


def test_it_opens_quickly(page: Page) -> None:
    ready = page.evaluate("Number(document.documentElement.dataset.ready)")
    print(f"ready after {ready} ms")
    assert ready < PATIENCE * 1000
    assert page.title() == "emi report: SparseHalfCheetah, SwimmerGather"
    assert page.locator("h1").text_content() == "2 environments, 9 runs"


def test_the_frame_under_the_pointer(page: Page) -> None:
    plane = page.locator("#plane")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    assert box is not None
    seen = set()
    for share in np.linspace(0.1, 0.9, 17):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
        if page.locator("#state-title").text_content() != "State under the pointer":
            continue
        # Row k of the sample is one episode of 5 and one of 250 steps; its frame is all k.
        shown = state(page)
        level = int(shown["step"]) + (0 if shown["episode"] == "1 of 2" else 5)
        for name, wanted in (("frame", level), ("frame-next", 255 - level)):
            page.wait_for_function(
                f"([name, wanted]) => ({LEVEL})(name) === wanted", arg=[name, wanted]
            )
        seen.add(level)
    assert len(seen) >= 2
    page.mouse.move(5, 5)
    assert page.locator("#state-title").text_content() == "Selected state"


def test_every_colour_is_another_picture(page: Page) -> None:
    pictures = []
    for colour in ("step", "bonus", "return", "error"):
        page.select_option("#colour", colour)
        pictures.append(picture(page, "states"))
    # No state of the sample has a reward, so all have one colour; still unlike the others.
    assert len(set(pictures)) == 4
    assert page.locator("#bar-name").text_content() == "error norm ‖S(s, a)‖"


def test_arrow_keys_move_along_the_path(page: Page) -> None:
    page.locator("#plane").focus()
    page.keyboard.press("Home")
    before = picture(page, "path")
    assert state(page)["step"] == "0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert state(page)["step"] == "2"
    assert page.input_value("#position") == "2"
    assert page.locator("#spoken").text_content() is not None
    assert str(page.locator("#spoken").text_content()).startswith("Step 2, bonus ")
    assert picture(page, "path") != before
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    last = state(page)["step"]
    page.keyboard.press("ArrowRight")
    assert state(page)["step"] == last == "4"


def test_zooming_keeps_the_selected_state(page: Page) -> None:
    whole = picture(page, "states")
    plane = page.locator("#plane")
    plane.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert picture(page, "states") != whole
    box = plane.bounding_box()
    assert box is not None
    # The selected state is now in the middle of the axes.
    middle = (box["width"] + 58 - 16) / 2, (box["height"] + 16 - 44) / 2
    page.mouse.move(box["x"] + middle[0], box["y"] + middle[1])
    assert page.locator("#state-title").text_content() == "State under the pointer"
    assert state(page)["step"] == "1"
    page.mouse.down()
    page.mouse.move(box["x"] + middle[0] + 60, box["y"] + middle[1], steps=3)
    page.mouse.up()
    assert page.input_value("#position") == "1"  # dragged, not clicked
    page.keyboard.press("0")
    assert picture(page, "states") == whole


def test_it_plays_and_stops_at_the_end(page: Page) -> None:
    page.select_option("#episode", "1")
    page.select_option("#speed", "240")
    page.locator("#play").click()
    page.wait_for_function("() => document.getElementById('position').value === '249'")
    page.wait_for_function("() => document.getElementById('play').textContent === 'Play'")
    page.locator("#back").click()
    assert state(page)["step"] == "248"
    page.select_option("#speed", "15")  # long enough for a busy machine to stop it half-way
    page.locator("#plane").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Space")
    assert page.locator("#play").get_attribute("aria-pressed") == "false"


def test_a_peak_of_the_error_selects_its_state(page: Page) -> None:
    page.select_option("#episode", "1")
    assert page.locator("#peaks button").count() == 1
    page.locator("#peaks button").click()
    assert state(page)["step"] == "15"  # row 20, after an episode of 5
    assert state(page)["‖S(s, a)‖"] == "5"
    assert page.locator("#peaks button").get_attribute("aria-current") == "true"
    chart = page.locator("#timeline svg.chart")
    box = chart.bounding_box()
    assert box is not None
    chart.click(position={"x": box["width"] - 12, "y": 60})
    assert state(page)["step"] == "249"


def test_the_reference_can_be_chosen(page: Page) -> None:
    rows = page.locator("#table-area tbody tr")
    assert "compared with" in str(rows.nth(0).text_content())
    assert "−219.0" in str(rows.nth(1).text_content())
    page.select_option("#reference", label="RND")
    assert "219.0" in str(rows.nth(0).text_content())
    assert "100 %" in str(rows.nth(0).text_content())
    assert "compared with" in str(rows.nth(1).text_content())
    assert "needs two seeds of each" in str(rows.nth(2).text_content())


def test_settings_differ_and_can_be_searched(page: Page) -> None:
    keys = page.locator("#settings tbody th")
    assert keys.all_text_contents() == ["eta"]
    page.get_by_text("Everything").click()
    assert keys.all_text_contents() == ["eta", "steps", "steps_per_iteration"]
    assert page.locator("#run-list details").count() == 9
    page.fill("#search", "eta=0.1 seed=2")
    assert page.locator("#run-list details").count() == 1
    page.fill("#search", "eta=0.1, seed=2")
    assert page.locator("#run-list details").count() == 1
    page.fill("#search", "eta=0.00")  # is not 0.001
    assert page.locator("#run-list details").count() == 0
    page.fill("#search", "eta=0.1, seed=2")
    page.locator("#run-list summary").click()
    detail = page.locator("#run-list .detail")
    detail.wait_for()
    assert "emi train SparseHalfCheetah --seed 2" in str(detail.text_content())
    assert "folderruns/rnd2" in str(detail.text_content())


def test_another_environment(page: Page) -> None:
    before = picture(page, "states")
    page.select_option("#env", label="SwimmerGather")
    expect(page.locator("#curve-area .mean")).to_have_count(1)  # decoded when it is first shown
    assert page.locator("#frames").is_hidden()
    assert picture(page, "states") != before


def test_dark_by_system_and_by_switch(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, light_states = page.evaluate(ground), picture(page, "states")
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    page.wait_for_function(
        f"before => ({PICTURE})('states') !== before", arg=light_states
    )  # the canvas is redrawn
    assert light != dark
    page.select_option("#theme", "light")
    assert page.evaluate(ground) == light
    page.select_option("#theme", "dark")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark


def test_every_control_and_picture_has_a_name(page: Page) -> None:
    nameless = page.evaluate("""() => {
      const named = (one) => one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
        || one.textContent.trim() || one.labels?.length || one.getAttribute('aria-hidden');
      return [...document.querySelectorAll('button, select, input, [role], main svg')]
        .filter((one) => !named(one)).map((one) => one.outerHTML);
    }""")
    assert nameless == []
    label = page.locator("#curve-area svg.chart").get_attribute("aria-label")
    assert str(label).endswith("At the end: EMI 220, RND 1, TRPO 1.")
    page.get_by_text("The curves as a table").click()
    assert page.locator("#curve-table tbody tr").count() == 10


def test_focus_is_visible(page: Page) -> None:
    page.locator("#plane").focus()
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate("document.activeElement.id") == "zoom-in"
    assert page.evaluate(outline) == "solid"


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_odd_runs(opened: Open, tmp_path: Path) -> None:
    """Long names, no step in common, returns far below zero, an environment without embedding."""
    long = [f"intrinsic.a_setting_with_a_long_name_{k}" for k in range(3)]
    write_run(tmp_path / "runs" / "a", [np.nan, np.nan, -16500.0, -9000.0], changed=long)
    other = write_run(tmp_path / "runs" / "b", [-12000.0], seed=1, iterations=4, changed=long)
    for run in (tmp_path / "runs" / "a", other):
        config = json.loads((run / "config.json").read_text())
        config["intrinsic"] = {f"a_setting_with_a_long_name_{k}": 1 for k in range(3)}
        (run / "config.json").write_text(json.dumps(config))
    write_run(tmp_path / "runs" / "new", [], method="rnd", iterations=4)  # to compare with
    freeway = write_run(tmp_path / "runs" / "c", [11.0], env="Freeway")
    write_sample(freeway, [[30]])
    file = write_page([tmp_path / "runs"], tmp_path / "report.html")
    shown = opened(file)
    shown.select_option("#env", label="Freeway")
    assert shown.locator("#other-sample").is_hidden()
    shown.select_option("#env", label="SparseHalfCheetah")
    assert shown.get_by_text("No run of SparseHalfCheetah has an embedding").is_visible()
    assert str(shown.locator("#errors-run").text_content()).startswith("Freeway, EMI, seed 0")
    expect(shown.locator("#curve-area")).to_contain_text("no step in common")
    assert shown.locator(".as-table").is_hidden()
    shown.get_by_text("Panels", exact=True).click()
    shown.locator("#seeds").check()
    assert shown.locator("#curve-area .seed").count() == 2
    assert shown.locator("#curve-area .mean").count() == 0
    texts = "[...document.querySelectorAll('#curve-area text')].map((t) => t.getBBox())"
    left, top = (f"Math.min(...{texts}.map((box) => box.{side}))" for side in "xy")
    assert shown.evaluate(left) >= 0  # no minus sign is cut off
    shown.set_viewport_size({"width": 360, "height": 800})
    shown.wait_for_timeout(100)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    shown.select_option("#env", label="Freeway")
    expect(shown.locator("#curve-area")).to_contain_text("↑ paper 33.8, at 50M steps")
    assert shown.evaluate(top) >= 0


def test_runs_without_an_embedding(opened: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "new", [], method="trpo", iterations=3)
    write_run(tmp_path / "runs" / "one", [1.0], method="rnd")
    file = write_page([tmp_path / "runs"], tmp_path / "report.html")
    shown = opened(file)
    assert shown.locator("#no-sample").is_visible()
    assert shown.locator("#errors").is_hidden()
    assert "not finished: 0 of 15k steps" in str(shown.locator("#run-list").text_content())


def test_a_large_page_opens(opened: Open, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for seed in range(4):
        directory = write_run(tmp_path / "runs" / str(seed), rng.random(1000), seed=seed)
        write_sample(directory, [[2500, 2500]], images=True)
    file = write_page([tmp_path / "runs"], tmp_path / "report.html")
    began = time.monotonic()
    shown = opened(file)
    took = time.monotonic() - began
    print(f"20,000 states, {file.stat().st_size / 1e6:.1f} MB: open after {took:.2f} s")
    assert "20,000" in str(shown.locator("#facts").text_content())
    assert took < PATIENCE
