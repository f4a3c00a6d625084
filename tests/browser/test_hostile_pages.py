"""Names that a hostile cluster gives, on every screen; and a page of another site that shows the console in a frame."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.support.browser import Visit, build_page
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
QUOTES = """\"' onload=alert(3) x='{{7*7}}${alert(4)}"""
NAMES = (SCRIPT, QUOTES, "javascript:alert(5)")
SCREENS = (
    "/",
    "/map",
    "/map?group=topic",
    "/topics",
    "/topics?chosen=*",
    "/topic?name={}",
    "/topic?name={}&tab=configs",
    "/partition?topic={}&partition=0",
    "/messages?topic={}&partition=0",
    "/groups",
    "/group?name={}",
    "/brokers",
    "/timeline",
    "/timeline?topic={}",
    "/whatif?ask=lose-broker&broker=1",
    "/compare",
    "/moves",
    "/settings",
    "/{}",
)
SHORT = ("/", "/topics", "/topic?name={}", "/group?name={}", "/timeline")


def _names(state: PhantomState) -> None:
    for name in NAMES:
        state.create_topic(name, 2)
        state.commit(name, name, 0, 0)
        state.assign(name, {name: [(name, 0), (name, 1)]})
        state.shrink_isr(name, 0, state.topics[name].partitions[0].isr[-1])


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    build_page()
    with PhantomCluster(topics=3, journal=True) as phantom:
        phantom.change(_names)
        options = ConsoleOptions(interval_s=0.1, budget_share=1.0)
        with RunningConsole([target_of(phantom, SCRIPT)], options) as found:
            found.filled()
            found.until(lambda: found.get("groups")["total"] == len(NAMES), "the groups are read")
            yield found


@pytest.mark.parametrize(
    "screen", [each if each in SHORT else pytest.param(each, marks=pytest.mark.full) for each in SCREENS]
)
def test_names_of_a_hostile_cluster_are_text(visit: Visit, screen: str) -> None:
    visit.allow("the server responded with a status of (404|503)")
    for name in NAMES if "{}" in screen else NAMES[:1]:
        page = visit.open(screen.replace("{}", quote(name, safe="")))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if screen in ("/topics", "/groups"):
            for each in NAMES:
                expect(page.get_by_text(each).first).to_be_visible()
        assert page.locator("main img, main [onload], main [onerror], a[href^='javascript']").count() == 0
        assert page.locator("script:not([src]):not([type='application/json'])").count() == 0
        page.close()


def test_no_site_shows_the_console_in_a_frame(visit: Visit, console: RunningConsole) -> None:
    page = visit.context.new_page()
    page.set_content(f'<iframe src="{console.url}" width="600" height="400"></iframe>')
    page.wait_for_load_state("networkidle")
    (frame,) = [each for each in page.frames if each.parent_frame is not None]
    assert frame.url.startswith("chrome-error:")
    assert frame.locator("#page").count() == 0
    alone = visit.open("/")
    expect(alone.get_by_role("heading", level=1)).to_be_visible()
