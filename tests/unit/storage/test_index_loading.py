"""Loading an index without waiting for the disk."""

from __future__ import annotations

import pytest

from barnabas.simulation.disk import MemoryDisk, MemoryFile
from barnabas.storage.index import OffsetIndex

PATH = "/data/orders-0/00000000000000000000.index"


def written() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/data/orders-0")
    index = OffsetIndex(disk, PATH, 0)
    index.append(10, 4_096)
    index.write_out()
    return disk


def test_an_index_in_the_page_cache_is_loaded() -> None:
    index = OffsetIndex(written(), PATH, 0)
    assert not index.is_loaded
    assert index.load_cached()
    assert index.is_loaded
    assert index.entry(0) == (10, 4_096)
    assert index.load_cached()


def test_an_index_that_is_not_there_is_empty() -> None:
    index = OffsetIndex(MemoryDisk(), PATH, 0)
    assert index.load_cached()
    assert len(index) == 0


def test_an_index_outside_the_page_cache_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFile, "read_at_nowait", lambda file, offset, size: None)
    index = OffsetIndex(written(), PATH, 0)
    assert not index.load_cached()
    assert not index.is_loaded
