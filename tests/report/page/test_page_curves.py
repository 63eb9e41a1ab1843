"""The learning curves of the report page in a real browser: axes, zoom, choices, address, files."""

import csv
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import imageio.v3 as imageio
import numpy as np
import pytest
from playwright.sync_api import Page, expect
from run_files import write_run

from emi.report.page import html
from emi.reproduction.paper_values import PAPER

Open = Callable[..., Page]


def texts(page: Page, name: str) -> list[str]:
    return page.locator(f"#curve-area .{name}").all_text_contents()


def address(page: Page) -> str:
    """The view as the address holds it."""
    # That of a gesture is written 150 ms after its last change.
    wait = "() => new Promise((done) => { setTimeout(() => done(location.hash.slice(1)), 160); })"
    return str(page.evaluate(wait)).replace("%2C", ",")


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a place of the chart is in the window; it is given as shares of the axes."""
    # Scrolled and measured in one call: the page replaces the chart when its width changes, and
    # Playwright's own scrolling fails if that happens while it waits.
    found: tuple[float, float] = page.evaluate(
        """([x, y]) => {
          const root = document.querySelector('#curve-area svg.chart');
          root.scrollIntoView({ block: 'nearest', behavior: 'instant' });
          const plot = root.querySelector('.plot');
          const [left, top, width, height] =
            ['x', 'y', 'width', 'height'].map((name) => Number(plot.getAttribute(name)));
          const box = root.getBoundingClientRect();
          return [box.left + left + 5 + (width - 10) * x, box.top + top + 5 + (height - 10) * y];
        }""",
        [x, y],
    )
    return found


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From one place of the chart to another, both as shares of its axes."""
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, (start[0] + end[0]) / 2, (start[1] + end[1]) / 2))
    page.mouse.move(*place(page, *end))
    page.mouse.up()


def downloaded(page: Page, kind: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.locator(f"#save-{kind}").click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def rows_of(page: Page) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(downloaded(page, "csv")[1].decode())))


class TestAxes:
    def test_ticks(self, page: Page) -> None:
        assert texts(page, "x-tick") == ["0", "2k", "4k", "6k", "8k", "10k", "12k", "14k"]
        assert texts(page, "y-tick") == ["0", "50", "100", "150", "200", "250"]
        assert texts(page, "axis-name") == ["environment steps", "mean return"]

    @pytest.mark.parametrize(
        ("y", "log", "labels"),
        [
            ((0.0, 0.14), False, ["0", "0.05", "0.10"]),
            ((0.05, 0.16), False, ["0.06", "0.08", "0.10", "0.12", "0.14", "0.16"]),
            ((-16500.0, 0.0), False, ["−15k", "−10k", "−5k", "0"]),
            ((0.0, 3e-5), False, ["0", "5e−6", "10e−6", "15e−6", "20e−6", "25e−6", "30e−6"]),
            ((8.21, 8.24), False, ["8.210", "8.215", "8.220", "8.225", "8.230", "8.235", "8.240"]),
            ((0.9, 32000.0), True, ["1", "10", "100", "1000", "10k"]),
            ((15.0, 90.0), True, ["20", "50"]),
            ((3.1, 3.9), True, ["3.2", "3.4", "3.6", "3.8"]),
        ],
    )
    def test_labels_of_a_range(
        self, opened: Open, page_file: Path, y: tuple[float, float], log: bool, labels: list[str]
    ) -> None:
        scale = "y=log&" if log else ""
        page = opened(page_file, f"#{scale}zoomy={y[0]},{y[1]}")
        assert texts(page, "y-tick") == labels

    def test_a_narrow_axis_has_at_least_two_ticks(self, opened: Open, page_file: Path) -> None:
        page = opened(page_file, "#x=hours&zoomx=0.0111,0.0199")
        page.set_viewport_size({"width": 360, "height": 900})
        # The next coarser ticks would be 0.015 alone.
        expect(page.locator("#curve-area .x-tick")).to_have_text(
            ["0.012", "0.014", "0.016", "0.018"]
        )

    def test_a_constant_has_two_ticks(self, page: Page) -> None:
        page.select_option("#measure", "emi/loss_info")  # is 0.5 throughout
        expect(page.locator("#curve-area .axis-name").last).to_have_text("emi/loss_info")
        assert texts(page, "y-tick") == ["0", "0.2", "0.4", "0.6"]

    @pytest.mark.parametrize(
        ("axis", "labels", "name"),
        [
            ("hours", ["0", "0.005", "0.010", "0.015", "0.020", "0.025"], "training time [hours]"),
            ("iterations", ["0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"], "iteration"),
        ],
    )
    def test_other_horizontal_axes(
        self, page: Page, axis: str, labels: list[str], name: str
    ) -> None:
        page.select_option("#x", axis)
        assert texts(page, "x-tick") == labels
        assert texts(page, "axis-name")[0] == name
        places = {row[axis] for row in rows_of(page)}
        expected = {"0.00833333", "0.0166667", "0.025"} if axis == "hours" else {"1", "2", "3"}
        assert {f"{float(place):.6g}" for place in places} == {
            f"{float(place):.6g}" for place in expected
        }

    def test_a_logarithmic_axis_leaves_out_zero(self, page: Page) -> None:
        page.locator("#y").get_by_text("Log").click()
        assert texts(page, "y-tick") == ["1", "10", "100"]
        path = page.locator("#curve-area .mean").first.get_attribute("d")
        assert str(path).count("L") == 1  # EMI: 0, 60, 220
        assert "logarithmic axis" in str(page.locator("#curve-note").text_content())

    def test_a_band_has_gaps_where_a_logarithmic_axis_has_no_value(
        self, opened: Open, tmp_path: Path
    ) -> None:
        for seed in range(2):
            returns = [1.0 + seed, 2.0 + seed, 0.0, 3.0 + seed, 4.0 + seed]
            write_run(tmp_path / "runs" / str(seed), returns, seed=seed)
        file = html.write_page([tmp_path / "runs"], tmp_path / "report.html", PAPER)
        page = opened(file, "#y=log")
        for name, parts in (("band", 2), ("mean", 2)):
            path = str(page.locator(f"#curve-area .{name}").get_attribute("d"))
            assert path.count("M") == parts
        assert str(page.locator("#curve-area .band").get_attribute("d")).count("Z") == 2

    @pytest.mark.parametrize("width", [360, 400, 800, 1280])
    def test_labels_do_not_overlap(self, page: Page, width: int) -> None:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        for name in ("x-tick", "y-tick"):
            boxes = [one.bounding_box() for one in page.locator(f"#curve-area .{name}").all()]
            assert len(boxes) >= 2
            for a, b in itertools.pairwise(boxes):
                assert a is not None
                assert b is not None
                apart = b["x"] - a["x"] - a["width"] if name == "x-tick" else a["y"] - b["y"] - 10
                assert apart > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


