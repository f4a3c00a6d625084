"""`barnabas console` and its page on three brokers with 5,000 partitions of three replicas, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser import Visit
from tests.support.many_partitions import (
    NAMES,
    TOTAL,
    ClusterWatch,
    address_of,
    create_many,
    is_in_sync,
    led_by_others,
    partitions,
    resident_peak_mb,
)

from barnabas.testing import Cluster

pytestmark = pytest.mark.full
VICTIM: Final = 2
SURVIVOR: Final = 3
TOPIC: Final = NAMES[7]
#: A change of the cluster is on the page within a second or two; brokers, console, browser and other tests share two
#: cores, so the test allows for more.
SHOWN_S: Final = 2.0
BUSY: Final = 3
BACK_MS: Final = 180_000.0
#: Notes in each frame which of `window.checks` are fulfilled, and when they first were, in seconds since 1970.
_NOTE: Final = """
window.checks = {};
window.noted = {};
const look = () => {
  for (const [name, check] of Object.entries(window.checks)) {
    if (!(name in window.noted) && check()) window.noted[name] = (performance.timeOrigin + performance.now()) / 1000;
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_ON_THE_MAP: Final = """(led) => {
  const count = (look) => Number(document.querySelector(`.map-legend li[data-look="${look}"]`).dataset.count);
  window.checks.dead = () => document.querySelector('.map-head[data-up="false"]') !== null;
  window.checks.moved = () => count('leads, not preferred') >= led;
}"""
_ON_THE_TOPIC: Final = """([index, victim]) => {
  const leader = () => document.querySelector(`tbody tr[data-index="${index}"] [data-replica="leader"]`);
  window.checks.moved = () => leader() !== null && leader().textContent !== String(victim);
}"""


class ConsoleProcess:
    """`barnabas console` as a process, with the attribute of a console that a visit needs."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "barnabas.cli", "console", "--bootstrap", bootstrap, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith("console: "), line
        self.url = line.removeprefix("console: ")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as started:
        create_many(started.bootstrap)
        yield started


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    history: Path = tmp_path_factory.mktemp("history") / "history.db"
    found = ConsoleProcess(cluster.bootstrap, "--history", str(history))
    try:
        yield found
    finally:
        found.end()


def _opened(visit: Visit, path: str, script: str, argument: Any) -> Page:
    """Opens a screen that notes when its checks are fulfilled."""
    page = visit.open(path)
    expect(page.locator(".live")).to_have_attribute("data-live", "on", timeout=60_000)
    page.evaluate(_NOTE)
    page.evaluate(script, argument)
    return page


def _noted(page: Page, name: str, within_s: float = 60.0) -> float:
    deadline_s = time.monotonic() + within_s
    while True:
        found = page.evaluate("(name) => window.noted[name] ?? null", name)
        if found is not None:
            return float(found)
        assert time.monotonic() < deadline_s, f"{page.url}: {name} is not on the page"
        page.wait_for_timeout(50)


def test_the_map_and_a_topic_follow_a_kill(
    visit: Visit, cluster: Cluster, console: ConsoleProcess, record_property: Callable[[str, object], None]
) -> None:
    survivor = address_of(cluster.bootstrap, SURVIVOR)
    shown = partitions(survivor, [TOPIC])
    led = sum(each.leader_id == VICTIM for each in partitions(survivor, NAMES))
    index = min(each.partition_index for each in shown if each.leader_id == VICTIM)
    assert index < 10, "the row is in sight"
    map_page = _opened(visit, "/map?fill=leader", _ON_THE_MAP, led)
    expect(map_page.locator('.map-legend li[data-look="leads, not preferred"]')).to_have_attribute("data-count", "0")
    topic_page = _opened(visit, f"/topic?name={TOPIC}", _ON_THE_TOPIC, [index, VICTIM])
    expect(topic_page.locator(f'tbody tr[data-index="{index}"] [data-replica="leader"]')).to_have_text(str(VICTIM))
    time.sleep(3)

    watch = ClusterWatch(survivor, led_by_others(VICTIM), TOPIC)
    killed_s = time.time()
    cluster.kill(VICTIM)
    figures = {
        "death on the map after the kill, s": _noted(map_page, "dead") - killed_s,
        "new leader on the topic's page after the kill, s": _noted(topic_page, "moved") - killed_s,
        "all new leaders on the map after the kill, s": _noted(map_page, "moved") - killed_s,
    }
    watch.wait()
    figures["the cluster's first new leaders after the kill, s"] = watch.first_s - killed_s
    figures["the cluster's last new leaders after the kill, s"] = watch.last_s - killed_s
    on_topic_s = _noted(topic_page, "moved") - watch.first_s
    on_map_s = _noted(map_page, "moved") - watch.last_s

    back = ClusterWatch(survivor, is_in_sync)
    cluster.start_broker(VICTIM)
    back.wait()
    expect(map_page.locator('.map-head[data-up="false"]')).to_have_count(0, timeout=BACK_MS)
    figures["resident memory of the console at most, MB"] = resident_peak_mb(console.process.pid)
    rounded = {name: round(value, 2) for name, value in figures.items()}
    rounded |= {"topic's page after the cluster": round(on_topic_s, 2), "map after the cluster": round(on_map_s, 2)}
    record_property("figures", rounded)
    print(rounded)
    assert led > TOTAL // 4, "leaders are spread"
    assert on_topic_s <= SHOWN_S * BUSY, rounded
    assert on_map_s <= SHOWN_S * BUSY, rounded
