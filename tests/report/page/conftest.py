"""The report page in Chromium: fixtures that open it and collect what the browser complains about.

Skipped without Chromium. Limits of time are generous, for busy machines.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from run_files import write_run, write_sample

from emi.report.page import html
from emi.reproduction.paper_values import PAPER

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE = 60  # seconds that anything may take


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two environments; images in one, an unfinished run, one without an episode."""
    root = tmp_path_factory.mktemp("page")
    for seed, final in enumerate((200.0, 220.0, 240.0)):
        write_run(root / "runs" / f"emi{seed}", [0.0, 60.0, final], seed=seed)
        write_run(root / "runs" / f"rnd{seed}", [0.0, 5.0, seed], method="rnd", seed=seed, eta=0.1)
    write_run(root / "runs" / "trpo0", [0.0, 1.0], method="trpo", iterations=3)
    write_run(root / "runs" / "trpo1", [np.nan] * 3, method="trpo", seed=1)
    write_sample(root / "runs" / "emi0", [[5, 250]], images=True, error={20: (3.0, 4.0)})
    other = write_run(root / "runs" / "other", [1.0], env="SwimmerGather")
    write_sample(other, [[30]])
    return html.write_page([root / "runs"], root / "report.html", PAPER)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("needs a browser: install chromium to test the report page")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """One for all tests: to open another takes longer than any of them."""
    made = browser.new_page()
    made.set_default_timeout(PATIENCE * 1000)
    return made


@pytest.fixture
def complaints(tab: Page) -> Iterator[list[str]]:
    """What the browser complains about or asks of a network; also a tab as it was at first."""
    heard: list[str] = []

    def asked(address: str) -> None:
        if not address.startswith(("data:", "blob:")):  # are part of the page
            heard.append(address)

    hear = {
        "console": lambda message: heard.append(message.text),
        "pageerror": lambda error: heard.append(str(error)),
        "request": lambda request: asked(request.url),
    }
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(color_scheme="light")
    tab.mouse.move(0, 0)
    for event, listener in hear.items():
        tab.on(event, listener)  # type: ignore[call-overload]
    yield heard
    for event, listener in hear.items():
        tab.remove_listener(event, listener)


@pytest.fixture
def opened(tab: Page, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """A function that opens a page; at the end nothing was complained about or loaded."""
    files: list[str] = []

    def opened(file: Path, address: str = "") -> Page:
        tab.goto("about:blank")  # another address after "#" alone would not load the page
        tab.goto(file.as_uri() + address)
        tab.wait_for_selector("html[data-ready]")
        files.append(file.as_uri())
        return tab

    yield opened
    assert [heard.partition("#")[0] for heard in complaints if heard != "about:blank"] == files


@pytest.fixture
def page(opened: Callable[..., Page], page_file: Path) -> Page:
    """The page, open."""
    return opened(page_file)
