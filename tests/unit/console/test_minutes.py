"""The minutes of the time line, and how many of their events left partitions under min ISR or offline."""

from __future__ import annotations

import pytest

from barnabas.console.occurrences import Occurrences
from barnabas.monitor.changes import Change
from barnabas.monitor.severity import Severity


@pytest.mark.parametrize("severity", Severity)
def test_a_minute_counts_events_that_leave_partitions_under_min_isr(severity: Severity) -> None:
    known = Occurrences()
    known.add([Change("isr-change", "orders-0", 61_000, "ISR 1,2,3 -> 1", severity, topic="orders")])
    assert known.minutes() == [[60_000, 1, int(severity >= Severity.ERROR)]]
