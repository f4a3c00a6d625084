"""The pictures of the console in the documentation: BARNABAS_PICTURES=docs/pictures keeps those of this run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import Visit
from tests.support.console_server import RunningConsole
from tests.support.shop import ORDERS

pytestmark = pytest.mark.full
SIZE = (1180, 640)
#: No picture is larger: the repository keeps them.
BYTES_MAX = 150_000


def test_pictures_of_a_kill(browser: Browser, console: RunningConsole, tmp_path: Path) -> None:
    folder = Path(os.environ.get("BARNABAS_PICTURES") or tmp_path)
    time.sleep(4.0)
    visit = Visit(browser, console.url, size=SIZE)
    page = visit.open("/map")
    page.get_by_role("button", name="Lab").click()
    page.get_by_role("button", name="Kill -9 broker 2").click()
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    expect(page.locator(".lab-state").nth(1)).to_have_text("stopped")
    page.get_by_role("button", name="Close", exact=True).click()
    page.screenshot(path=folder / "console-map.png")
    console.until(lambda: "at min ISR" in str(console.get("topic", name=ORDERS)), "the ISR does not shrink")
    time.sleep(4.0)
    for name, address, text in (
        ("overview", "/", "What first"),
        ("topic", f"/topic?name={ORDERS}", "at min ISR"),
        ("lanes", f"/topic?name={ORDERS}&tab=history", f"{ORDERS}-0"),
        ("partition", f"/partition?topic={ORDERS}&partition=0", "Why it is so"),
        ("timeline", "/timeline", "broker-gone"),
        ("whatif", "/whatif?ask=restart&broker=1", "would change"),
    ):
        page = visit.open(address)
        expect(page.locator("main")).to_contain_text(text, timeout=20_000)
        time.sleep(2.5)
        page.screenshot(path=folder / f"console-{name}.png")
        page.close()
    dark = Visit(browser, console.url, size=(390, 780), theme="dark")
    page = dark.open("/map")
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    page.screenshot(path=folder / "console-phone.png")
    visit.check()
    dark.check()
    for each in folder.glob("console-*.png"):
        assert each.stat().st_size < BYTES_MAX, each