class TestZoom:
    def test_dragging_a_range(self, page: Page) -> None:
        drag(page, (0.2, 0.5), (0.8, 0.5))
        low, high = map(float, address(page).removeprefix("zoomx=").split(","))
        assert low == pytest.approx(3000, abs=20)
        assert high == pytest.approx(12000, abs=20)
        assert texts(page, "x-tick")[0] == "3k"
        assert texts(page, "y-tick")[-1] == "60"  # 220 is no longer in sight
        page.locator("#zoom-reset").click()
        assert address(page) == ""
        assert page.locator("#zoom-reset").is_disabled()

    def test_dragging_a_box(self, page: Page) -> None:
        drag(page, (0.5, 0.2), (1.0, 0.6))
        ends = [float(end) for end in re.findall(r"[\d.]+", address(page))]
        assert ends == pytest.approx([7500, 15000, 100.8, 201.6], abs=20)
        page.locator("#curve-area svg.chart").dblclick()
        assert address(page) == ""

    def test_the_wheel_zooms_a_focused_chart(self, page: Page) -> None:
        page.mouse.move(*place(page, 0.5, 0.5))
        page.mouse.wheel(0, -100)
        page.wait_for_timeout(100)
        assert address(page) == ""  # the page was scrolled instead
        page.locator("#curve-area svg.chart").focus()
        page.mouse.move(*place(page, 0.5, 0.5))
        page.mouse.wheel(0, -100)
        page.wait_for_function("() => location.hash !== ''")
        low, high = map(float, address(page).removeprefix("zoomx=").split(","))
        assert high - low == pytest.approx(0.8 * 15000, abs=1)
        assert low == pytest.approx(0.2 * 7500, abs=10)

    def test_keys_and_buttons(self, page: Page) -> None:
        page.locator("#curve-zoom-in").click()
        assert address(page) == "zoomx=3750,11250"
        page.locator("#pan-right").click()
        assert address(page) == "zoomx=5250,12750"
        page.locator("#curve-area svg.chart").focus()
        page.keyboard.press("Shift+ArrowRight")
        assert address(page) == "zoomx=6750,14250"
        page.keyboard.press("Shift+ArrowRight")
        assert address(page) == "zoomx=7500,15000"  # stops at the end
        page.keyboard.press("0")
        assert address(page) == ""
        page.keyboard.press("Home")
        page.keyboard.press("+")
        assert address(page) == "zoomx=2500,10000"  # around the cursor, at 5,000
        page.keyboard.press("-")
        assert address(page) == ""

    def test_shift_moves_the_view(self, page: Page) -> None:
        page.locator("#curve-zoom-in").click()
        page.keyboard.down("Shift")
        drag(page, (0.6, 0.5), (0.4, 0.5))
        page.keyboard.up("Shift")
        low, high = map(float, address(page).removeprefix("zoomx=").split(","))
        assert low == pytest.approx(3750 + 0.2 * 7500, abs=20)
        assert high - low == pytest.approx(7500, abs=1)

    def test_all_panels_have_the_same_range(self, page: Page) -> None:
        page.get_by_text("Panels", exact=True).click()
        page.locator("#curve-zoom-in").click()
        assert texts(page, "x-tick") == ["4k", "6k", "8k", "10k"] * 3


