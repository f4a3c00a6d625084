"""The page at 200 % zoom, and in ten tabs, of which the hidden ones hold no stream open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.browser import Visit, axe_violations
from tests.support.console_server import RunningConsole
from tests.support.shop import ORDERS

pytestmark = pytest.mark.full
#: The size of a window of 1280 x 800 at 200 %.
ZOOMED = (640, 400)
TABS = 10
SCREENS = (
    "/",
    "/map",
    "/topics",
    f"/topic?name={ORDERS}",
    f"/topic?name={ORDERS}&tab=configs",
    f"/partition?topic={ORDERS}&partition=0",
    f"/messages?topic={ORDERS}&partition=0&from=start&limit=5",
    "/groups",
    "/brokers",
    "/broker?id=2",
    "/timeline",
    "/compare",
    "/whatif?ask=lose-broker&broker=2",
    "/moves",
    "/settings",
)
#: A tab is hidden or seen as the test says: a headless browser shows all of them.
_VISIBILITY = """
let isHidden = true;
Object.defineProperty(document, 'visibilityState', {get: () => (isHidden ? 'hidden' : 'visible'), configurable: true});
window.show = (isShown) => { isHidden = !isShown; document.dispatchEvent(new Event('visibilitychange')); };
"""
#: The controls that lie partly outside of the window. Tables and regions scroll by themselves.
_OUTSIDE = """() => [...document.querySelectorAll('main button, main a.button, main select')].filter((each) => {
    const box = each.getBoundingClientRect();
    const isOutside = box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
    return isOutside && !each.closest('.table-box, [role=region]');
}).map((each) => each.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("path", SCREENS)
def test_a_screen_at_200_percent_scrolls_only_downwards(browser: Browser, console: RunningConsole, path: str) -> None:
    visit = Visit(browser, console.url, size=ZOOMED, scale=2)
    page = visit.open(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("main .waiting")).to_have_count(0)
    width, wide = page.evaluate("() => [document.documentElement.clientWidth, document.documentElement.scrollWidth]")
    assert wide <= width, f"{path} is {wide} pixels wide in {width}"
    outside = page.evaluate(_OUTSIDE)
    assert outside == [], path
    assert axe_violations(page) == []
    visit.check()
    visit.close()


def test_a_dialog_at_200_percent_can_be_used(browser: Browser, console: RunningConsole) -> None:
    visit = Visit(browser, console.url, size=ZOOMED, scale=2)
    page = visit.open("/topics")
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog", name="New topic")
    dialog.get_by_label("Name").first.fill("zoomed")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_be_visible()
    button = dialog.get_by_role("button", name="Create")
    button.scroll_into_view_if_needed()
    expect(button).to_be_in_viewport()
    assert axe_violations(page) == []
    visit.check()
    visit.close()


def _open(console: RunningConsole) -> int:
    assert console.console is not None
    return console.console.streams.open


def _show(page: Page, *, is_shown: bool) -> None:
    page.evaluate(f"() => window.show({str(is_shown).lower()})")


def test_of_ten_tabs_only_the_seen_one_has_a_stream(visit: Visit, console: RunningConsole) -> None:
    console.until(lambda: _open(console) == 0, "a stream of another test")
    visit.context.add_init_script(_VISIBILITY)
    paths = [f"/topic?name={ORDERS}", "/map", "/", "/brokers", "/timeline"] * (TABS // 5)
    pages = [visit.open(path) for path in paths]
    for page in pages:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".live")).to_have_attribute("data-live", "off")
    assert _open(console) == 0, "no tab is seen"
    for page in pages:
        _show(page, is_shown=True)
        expect(page.locator(".live")).to_have_attribute("data-live", "on", timeout=10_000)
        console.until(lambda: _open(console) == 1, "not exactly one stream is open")
        _show(page, is_shown=False)
        expect(page.locator(".live")).to_have_attribute("data-live", "off")
    console.until(lambda: _open(console) == 0, "a hidden tab has a stream")
    for page in pages:
        page.close()
