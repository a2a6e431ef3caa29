"""A real browser: Debian's Chromium, driven by Playwright, with the checks that every page must
pass.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
WIDE, NARROW = (1280, 900), (390, 844)
PATIENCE_MS = 30_000
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str:
    """Return the path of Chromium. Without it, a test is skipped, except where every test must run."""
    found = os.environ.get("ENC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        why = "no Chromium: install Debian's package chromium (scripts/test-packages), or name one in ENC_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


@contextmanager
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Visit:
    """One tab. `errors`: console errors; `others`: requests to other hosts; `asked`: all requested
    paths.
    """

    def __init__(self, context: "BrowserContext", url: str, name: str) -> None:
        self.page: Page = context.new_page()
        self.url, self.name = url.rstrip("/"), name
        self.errors, self.others, self.asked = list[str](), list[str](), list[str]()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._request(request.url))

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _request(self, url: str) -> None:
        if url.startswith(("data:", "blob:")):
            return
        self.asked.append(url.removeprefix(self.url))
        if urlsplit(url).netloc != urlsplit(self.url).netloc:
            self.others.append(url)

    def go(self, place: str) -> "Page":
        """Go to an address such as `#/enclaves`. Returns when the page is complete."""
        self.page.goto(f"{self.url}/{place}")
        return self.ready()

    def turn(self, place: str) -> "Page":
        """Go to another address like a link does, without reloading."""
        self.page.evaluate(
            "place => { document.getElementById('main').dataset.state = ''; location.hash = place; }", place
        )
        return self.ready()

    def ready(self) -> "Page":
        self.page.wait_for_selector("main[data-state=ready]", state="attached")
        return self.page

    def click(self, selector: str) -> "Page":
        """Follow a link to another page."""
        self.page.evaluate("document.getElementById('main').dataset.state = ''")
        self.page.click(selector)
        return self.ready()

    def heading(self) -> str:
        return self.page.inner_text("h1")

    def axe(self, rule: str = "") -> list[str]:
        """Return the violations that axe-core finds, one per line, or those of one rule. Only table starts are checked.

        The script is injected by the debugger, because the page's own policy forbids scripts.
        """
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8"))
        only = {"type": "rule", "values": [rule]} if rule else {"type": "tag", "values": RULES}
        found: dict[str, Any] = self.page.evaluate(
            "only => axe.run({exclude: [['tbody tr:nth-child(n+6)']]}, {runOnly: only, resultTypes: ['violations']})",
            only,
        )
        return [
            f"{each['id']}: {each['help']}: {node['target']}: {node.get('failureSummary', '')}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def shot(self, name: str = "") -> None:
        """Save a screenshot to the folder in ENC_SCREENSHOTS, if set."""
        folder = os.environ.get("ENC_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name or self.name}.png", full_page=True)

    def check(self) -> None:
        """Check what must hold for every page."""
        assert self.errors == []
        assert self.others == []


@contextmanager
def visiting(
    browser: "Browser", url: str, *, scheme: str = "light", size: tuple[int, int] = WIDE, name: str = "page"
) -> Iterator[Visit]:
    """Open a fresh tab that fails the test if an error occurred in it."""
    width, height = size
    context = browser.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": width, "height": height},
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
        accept_downloads=True,
    )
    try:
        yield Visit(context, url, name)
    finally:
        context.close()