class TestChoices:
    def test_solo_all_and_none(self, page: Page) -> None:
        means = page.locator("#curve-area .mean")
        assert means.count() == 3
        page.get_by_role("button", name="Only RND").click()
        assert means.count() == 1
        assert address(page) == "off=EMI&off=TRPO"
        page.get_by_role("button", name="Only RND").click()  # once more shows all
        assert means.count() == 3
        page.locator("#no-methods").click()
        assert means.count() == 0
        assert page.locator("#curve-area").text_content() == "Choose a method."
        page.locator("#methods").get_by_role("checkbox", name="EMI").check(force=True)
        assert means.count() == 1
        page.locator("#all-methods").click()
        assert means.count() == 3

    def test_seeds_intervals_and_panels(self, page: Page) -> None:
        def counts() -> list[int]:
            names = ("chart", "mean", "band", "seed")
            return [page.locator(f"#curve-area .{name}").count() for name in names]

        assert counts() == [1, 3, 2, 0]
        page.locator("#interval").uncheck()
        page.locator("#seeds").check()
        assert counts() == [1, 3, 0, 7]
        page.get_by_text("Panels", exact=True).click()
        assert counts() == [3, 3, 0, 7]
        note = str(page.locator("#curve-note").text_content())
        assert "Every iteration is drawn. 1 run not finished (open ring)." in note
        assert "1 run without a finished episode has no return to draw." in note

    def test_every_column_of_some_run(self, page: Page) -> None:
        options = page.locator("#measure option").all_text_contents()
        assert options == ["mean return", "best return", "emi/loss_info"]
        page.select_option("#measure", "return_max")
        expect(page.locator("#curve-area .axis-name").last).to_have_text("best return")
        assert texts(page, "y-tick") == ["0", "100", "200", "300", "400", "500"]

    def test_smoothing(self, opened: Open, tmp_path: Path) -> None:
        write_run(tmp_path / "runs" / "a", [0.0, 9.0, 0.0, 9.0, 0.0, 9.0])
        page = opened(html.write_page([tmp_path / "runs"], tmp_path / "report.html", PAPER))
        assert page.locator("#curve-area .raw").count() == 0
        page.locator("#smooth").press("ArrowRight")
        assert page.locator("#smooth-text").text_content() == "3 iterations"
        assert [float(row["value"]) for row in rows_of(page)] == [0, 3, 6, 3, 6, 9]
        assert page.locator("#curve-area .raw").count() == 1
        page.locator("#smooth").press("ArrowRight")
        # The window is as wide as both sides allow: the first and the last value stay.
        assert [float(row["value"]) for row in rows_of(page)] == [0, 3, 3.6, 5.4, 6, 9]
        assert address(page) == "smooth=2"
        page.go_back()  # two steps of the slider in quick succession are one step back
        assert address(page) == ""

    def test_pointing_at_a_name_makes_the_others_pale(self, page: Page) -> None:
        page.locator("#methods .chip").first.hover()
        pale = page.locator("#curve-area .mean.pale")
        assert pale.count() == 2
        page.mouse.move(0, 0)
        assert pale.count() == 0


