"""How often the ISRs are checked for followers that lag."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.replication import isr_expiration
from barnabas.replication.isr_expiration import IsrExpiration
from barnabas.simulation.host import MemoryHost


@pytest.mark.parametrize(("lag_ms_max", "checks"), [(1000, 4), (999, 4), (1, 2000)])
def test_isrs_are_checked_twice_per_lag_time(lag_ms_max: int, checks: int) -> None:
    host = MemoryHost()
    seen: list[int] = []
    partition: Any = SimpleNamespace(shrink_isr=lambda: seen.append(host.clock.now_ms()))
    environment = cast("Any", SimpleNamespace(lag_ms_max=lag_ms_max))
    expiration = IsrExpiration(host.timers, environment, lambda: iter([partition]))
    expiration.start()
    host.time.run_for(2000)
    assert len(seen) == checks
    expiration.close()
    host.time.run_for(2000)
    assert len(seen) == checks


def test_many_partitions_are_checked_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 partitions took one turn of 29 ms."""
    monkeypatch.setattr(isr_expiration, "_CHECKED_AT_ONCE", 3)
    host = MemoryHost()
    seen: list[int] = []
    partitions: Any = [SimpleNamespace(shrink_isr=lambda: seen.append(host.clock.now_ms())) for _ in range(8)]
    environment = cast("Any", SimpleNamespace(lag_ms_max=1_000))
    expiration = IsrExpiration(host.timers, environment, lambda: iter(partitions))
    expiration.start()
    host.time.run_for(600)
    assert [seen.count(now_ms) for now_ms in sorted(set(seen))] == [3, 3, 2]
    host.time.run_for(402)
    expiration.close()
    host.time.run_for(10_000)
    assert len(seen) == 2 * len(partitions) - 5, "the second check was ended after its first turn"


def test_a_check_in_between_does_not_end_the_periodic_ones() -> None:
    host = MemoryHost()
    seen: list[int] = []
    partition: Any = SimpleNamespace(shrink_isr=lambda: seen.append(host.clock.now_ms()))
    environment = cast("Any", SimpleNamespace(lag_ms_max=1_000))
    expiration = IsrExpiration(host.timers, environment, lambda: iter([partition]))
    expiration.start()
    begin_ms = host.clock.now_ms()
    host.time.run_for(200)
    expiration.check()
    host.time.run_for(1_100)
    assert [now_ms - begin_ms for now_ms in seen] == [200, 700, 1_200]
