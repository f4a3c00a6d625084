"""The console's scrubber in a real Chromium: from the choice of a moment to the map of it, in a week of history.

    python bench/console_scrubber.py                          40,000 partitions, 400,000 changes in 7 days
    python bench/console_scrubber.py --events 20000 --moments 10

The history is that of `history_model.py`, opened as an incident: no cluster is needed. The moments are random. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

import history_model
from console import Child
from console_page import SWITCHES, line

_DAYS = 7
_WEEK_MS = _DAYS * 24 * 3600 * 1000
_PER_TOPIC = 4
_PICTURE = ".map-canvas[data-drawn]"
#: The first moment of the model.
_BEGIN_MS = 1_700_000_000_000
#: Sets the moment as the scrubber does, by the address, and waits for the frame after its picture.
_CHOOSE = """async ([at, picture]) => {
  const begin = performance.now();
  history.pushState(null, '', `${location.pathname}?at=${at}`);
  dispatchEvent(new PopStateEvent('popstate'));
  while (!document.querySelector(picture).dataset.drawn.endsWith(`.${at}`)) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=40_000)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--moments", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        written: dict[str, Any] = history_model.write(given.partitions, _PER_TOPIC, given.events, _DAYS, 1, folder)
        print(f"{written['events']:,} changes of {given.partitions:,} partitions in {written['file_mb']:.0f} MB")
        console = Child("barnabas.cli", "console", "--incident", str(Path(folder) / "history.db"), "--port", "0")
        try:
            url = console.read().removeprefix("console: ").rstrip("/")
            _measure(url, given.moments)
            print(f"RSS of the server at the end {console.rss_mb():.0f} MB")
        finally:
            console.end()


def _measure(url: str, moments: int) -> None:
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=list(SWITCHES))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{url}/map")
        page.locator(_PICTURE).wait_for(timeout=60_000)
        draw = random.Random(7)
        taken = [_choose(page, _BEGIN_MS + draw.randrange(_WEEK_MS * 9 // 10)) for _ in range(moments)]
        print("| scrubber, a week of history | min ms | median ms | p99 ms | max ms |\n|---|---|---|---|---|")
        print(line("a moment is chosen: to the repaint of the map", taken), flush=True)
        browser.close()


def _choose(page: Page, at_ms: int) -> float:
    return float(page.evaluate(_CHOOSE, [at_ms, _PICTURE]))


if __name__ == "__main__":
    main()
    sys.exit(0)