class TestCursor:
    def test_it_follows_keys(self, page: Page) -> None:
        page.locator("#curve-area svg.chart").focus()
        page.keyboard.press("ArrowLeft")
        readout = page.locator(".readout")
        assert readout.locator("h4").text_content() == "10k steps"
        assert str(readout.text_content()).startswith("10k stepsEMI60 [60, 60]RND5 [5, 5]TRPO1")

    def test_it_stays_on_curves_that_have_become_shorter(self, page: Page) -> None:
        page.locator("#curve-area svg.chart").focus()
        page.keyboard.press("ArrowRight")  # the end, which TRPO's unfinished run has not reached
        for name in ("EMI", "RND"):
            page.locator("#methods").get_by_role("checkbox", name=name).focus()
            page.keyboard.press("Space")
        assert page.evaluate("document.activeElement.type") == "checkbox"  # focus is kept
        page.locator("#curve-area svg.chart").focus()
        assert page.locator(".readout h4").text_content() == "10k steps"

    def test_it_follows_the_pointer(self, page: Page) -> None:
        page.mouse.move(*place(page, 0.4, 0.1))
        assert page.locator(".readout h4").text_content() == "5,000 steps"
        page.mouse.move(5, 5)
        assert page.locator(".readout").is_hidden()


class TestAddress:
    VIEW = (
        "metric=return_max&base=RND&x=hours&y=log&layout=panels&seeds=on&interval=off&smooth=3"
        "&off=TRPO&zoomx=0.01,0.02&zoomy=1,100"
    )

    def test_a_link_shows_the_same_view(self, opened: Open, page_file: Path) -> None:
        page = opened(page_file, f"#{self.VIEW}")
        assert page.input_value("#measure") == "return_max"
        assert page.input_value("#x") == "hours"
        assert page.locator("#reference option:checked").text_content() == "RND"
        assert page.locator("#y input:checked").input_value() == "log"
        assert page.locator("#layout input:checked").input_value() == "panels"
        assert page.locator("#seeds").is_checked()
        assert not page.locator("#interval").is_checked()
        assert page.locator("#smooth-text").text_content() == "7 iterations"
        assert page.locator("#curve-area svg.chart").count() == 2
        assert texts(page, "y-tick") == ["1", "10", "100"] * 2
        # What is written after a change contains the rest of the view as it was.
        page.locator("#interval").check()
        assert address(page) == self.VIEW.replace("&interval=off", "")

    def test_the_environment_and_the_back_button(self, page: Page) -> None:
        page.select_option("#env", label="SwimmerGather")
        assert address(page) == "env=SwimmerGather"
        page.select_option("#x", "iterations")
        page.locator("nav").get_by_text("Table").click()  # leaves the address alone
        assert address(page) == "env=SwimmerGather&x=iterations"
        page.go_back()
        assert page.input_value("#x") == "steps"
        assert page.locator("#env option:checked").text_content() == "SwimmerGather"
        page.go_back()
        assert page.locator("#env option:checked").text_content() == "SparseHalfCheetah"
        page.go_forward()
        assert page.locator("#env option:checked").text_content() == "SwimmerGather"

    def test_a_long_gesture_writes_the_address_once(self, page: Page) -> None:
        """Browsers ignore changes beyond a few in a second, or forbid them."""
        page.locator("#curve-zoom-in").click()
        assert address(page) == "zoomx=3750,11250"
        page.locator("#curve-area svg.chart").focus()
        page.evaluate("""() => {
          const press = (key) => document.activeElement.dispatchEvent(
            new KeyboardEvent('keydown', { key, shiftKey: true, bubbles: true }));
          window.written = 0;
          for (const name of ['pushState', 'replaceState']) {
            const write = history[name].bind(history);
            history[name] = (...parts) => { window.written += 1; write(...parts); };
          }
          for (let k = 0; k < 300; k++) {
            press(k % 2 ? 'ArrowLeft' : 'ArrowRight');
          }
          press('ArrowRight');
        }""")
        assert address(page) == "zoomx=5250,12750"
        assert page.evaluate("window.written") == 1
        page.go_back()
        assert address(page) == "zoomx=3750,11250"

    def test_an_edited_address_changes_the_view(self, page: Page) -> None:
        page.evaluate("location.hash = '#y=log'")
        expect(page.locator("#y input[value=log]")).to_be_checked()

    @pytest.mark.parametrize(
        "hostile",
        [
            "env=<script>alert(1)</script>&metric=__proto__&x=constructor&y=toString",
            "zoomx=NaN,1&zoomy=5,1&smooth=-1&seeds=&layout=Panels",
            "zoomx=1e999,2e999&zoomx=1&zoomy=1,2,3&smooth=1e9",
            "off=<img src=x onerror=alert(1)>&base=javascript:alert(1)",
            "%E0%A4%A&&&==&metric&" + "a" * 50_000,
            "zoomx=50000,60000",  # beyond the end of every run
            "table",
        ],
    )
    def test_what_is_unknown_is_ignored(self, opened: Open, page_file: Path, hostile: str) -> None:
        page = opened(page_file, "#" + quote(hostile, safe="%=&,"))
        assert texts(page, "x-tick") == ["0", "2k", "4k", "6k", "8k", "10k", "12k", "14k"]
        assert texts(page, "y-tick") == ["0", "50", "100", "150", "200", "250"]
        assert page.locator("#curve-area .mean").count() == 3
        page.select_option("#x", "iterations")
        assert "alert" not in address(page)


