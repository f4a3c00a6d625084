"""The index of aborted transactions: truncated with the log, and trusted only as far as a log could have written it."""

from __future__ import annotations

import pytest

from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.transaction_index import AbortedTxn, TransactionIndex

PATH = "/log/00000000000000000035.txnindex"
ENTRIES = [AbortedTxn(7, 36, 40, 36), AbortedTxn(9, 38, 45, 38), AbortedTxn(7, 50, 52, 50)]


def index_with(entries: list[AbortedTxn]) -> TransactionIndex:
    disk = MemoryDisk()
    disk.make_dirs("/log")
    writer = TransactionIndex(disk, PATH)
    for entry in entries:
        writer.append(entry)
    return TransactionIndex(disk, PATH)


def test_it_is_cut_back_by_the_offsets_of_the_markers() -> None:
    index = index_with(ENTRIES)
    index.truncate_to(52)
    assert index.entries() == ENTRIES[:2]
    index.truncate_to(40)
    assert index.entries() == []


@pytest.mark.parametrize(
    "noise",
    [
        AbortedTxn(0, 0, 0, 0),
        AbortedTxn(3, 5, -6842636610939974815, 1),
        AbortedTxn(3, -5, 46, 1),
        AbortedTxn(-3, 44, 46, 1),
        AbortedTxn(3, 47, 46, 1),
        AbortedTxn(3, 41, 44, 1),
    ],
)
def test_nothing_from_an_impossible_entry_on_is_kept(noise: AbortedTxn) -> None:
    index = index_with([*ENTRIES[:2], noise, ENTRIES[2]])
    index.truncate_to(1000)
    assert index.entries() == ENTRIES[:2]
    index = index_with([noise])
    index.clear()
    assert index.entries() == []
