"""Ten tabs of one browser that are all seen, each in its window: more than it has connections to one host, and each one
is live.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser import Visit, build_page
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.console.streams import KEPT_MAX
from barnabas.testing.phantom import PhantomCluster

#: Each screen with the place that shows the death of broker 2, and what is there then.
TABS = {
    "/": (".health", "at min ISR"),
    "/map": ('.map-head[data-up="false"]', "Broker 2"),
    "/topics": ("main table", "at min ISR"),
    "/topic?name=topic-00001": ("main table", "at min ISR"),
    "/topic?name=topic-00002": ("main table", "at min ISR"),
    "/partition?topic=topic-00001&partition=1": ("main", "OSR\\s*2"),
    "/brokers": (".broker-problem", "not in the cluster|refused"),
    "/broker?id=2": (".broker-problem", "not in the cluster|refused"),
    "/timeline?severity=error": ("[aria-label=Events]", "broker-gone"),
    "/whatif?ask=lose-broker&broker=3": ("main", "under min ISR"),
}
ROUNDS = 5
#: The number of rounds in which a tab must be in time.
OFTEN = 2
BOUND_S = 1.0
#: Notes the time of the first frame in which a place has a text.
_WATCH = """([place, text]) => {
    window.seenAt = null;
    const pattern = new RegExp(text);
    const look = () => {
        const isThere = [...document.querySelectorAll(place)].some((each) => pattern.test(each.textContent));
        if (isThere && window.seenAt === null) requestAnimationFrame(() => (window.seenAt = Date.now()));
    };
    window.watching?.disconnect();
    window.watching = new MutationObserver(look);
    window.watching.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
}"""


@pytest.fixture
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=30, partitions=4, journal=True) as found:
        yield found


@pytest.fixture
def console(phantom: PhantomCluster) -> Iterator[RunningConsole]:
    """Provides a console of simulated brokers, which replaces the one of real brokers in this file."""
    build_page()
    with RunningConsole([target_of(phantom)], ConsoleOptions()) as found:
        found.filled()
        yield found


def _seen_after_s(pages: list[Page], begin_ms: float) -> list[float]:
    """Returns how long after a moment each page showed what it waits for."""
    deadline_s = time.monotonic() + 15
    while True:
        seen: list[int | None] = [page.evaluate("() => window.seenAt") for page in pages]
        times = [each for each in seen if each is not None]
        if len(times) == len(pages):
            return [(each - begin_ms) / 1000 for each in times]
        assert time.monotonic() < deadline_s, str(dict(zip(TABS, seen, strict=True)))


@pytest.fixture
def pages(visit: Visit, console: RunningConsole) -> list[Page]:
    """Opens the tabs; all of them are live."""
    assert len(TABS) == 10
    first, *others = TABS
    opener = visit.open(first)
    pages = [opener, *(visit.open_window(path, opener) for path in others)]
    for page in pages:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".live")).to_have_attribute("data-live", "on")
    assert console.console is not None
    assert console.console.streams.open <= KEPT_MAX
    return pages


def _killed(pages: list[Page], phantom: PhantomCluster) -> list[float]:
    """Lets a broker die. Returns the seconds after which each page shows that."""
    for page, place in zip(pages, TABS.values(), strict=True):
        page.evaluate(_WATCH, list(place))
    begin_ms = time.time() * 1000
    phantom.change(lambda state: state.kill(2))
    return _seen_after_s(pages, begin_ms)


@pytest.mark.full
def test_ten_seen_tabs_show_a_death(pages: list[Page], phantom: PhantomCluster) -> None:
    assert len(_killed(pages, phantom)) == len(TABS)


@pytest.mark.full
def test_ten_seen_tabs_show_a_death_within_a_second(pages: list[Page], phantom: PhantomCluster) -> None:
    found: list[list[float]] = []
    for _ in range(ROUNDS):
        found.append(_killed(pages, phantom))
        phantom.change(lambda state: state.start(2))
        expect(pages[0].locator(".health")).to_contain_text("All partitions are in sync")
        time.sleep(1.0)
    # Other work on the machine makes some rounds slow.
    often = {path: sorted(times)[OFTEN - 1] for path, times in zip(TABS, zip(*found, strict=True), strict=True)}
    assert max(often.values()) <= BOUND_S, often
