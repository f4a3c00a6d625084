"""A console that watches a phantom cluster and records its history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster


@pytest.fixture
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=30, partitions=4, journal=True) as running:
        yield running


@pytest.fixture
def console(phantom: PhantomCluster, tmp_path: Path) -> Iterator[RunningConsole]:
    options = ConsoleOptions(interval_s=0.1, timeout_s=1.0, budget_share=1.0, history=tmp_path / "history.db")
    with RunningConsole([target_of(phantom)], options) as running:
        running.filled()
        yield running
