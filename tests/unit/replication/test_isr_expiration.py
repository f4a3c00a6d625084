"""How often the ISRs are checked for followers that lag."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

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
