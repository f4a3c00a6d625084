"""The proof finds each way in which an order can go wrong between producer, log and tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.orders.dataset import OrderData
from barnabas.orders.faults import Faults, sends
from barnabas.orders.ledger import Contents, Entry
from barnabas.orders.proof import Proof, TableCounts, prove
from barnabas.orders.topic_reader import Record

FAULTS = Faults(duplicates=0.1, late=0.1, malformed=0.1, oversized=0.05, seed=1)
BEGIN: dict[str, Any] = {"topic": "orders", "topic_id": "x", "start_offsets": {"0": 0}, "replay": {}}


@pytest.fixture(scope="module")
def arrived() -> tuple[Contents, list[Record]]:
    """A replay of 200 orders into one partition, as it should go."""
    contents = Contents(begin=BEGIN, end={"longest_pause_ms": 12})
    records: list[Any] = []
    for send in sends(OrderData(1, orders=200).orders(), FAULTS, 30_000):
        if send.kind == "oversized":
            contents.entries.append(Entry(send.order_id, send.kind, refused="MSG_SIZE_TOO_LARGE"))
            continue
        offset = len(records)
        contents.entries.append(
            Entry(send.order_id, send.kind, 0, offset, send.total_cents, send.line_count, send.reason)
        )
        records.append(Record(0, offset, send.timestamp_ms, send.key, send.value))
    return contents, records


def tables_of(contents: Contents) -> TableCounts:
    """Returns the tables that a faultless pipeline builds from the ledger's records."""
    orders = {
        entry.order_id: (entry.order_id, entry.lines, entry.total_cents)
        for entry in contents.acknowledged()
        if entry.reason is None
    }
    bad = [(entry.reason, 1) for entry in contents.acknowledged() if entry.reason is not None]
    counts: dict[str, int] = {}
    for reason, count in bad:
        counts[reason] = counts.get(reason, 0) + count
    return TableCounts.of(orders.values(), counts, contents.books().duplicates)


def without_last_good(arrived: tuple[Contents, list[Record]]) -> tuple[Entry, Contents, list[Record]]:
    contents, records = arrived
    entry = next(entry for entry in contents.entries if entry.kind == "order")
    return entry, contents, [record for record in records if record.offset != entry.offset]


def test_what_arrived_balances(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    proof = prove(contents, records, tables_of(contents))
    assert proof.balanced
    assert (proof.lost, proof.doubled, proof.examples()) == (0, 0, [])
    assert proof.acknowledged_books == proof.log_books
    assert proof.log_books.orders == 200
    assert proof.log_broken.total() == proof.acknowledged["malformed"] > 0
    assert proof.log_books.duplicates == proof.acknowledged["duplicate"] > 0
    assert proof.refused > 0
    said = {what: number for what, number, _ in proof.lines()}
    assert (said["orders acknowledged"], said["lost"], said["longest pause"]) == ("200", "0", "12 ms")


def test_a_lost_record_is_lost(arrived: tuple[Contents, list[Record]]) -> None:
    entry, contents, records = without_last_good(arrived)
    proof = prove(contents, records)
    assert not proof.balanced
    assert (proof.lost, proof.doubled) == (1, 0)
    assert str(entry.order_id) in proof.examples()[0]


def test_a_retry_that_was_written_twice_is_doubled(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    good = next(record for record in records if record.offset == contents.entries[0].offset)
    proof = prove(contents, [*records, good._replace(offset=len(records))])
    assert not proof.balanced
    assert (proof.lost, proof.doubled) == (0, 1)


def test_a_copy_of_what_was_sent_again_after_a_crash_is_accounted_for(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    first = contents.entries[0]
    resumed = replace(contents, entries=[first._replace(again=True), *contents.entries[1:]])
    copy = next(record for record in records if record.offset == first.offset)._replace(offset=len(records))
    proof = prove(resumed, [*records, copy])
    assert proof.balanced
    assert proof.again == 1


def test_what_nobody_acknowledged_is_no_fault(arrived: tuple[Contents, list[Record]]) -> None:
    entry, contents, _ = without_last_good(arrived)
    left = [each for each in contents.entries if each.order_id != entry.order_id]
    proof = prove(replace(contents, entries=left), arrived[1])
    assert proof.balanced
    assert proof.never_acknowledged >= 1


def test_another_record_in_its_place_is_noticed(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    goods = [entry.offset for entry in contents.entries if entry.kind == "order"][:2]
    swapped = list(records)
    for mine, other in (goods, goods[::-1]):
        swapped[mine] = records[other]._replace(offset=mine)
    proof = prove(contents, swapped)
    assert not proof.balanced
    assert proof.log.changed == 2


def test_a_bad_event_under_another_reason_is_noticed(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    bad = next(entry for entry in contents.entries if entry.kind == "malformed")
    changed = [record._replace(value=b"") if record.offset == bad.offset else record for record in records]
    assert prove(contents, changed).log.changed == 1


def changed_tables(arrived: tuple[Contents, list[Record]], change: str) -> Proof:
    contents, records = arrived
    tables = tables_of(contents)
    some = next(iter(tables.order_rows))
    if change == "a row less":
        del tables.order_rows[some]
    elif change == "a row twice":
        tables.order_rows[some] += 1
    elif change == "a row of nowhere":
        tables.order_rows[1] += 1
        tables.duplicates_removed -= 1
    elif change == "a cent":
        tables.sales_cents += 1
    elif change == "a line":
        tables.lines -= 1
    elif change == "a duplicate not removed":
        tables.duplicates_removed -= 1
    elif change == "a bad event less":
        reason = next(iter(tables.quarantined))
        tables.quarantined[reason] -= 1
    elif change == "another reason":
        tables.quarantined["no_value"] = tables.quarantined.pop(next(iter(tables.quarantined)))
    return prove(contents, records, tables)


@pytest.mark.parametrize(
    ("change", "lost", "doubled"),
    [
        ("a row less", 1, 0),
        ("a row twice", 0, 1),
        ("a row of nowhere", 0, 0),
        ("a cent", 0, 0),
        ("a line", 0, 0),
        ("a duplicate not removed", 1, 0),
        ("a bad event less", 1, 0),
    ],
)
def test_each_fault_of_the_tables_is_noticed(
    arrived: tuple[Contents, list[Record]], change: str, lost: int, doubled: int
) -> None:
    proof = changed_tables(arrived, change)
    assert not proof.balanced
    assert (proof.lost, proof.doubled) == (lost, doubled)
    assert proof.examples()


def test_quarantine_under_another_reason_does_not_balance(arrived: tuple[Contents, list[Record]]) -> None:
    assert not changed_tables(arrived, "another reason").balanced


def test_good_orders_that_were_set_aside_are_not_lost(arrived: tuple[Contents, list[Record]]) -> None:
    contents, records = arrived
    tables = tables_of(contents)
    entry = next(entry for entry in contents.entries if entry.kind == "late")
    copies = sum(each.order_id == entry.order_id and each.reason is None for each in contents.acknowledged())
    del tables.order_rows[entry.order_id]
    tables.quarantined["too_late"] = copies
    tables.duplicates_removed -= copies - 1
    proof = prove(contents, records, tables)
    assert proof.balanced, proof.examples()
    tables.quarantined["too_late"] = 0
    assert not prove(contents, records, tables).balanced