class TestDownloads:
    def test_png(self, page: Page) -> None:
        name, content = downloaded(page, "png")
        assert name == "SparseHalfCheetah-return_mean.png"
        picture = imageio.imread(content)
        assert picture.shape[1] == 2 * 1169
        corner, *_ = picture[0]
        assert corner[:3].tolist() == [255, 255, 255]
        blue = (picture[..., :3] == [0, 114, 178]).all(-1)  # the line of EMI, and its legend
        assert blue.sum() > 2000

    def test_svg(self, page: Page) -> None:
        name, content = downloaded(page, "svg")
        assert name == "SparseHalfCheetah-return_mean.svg"
        text = content.decode()
        assert text.startswith("<svg xmlns=")
        assert "var(--" not in text  # needs no style sheet
        for part in ("SparseHalfCheetah: mean return", ">EMI<", ">RND<", ">TRPO<", ">10k<"):
            assert part in text

    def test_csv_holds_what_is_shown(self, page: Page) -> None:
        name, content = downloaded(page, "csv")
        assert name == "SparseHalfCheetah-return_mean.csv"
        lines = content.decode().splitlines()
        assert lines[0] == "environment,metric,method,seed,steps,value,low,high"
        assert lines[3] == '"SparseHalfCheetah","return_mean","EMI",,15000,220,200,240'
        assert len(lines) == 1 + 3 + 3 + 2
        page.locator("#seeds").check()
        page.get_by_role("button", name="Only RND").click()
        page.locator("#curve-zoom-in").click()  # 3,750 to 11,250
        rows = rows_of(page)
        assert [(row["seed"], row["steps"]) for row in rows] == [
            (seed, steps) for seed in ("", "0", "1", "2") for steps in ("5000", "10000")
        ]

    def test_a_name_is_no_formula(self, opened: Open, tmp_path: Path) -> None:
        env = '=HYPERLINK("x")</script><b>'
        write_run(tmp_path / "runs" / "a", [1.0, 2.0], env=env)
        page = opened(html.write_page([tmp_path / "runs"], tmp_path / "report.html", PAPER))
        name, content = downloaded(page, "csv")
        assert name == "_HYPERLINK_x_script_b_-return_mean.csv"
        assert content.decode().splitlines()[1].startswith('"\'=HYPERLINK(""x"")</script><b>",')
        assert page.locator("b").all_text_contents() == ["emi", f"{env}, EMI, seed 0"]
        assert b"&lt;b&gt;" in downloaded(page, "svg")[1]


def test_videos(opened: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", [1.0])
    frames = np.zeros((4, 32, 48, 3), np.uint8)
    imageio.imwrite(run / "watch.gif", frames, duration=100)
    imageio.imwrite(run / "watch.mp4", frames, fps=10, macro_block_size=2)
    (write_run(tmp_path / "runs" / "b", [1.0], seed=1) / "watch.mp4").write_bytes(b"1" * 4_000_001)
    write_run(tmp_path / "runs" / "c", [1.0], env="SwimmerGather")
    page = opened(html.write_page([tmp_path / "runs"], tmp_path / "report.html", PAPER))
    page.wait_for_function("() => document.querySelector('#videos video').videoWidth === 48")
    page.wait_for_function("() => document.querySelector('#videos img').naturalWidth === 48")
    assert "runs/b/watch.mp4 (4.0 MB) is left out" in str(page.locator("#remarks").text_content())
    assert page.locator("#remarks h2").text_content() == "1 remark"
    page.select_option("#env", label="SwimmerGather")
    assert page.locator("#videos").is_hidden()
