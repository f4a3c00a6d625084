"""The distribution's Chromium, driven by Playwright, and pages that note whatever a page must not do.

The page's content security policy stays on: nothing may be evaluated in the page but by the debugger itself
(`page.evaluate`), so tests use locators and `expect`, and never `wait_for_function` or `add_script_tag`.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

REPOSITORY: Final = Path(__file__).resolve().parents[2]
AXE: Final = REPOSITORY / "src/barnabas/console/ui/node_modules/axe-core/axe.min.js"
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
SWITCHES: Final = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE: Final = (1280, 800)
PHONE: Final = (390, 844)
Theme = Literal["light", "dark"]


def build_page() -> None:
    """Builds the page if its sources have changed."""
    sys.path.insert(0, str(REPOSITORY / "tools"))
    build_console = import_module("build_console")
    build_console.build(REPOSITORY)


@contextmanager
def chromium() -> Iterator[Browser]:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    assert program is not None, "no Chromium: sh tools/install_system_deps.sh installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(SWITCHES))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A context of the browser with one cookie jar. `faults` has what no page of the console may do: an error in its
    log, a request to another host, a violation of the policy, a dialog.
    """

    def __init__(
        self, browser: Browser, url: str, *, size: tuple[int, int] = WIDE, theme: Theme = "light", scale: float = 1
    ) -> None:
        self.url = url.rstrip("/")
        self.faults: list[str] = []
        self._allowed: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            device_scale_factor=scale,
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(15_000)

    def allow(self, pattern: str) -> None:
        """Expects an error that a test causes itself, such as the answer 404 for a topic that does not exist."""
        self._allowed.append(pattern)

    def open(self, path: str = "/") -> Page:
        return self._goto(self.context.new_page(), path)

    def open_window(self, path: str, opener: Page) -> Page:
        """Opens a page in a window of its own. Of the tabs of one window a browser draws the one in front; it says that
        the others are visible, too, if it has no screen, but draws them once a second.
        """
        with self.context.expect_page() as opened:
            opener.evaluate("() => void open('about:blank', '_blank', 'popup,noopener,width=1280,height=800')")
        return self._goto(opened.value, path)

    def _goto(self, page: Page, path: str) -> Page:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("request", self._on_request)
        page.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}"))
        page.goto(self.url + path)
        return page

    def check(self) -> None:
        assert not self.faults, self.faults

    def close(self) -> None:
        self.context.close()

    def _note(self, fault: str) -> None:
        if not any(re.search(pattern, fault) for pattern in self._allowed):
            self.faults.append(fault)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith("data:") and urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self._note(f"request off the host: {request.url}")


def axe_violations(page: Page) -> list[str]:
    """Returns the violations that axe-core finds on the page, one line each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("() => window.axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {violation['help']}: {node['target']} {node.get('failureSummary', '')[:300]}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


def axe_violations_in_both_themes(page: Page) -> list[str]:
    """Returns the violations in dark, then in light. The page follows the system if nobody has chosen a theme."""
    found = []
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        found += [f"{theme}: {each}" for each in axe_violations(page)]
    return found


def seconds_until(condition: Callable[[], None]) -> float:
    """Returns how long an assertion of Playwright's took to become true."""
    begin_s = time.monotonic()
    condition()
    return time.monotonic() - begin_s
