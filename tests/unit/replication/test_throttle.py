"""The rate at which replicas are copied."""

from __future__ import annotations

import pytest

from barnabas.replication.throttle import Throttle


@pytest.mark.parametrize("rate", [1000, 50_000, 1_000_000])
@pytest.mark.parametrize("slice_bytes", [100, 7000])
def test_the_rate_is_kept_over_time(rate: int, slice_bytes: int) -> None:
    throttle = Throttle(11, 1000, rate)
    now_ms = copied = 0
    while now_ms < 60_000:
        wait_ms = throttle.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        throttle.record(slice_bytes, now_ms)
        copied += slice_bytes
        now_ms += 1
    fastest = min(rate * 60, slice_bytes * 60_000)
    assert 0.8 * fastest <= copied <= 1.2 * fastest + slice_bytes


def test_without_a_rate_nobody_waits() -> None:
    throttle = Throttle(11, 1000)
    throttle.record(1 << 40, 0)
    assert throttle.wait_ms(0) == 0


def test_what_was_copied_long_ago_does_not_count() -> None:
    throttle = Throttle(3, 1000, 100)
    throttle.record(250, 0)
    assert throttle.wait_ms(100) == 1000
    assert throttle.wait_ms(5000) == 0


def test_a_window_ends_with_its_last_millisecond() -> None:
    throttle = Throttle(2, 1000, 100)
    throttle.record(1000, 0)
    throttle.record(1000, 1000)  # goes to a second window, which stays when the first one is dropped
    assert throttle.wait_ms(2001) == 1000
