"""Directories that a start set aside are kept for a day, across restarts, and then removed with one log line."""

from __future__ import annotations

import errno

import pytest

from barnabas.simulation.host import MemoryHost
from barnabas.storage.file_removal import DelayedRemoval
from barnabas.storage.stray_removal import KEPT_MS, SINCE_FILE, StrayRemoval

PATHS = [f"/data/orders-{index}.{index:032x}-stray" for index in range(5)]
HOUR_MS = 3_600_000


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> MemoryHost:
    host = MemoryHost()
    for path in PATHS:
        host.disk.make_dirs(path)
        host.disk.write(f"{path}/00000000000000000000.log", b"records")
    monkeypatch.setattr(host.faults, "inform", lines.append)
    lines.clear()
    return host


lines: list[str] = []


def strays(host: MemoryHost, paths: list[str]) -> StrayRemoval:
    found = StrayRemoval(host, DelayedRemoval(host))
    for path in paths:
        found.add(path)
    return found


def left(host: MemoryHost) -> list[str]:
    return [path for path in PATHS if host.disk.exists(path)]


def test_a_day_and_then_one_line(host: MemoryHost) -> None:
    strays(host, PATHS)
    host.time.run_for(KEPT_MS - HOUR_MS)
    assert left(host) == PATHS
    assert lines == []
    host.time.run_for(2 * HOUR_MS + 10_000)
    assert left(host) == []
    assert lines == [f"removing stray directories after a day: {', '.join(PATHS[:3])} and 2 more"]
    host.time.run_for(KEPT_MS)
    assert len(lines) == 1


def test_a_restart_does_not_begin_the_day_anew(host: MemoryHost) -> None:
    for _ in range(4):
        before = strays(host, PATHS[:1])
        host.time.run_for(6 * HOUR_MS)
        assert left(host) == PATHS
        before.stop()
    strays(host, PATHS[:1])
    host.time.run_for(10_000)
    assert left(host) == PATHS[1:]


def test_a_clock_that_was_set_back_begins_it_anew(host: MemoryHost) -> None:
    host.disk.write(f"{PATHS[0]}/{SINCE_FILE}", str(host.clock.wall_ms() + 100 * KEPT_MS).encode())
    host.disk.write(f"{PATHS[1]}/{SINCE_FILE}", b"not a number")
    strays(host, PATHS[:2])
    host.time.run_for(KEPT_MS - HOUR_MS)
    assert left(host) == PATHS
    host.time.run_for(2 * HOUR_MS + 10_000)
    assert left(host) == PATHS[2:]


def test_one_that_cannot_be_written_to_does_not_hold_up_the_others(
    host: MemoryHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = host.disk.write

    def unwritable(path: str, data: bytes, *, sync: bool = False) -> None:
        if path.startswith(PATHS[0]):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data, sync=sync)

    monkeypatch.setattr(host.disk, "write", unwritable)
    strays(host, PATHS)
    host.time.run_for(KEPT_MS + HOUR_MS + 10_000)
    assert left(host) == PATHS[:1]
