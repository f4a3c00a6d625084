"""The console's page in a real Chromium with a phantom cluster: first visits, changes of screen, changes of the
cluster, memory (docs/console-screens.md).

    python bench/console_page.py                              10,000 topics of 4 partitions, 1,000 groups
    python bench/console_page.py --topics 1000 --visits 5

Times are taken in the browser: from the start of the navigation, or from the input, to the frame in which the data are
on the screen. Prints Markdown.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from console import Child, cells, options, watched

SWITCHES = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
)
#: Each screen, with an element that exists only when the screen's data is shown.
_SCREENS = {
    "/": ".ladder",
    "/map": ".map-canvas[data-drawn]",
    "/topics": 'tr[data-index="0"] .state',
    "/topics?sort=severity&desc=1": 'tr[data-index="0"] .state',
    "/topic?name=topic-00042": 'tr[data-index="0"] .state',
    "/partition?topic=topic-00042&partition=1": ".lanes-canvas, .explanation",
    "/groups": '[aria-label="Groups"] tr[data-index="0"]',
    "/brokers": '[aria-label="Brokers"] tr[data-index="0"]',
    "/timeline": 'section[aria-label="Events"]',
}
#: Notes in each frame whether what `window.wanted` selects is there, and when it first was.
WATCH = """
window.found = null;
const look = () => {
  if (window.wanted && window.found === null && document.querySelector(window.wanted)) window.found = performance.now();
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_ACT = """async ([what, value, wanted]) => {
  const begin = performance.now();
  if (what === 'click') document.querySelector(value).click();
  if (what === 'scroll') document.querySelector('.table-box.tall').scrollTop = value * 34;
  if (what === 'type') {
    const field = document.querySelector('input[type=search]');
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, value);
    field.dispatchEvent(new Event('input', {bubbles: true}));
  }
  while (!document.querySelector(wanted)) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""


def main() -> None:
    given = options("visits", 20)
    with watched(given.topics, given.partitions, given.groups) as found, sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=list(SWITCHES))
        _measure(browser, found.url, found.phantom, given.topics, given.visits)
        browser.close()


def _measure(browser: Browser, url: str, phantom: Child, topics: int, visits: int) -> None:
    page = _page(browser)
    page.goto(f"{url}/")
    page.locator(".ladder").wait_for(timeout=60_000)
    page.context.close()
    print("| first visit, cold cache: navigation to data on the screen | min ms | median ms | p99 ms | max ms |")
    print("|---|---|---|---|---|")
    for address, wanted in _SCREENS.items():
        print(line(f"`{address}`", [_visit(browser, url, address, wanted) for _ in range(visits)]), flush=True)
    page = _page(browser)
    page.goto(f"{url}/topics")
    page.locator('tr[data-index="0"] .state').wait_for()
    print(
        "\n| in the page: input to data on the screen | min ms | median ms | p99 ms | max ms |\n|---|---|---|---|---|"
    )
    _screens(page, visits)
    _lists(page, topics, visits)
    _changes(page, url, phantom)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    print(f"\nJavaScript heap of the map after garbage collection: {used / 1e6:.1f} MB")


def _page(browser: Browser) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(WATCH)
    return context.new_page()


def _visit(browser: Browser, url: str, address: str, wanted: str) -> float:
    page = _page(browser)
    page.context.add_init_script(f"window.wanted = {json.dumps(wanted)};")
    page.goto(url + address)
    page.locator(wanted).first.wait_for(timeout=30_000)
    page.wait_for_timeout(50)
    found = float(page.evaluate("() => window.found"))
    page.context.close()
    return found


def _act(page: Page, *what: Any) -> float:
    return float(page.evaluate(_ACT, list(what)))


def _screens(page: Page, visits: int) -> None:
    steps = [
        (address, wanted)
        for address, wanted in _SCREENS.items()
        if address in ("/", "/map", "/topics", "/groups", "/brokers")
    ]
    times: dict[str, list[float]] = {}
    for _ in range(visits):
        for address, wanted in steps:
            taken = _act(page, "click", f'.screens a[href="{address}"]', wanted)
            times.setdefault(f"to `{address}`", []).append(taken)
            page.wait_for_timeout(100)
    for name, values in times.items():
        print(line(name, values), flush=True)


def _lists(page: Page, topics: int, visits: int) -> None:
    _act(page, "click", '.screens a[href="/topics"]', 'tr[data-index="0"] .state')
    jumps, filters = [], []
    for number in range(visits):
        row = (number * 7919 + 500) % (topics - 100)
        jumps.append(_act(page, "scroll", row, f'tr[data-index="{row + 3}"] .state'))
        page.wait_for_timeout(50)
    print(line("jump in the list of topics", jumps), flush=True)
    for number in range(visits):
        name = f"topic-{number * 37 % topics:05d}"
        filters.append(_act(page, "type", name, f'tr[data-index="0"] a[title="{name}"]:only-child'))
        page.wait_for_timeout(50)
    print(line("filter topics", filters), flush=True)
    _act(page, "type", "", 'tr[data-index="20"] .state')


_DOWN = '.map-head[data-up="false"]'
_UP = ".map:not(:has([data-up='false']))"


def _changes(page: Page, url: str, phantom: Child) -> None:
    """Prints how long the death and the return of a broker take to the picture of all replicas."""
    page.goto(f"{url}/map")
    page.locator(".map-canvas[data-drawn]").wait_for()
    taken: dict[str, list[float]] = {"kill 2": [], "start 2": []}
    for command, before, wanted in (("kill 2", _UP, _DOWN), ("start 2", _DOWN, _UP)) * 5:
        page.wait_for_timeout(8000)
        page.locator(before).first.wait_for(timeout=30_000, state="attached")
        page.evaluate(f"() => {{ window.wanted = {json.dumps(wanted)}; window.found = null; }}")
        begin_s = phantom.ask(command)["time_s"]
        page.locator(wanted).first.wait_for(timeout=30_000, state="attached")
        page.wait_for_timeout(60)
        taken[command].append(page.evaluate("() => performance.timeOrigin + window.found") - begin_s * 1000)
    print(line("a broker of three dies: to the repaint of the map", taken["kill 2"]), flush=True)
    print(line("it returns: to the repaint of the map", taken["start 2"]), flush=True)


def line(name: str, values: list[float]) -> str:
    """Returns a line of a table, in whole milliseconds."""
    return f"| {name} | {cells(values, 0)} |"


if __name__ == "__main__":
    begin_s = time.monotonic()
    main()
    print(f"({time.monotonic() - begin_s:.0f} s)", file=sys.stderr)
