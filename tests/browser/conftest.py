"""One browser, one cluster and one console for each file, and for each test a visit to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.support.browser import Visit, build_page, chromium
from tests.support.console_server import RunningConsole, embedded_target
from tests.support.shop import fill

from barnabas.console.state import ConsoleOptions
from barnabas.embedded.cluster import EmbeddedCluster

BROKERS = 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Starts a browser. Its driver has an event loop in this thread: while it runs, no other test can run its own."""
    build_page()
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    found = EmbeddedCluster(tmp_path_factory.mktemp("cluster") / "shop")
    found.start(brokers=BROKERS, racks=["east", "west", "north"])
    try:
        fill(found.bootstrap)
        yield found
    finally:
        found.kill()


@pytest.fixture(scope="module")
def console(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    build_page()
    options = ConsoleOptions(history=tmp_path_factory.mktemp("history") / "history.db")
    with RunningConsole([embedded_target(Path(cluster.directory))], options) as found:
        found.filled()
        yield found


@pytest.fixture
def visit(browser: Browser, console: RunningConsole) -> Iterator[Visit]:
    found = Visit(browser, console.url)
    try:
        yield found
        found.check()
    finally:
        found.close()
